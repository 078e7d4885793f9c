"""The generated pages are in step with the program (`make reference` writes them)."""

import pytest
import write_reference


@pytest.mark.parametrize("name", write_reference.PAGES)
def test_pages_are_in_step(name: str) -> None:
    page = (write_reference.ROOT / name).read_text(encoding="utf-8")
    assert page == write_reference.PAGES[name](), "run `make reference`"
