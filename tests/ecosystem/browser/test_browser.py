"""A page in headless Chromium: what its sliders say is what the library says, and it asks nobody for anything."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shapleymix_view import report

import shapleymix as sm

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium (apt-get install chromium)")
FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
N, D = 97_600, 2e6
PARENTS = {"language": ["en", "de", "fr", "zh", "ja"], "parent": ["west", "west", "west", "east", "east"]}


@pytest.fixture(scope="module")
def fit() -> sm.Fit:
    return sm.fit(FIXTURES / "multilingual5_runs.csv", "learned-base", bootstrap=4, folds=2)


@pytest.fixture(params=[{"width": 1280, "height": 900}, {"width": 390, "height": 844}], ids=["desk", "phone"])
def page(request: pytest.FixtureRequest, fit: sm.Fit, tmp_path: Path) -> Iterator[Any]:
    """The page of an optimum, open; at the end nothing was said, and nothing asked for but the file."""
    path = tmp_path / "report.html"
    best = sm.optimize(fit, N, D, caps={"ja": 0.2}, languages=PARENTS)
    report(fit, best, log=FIXTURES / "multilingual5_runs.csv").save(path)
    said: list[str] = []
    asked: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(viewport=request.param)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        opened = context.new_page()
        opened.on("console", lambda message: said.append(message.text))
        opened.on("pageerror", lambda error: said.append(str(error)))
        opened.on("request", lambda request: asked.append(request.url))
        opened.goto(path.as_uri())
        yield opened
        assert said == []
        assert {one.partition("#")[0] for one in asked} <= {path.as_uri(), "about:blank"}
        browser.close()


def test_the_pages_optimum_is_the_librarys(page: Any, fit: sm.Fit) -> None:
    check(page, sm.optimize(fit, N, D, caps={"ja": 0.2}))
    page.get_by_role("slider", name="cap of ja", exact=True).fill("0.1")
    page.get_by_role("slider", name="weight of de", exact=True).fill("0")
    found = answer(page)
    check(page, sm.optimize(fit, N, D, caps=found["caps"], weights=found["weights"]))
    assert (found["caps"]["ja"], found["weights"]["de"]) == (0.1, 0)
    wide = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] <= wide[1], "nothing is wider than the screen"


def test_the_answer_is_in_the_first_screen_and_stays_while_sliders_move(page: Any) -> None:
    height = page.viewport_size["height"]
    shown = [page.locator(one) for one in ("#objective strong", "#gain strong", "#far strong", "#ratios .row >> nth=0")]
    assert all((box := one.bounding_box())["y"] >= 0 and box["y"] + box["height"] <= height for one in shown)
    first = shown[0].inner_text()
    slider = page.get_by_role("slider", name="weight of ja", exact=True)
    slider.scroll_into_view_if_needed()
    slider.fill("2")
    assert shown[0].inner_text() != first
    assert all(0 <= one.bounding_box()["y"] <= height for one in shown[:3])
    assert page.locator("#panel").bounding_box()["y"] < height


def test_a_rival_that_is_chosen_shows_its_gains(page: Any, fit: sm.Fit) -> None:
    best = sm.optimize(fit, N, D, caps={"ja": 0.2}, languages=PARENTS)
    for place, one in enumerate(best.baselines):
        page.locator(f"#over-{place}").check()
        assert page.locator(".against:visible").count() == 1
        rows = page.locator(f"#against-{place} li b").all_inner_texts()
        found = [float(text.replace("−", "-")) for text in rows]
        assert found == pytest.approx(sorted(one.gains.tolist(), reverse=True), abs=6e-5)
        assert float(page.locator("#gain strong").inner_text().replace("−", "-")) == pytest.approx(one.gain, abs=6e-5)


def test_an_address_opens_the_same_question_and_paper_takes_four_pages(page: Any) -> None:
    first, start = answer(page), page.url
    page.get_by_role("slider", name="cap of ja", exact=True).fill("0.1")
    page.get_by_role("slider", name="D, tokens").fill("0")
    page.wait_for_timeout(500)
    moved, address = answer(page), page.url
    assert address.startswith(f"{start}#")
    for there, expected in ((start, first), (address, moved), (f"{start}#caps.ja=7", first)):
        page.goto("about:blank")
        page.goto(there)
        assert answer(page) == expected
    assert page.locator("#beyond li, #words h2").first.is_visible()
    assert 1 <= page.pdf(format="A4").count(b"/Type /Page\n") <= 4


def test_a_parent_opens_to_its_sources_and_keeps_the_focus(page: Any, fit: sm.Fit) -> None:
    best = sm.optimize(fit, N, D, caps={"ja": 0.2})
    rows = page.locator("#ratios .row:visible")
    assert rows.count() == 2
    page.locator("summary.row", has_text="west").press("Enter")
    shown = zip(page.locator("#ratios .name:visible").all(), page.locator("#ratios b:visible").all(), strict=True)
    found = {name.inner_text(): float(ratio.inner_text()) for name, ratio in shown}
    west = {name: best.mixture[name] for name in ("en", "de", "fr")}
    assert found == pytest.approx(west | {"west": sum(west.values()), "east": 1 - sum(west.values())}, abs=6e-5)
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.keyboard.press("Enter")
    assert rows.count() == 2


def test_what_is_typed_wrongly_is_marked_and_reset_begins_again(page: Any) -> None:
    first, typed = answer(page), page.get_by_role("spinbutton", name="cap of ja, as a number", exact=True)
    for wrong in ("2", "-1", ""):
        typed.fill(wrong)
        assert typed.evaluate("box => box.matches(':invalid')")
        assert answer(page) == first
    typed.fill("0.050")
    assert (answer(page)["caps"]["ja"], typed.input_value()) == (0.05, "0.050")
    page.click("#reset")
    assert answer(page) == first


def answer(page: Any) -> dict[str, Any]:
    """What the page copies as JSON."""
    page.wait_for_timeout(100)
    page.click("#copy-json")
    page.wait_for_timeout(100)
    return json.loads(page.evaluate("navigator.clipboard.readText()"))


def check(page: Any, best: sm.Mixture) -> None:
    found = answer(page)
    np.testing.assert_allclose(list(found["mixture"].values()), best.p, atol=2e-6)
    np.testing.assert_allclose(found["objective"], best.objective, atol=1e-8)
    assert 0 <= found["gap"] < 1e-8
