"""A report in headless Chromium: what its sliders say is what the library says, and it asks nobody for anything."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from report_tools import HOSTILE, LANGUAGES, known_fit, law_of, small_fit

import shapleymix as sm
from shapleymix.laws.shapley import Shapley
from shapleymix.laws.terms import PowerTerms

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium (apt-get install chromium)")
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def fit() -> sm.Fit:
    return small_fit()


@pytest.fixture(scope="module")
def mixture(fit: sm.Fit) -> sm.Mixture:
    return sm.optimize(fit, 97_600, "8M", languages=LANGUAGES, caps={"ja": 0.2}, weights="en=2,de=1,fr=1,zh=1,ja=3")


@dataclass
class Watched:
    """An open page, with all that it said, asked for, or failed at."""

    page: object
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def answer(self) -> dict:
        """What `Download JSON` hands out."""
        self.page.wait_for_timeout(60)
        with self.page.expect_download() as caught:
            self.page.click("#download")
        return json.loads(Path(caught.value.path()).read_text(encoding="utf-8"))

    def slide(self, name: str, value: float) -> None:
        """Move a slider, as a hand does."""
        self.page.get_by_role("slider", name=name, exact=True).fill(str(value))


@pytest.fixture
def visit(browser, tmp_path: Path):
    """A function that writes a report and opens it; at the end nothing was said, and nothing asked but the file."""
    opened: list[tuple[Watched, str]] = []

    def open_it(report: sm.Report, viewport: dict = DESK, scheme: str = "light") -> Watched:
        path = tmp_path / f"report-{len(opened)}.html"
        report.save(path)
        context = browser.new_context(viewport=viewport, color_scheme=scheme, accept_downloads=True)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        watched = Watched(context.new_page())
        watched.page.on("console", lambda message: watched.said.append(message.text))
        watched.page.on("pageerror", lambda error: watched.said.append(str(error)))
        watched.page.on("dialog", lambda dialog: watched.said.append(f"dialog: {dialog.message}"))
        watched.page.on("request", lambda request: watched.asked.append(request.url))
        watched.page.goto(path.as_uri())
        opened.append((watched, path.as_uri()))
        return watched

    yield open_it
    for watched, address in opened:
        watched.page.wait_for_timeout(50)
        assert watched.said == []
        assert {url for url in watched.asked if not url.startswith("blob:")} == {address}
        watched.page.context.close()


def assert_same(found: dict, best: sm.Mixture) -> None:
    """The page's numbers are the library's, to 1e-6."""
    np.testing.assert_allclose(list(found["mixture"].values()), best.p, atol=1e-6)
    losses = np.array(list(found["losses"].values()), dtype=float)  # null where there is no prediction
    np.testing.assert_allclose(losses, best.losses, atol=1e-6)
    np.testing.assert_allclose(np.array(found["objective"], dtype=float), best.objective, atol=1e-6)
    assert 0 <= found["certificate"]["gap"] < 1e-8


def test_sliders_move_the_optimum_to_where_the_library_finds_it(visit, fit, mixture):
    watched = visit(sm.report(fit, mixture))
    known = {"languages": LANGUAGES, "weights": "en=2,de=1,fr=1,zh=1,ja=3"}
    assert_same(watched.answer(), mixture)
    for name, value in (("cap of ja", 0.1), ("cap of zh", 0.15), ("weight of fr", 2.5), ("weight of de", 0)):
        watched.slide(name, value)
    found = watched.answer()
    caps = {"ja": 0.1, "zh": 0.15}
    assert {name: cap for name, cap in found["caps"].items() if cap < 1} == caps
    assert_same(found, sm.optimize(fit, 97_600, "8M", **{**known, "weights": found["weights"]}, caps=caps))
    for name, value in (("N, parameters", 6), ("D, tokens", 7.5)):
        watched.slide(name, value)
    found = watched.answer()
    assert (found["N"], found["D"]) == (1e6, 3.16e7)
    assert_same(found, sm.optimize(fit, 1e6, 3.16e7, **{**known, "weights": found["weights"]}, caps=caps))
    assert any("N lies outside" in text for text in found["warnings"])


def test_numbers_can_be_typed_and_odd_ones_change_nothing(visit, fit, mixture):
    watched = visit(sm.report(fit, mixture))
    page = watched.page
    for text in ("250k", "many"):
        page.get_by_role("textbox", name="N, parameters, as text").fill(text)
        page.keyboard.press("Tab")
    page.get_by_role("spinbutton", name="cap of en, as a number").fill("0.125")
    page.get_by_role("spinbutton", name="cap of de, as a number").fill("7")
    found = watched.answer()
    assert (found["N"], found["caps"]["en"], found["caps"]["de"]) == (250_000, 0.125, 1)
    assert page.get_by_role("textbox", name="N, parameters, as text").get_attribute("aria-invalid") == "true"


def test_bounds_without_a_mixture_are_told_and_mended(visit, fit, mixture):
    watched = visit(sm.report(fit, mixture))
    for name in fit.sources:
        watched.slide(f"cap of {name}", 0.1)
    watched.page.wait_for_timeout(60)
    told = watched.page.locator(".objective")
    assert told.text_content() == "No mixture: the caps leave room for 50.0% of the tokens: raise one."
    watched.page.click("#reset")
    assert_same(watched.answer(), mixture)


def test_everything_can_be_done_by_keys_and_has_a_name(visit, fit, mixture):
    watched = visit(sm.report(fit, mixture))
    page = watched.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    before = watched.answer()["N"]
    page.get_by_role("slider", name="N, parameters", exact=True).focus()
    page.keyboard.press("ArrowRight")
    assert before < watched.answer()["N"] < 1.2 * before
    nameless = page.evaluate(
        "[...document.querySelectorAll('input, button, [role=region], svg[role=img]')]"
        ".filter((one) => !(one.getAttribute('aria-label') || one.textContent)).length"
    )
    assert nameless == 0
    page.get_by_role("button", name="Pin this mixture").focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("row", name=re.compile("pin 1")).count() == 1
    page.wait_for_timeout(800)
    assert page.get_by_role("status").first.text_content().startswith("Mean loss")


def test_candidates_are_pinned_compared_and_removed(visit, fit, mixture):
    watched = visit(sm.report(fit, mixture))
    page = watched.page
    page.click("#pin")
    watched.slide("weight of ja", 0)
    page.wait_for_timeout(60)
    cells = page.get_by_role("row", name=re.compile("pin 1")).get_by_role("cell").all_text_contents()
    found = watched.answer()
    known = {"weights": found["weights"], "languages": LANGUAGES}
    there = sm.compare_mixtures(fit, {"pin": mixture.p, "other": "uniform"}, 97_600, 8e6, **known)
    assert cells[0] == f"{there.entries[0].objective:.4f}"
    assert [one["name"] for one in found["candidates"]][-1].startswith("pin 1")
    page.get_by_role("button", name=re.compile("Remove pin 1")).click()
    assert page.get_by_role("row", name=re.compile("pin 1")).count() == 0


def test_the_command_is_copied(visit, fit, mixture):
    watched = visit(sm.report(fit, mixture, name="my fit.json"))
    watched.slide("cap of en", 0.3)
    watched.page.wait_for_timeout(60)
    watched.page.click("#copy")
    watched.page.wait_for_timeout(60)
    copied = watched.page.evaluate("navigator.clipboard.readText()")
    assert copied == watched.answer()["command"]
    assert copied.startswith("shapleymix optimize 'my fit.json' -N 97600 -D 8000000 --weights en=")


def test_names_that_look_like_markup_are_text(visit, fit, mixture):
    names = (HOSTILE, *fit.sources[1:])
    renamed, other = (replace(one, sources=names, targets=names) for one in (fit, mixture))
    watched = visit(sm.report(renamed, other, name=HOSTILE))
    page = watched.page
    page.click("#pin")
    assert page.locator("img").count() == 0
    assert page.get_by_role("slider", name=f"cap of {HOSTILE}").count() == 1
    assert HOSTILE in page.inner_text("#optimum")
    assert HOSTILE in watched.answer()["mixture"]


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_screen(visit, fit, mixture, viewport, scheme):
    watched = visit(sm.report(fit, mixture, log=str(LANGUAGES).replace("languages", "runs")), viewport, scheme)
    wide = watched.page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] <= wide[1]
    ground = watched.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) > 384) == (scheme == "light")


@pytest.mark.parametrize(("languages", "most"), [(10, 50), (100, 500)])
def test_a_move_is_answered_in_time(visit, fit, languages, most):
    """From the slider's event to the changed page, the best of ten: this machine may be busy."""
    known = known_fit(fit, law_of("learned-base", languages, languages, 0), languages, languages)
    best = sm.optimize(known, "300M", "10B")
    watched = visit(sm.report(known, best))
    assert_same(watched.answer(), best)
    took = watched.page.evaluate(
        "[...Array(10).keys()].map((n) => { const start = performance.now(); shapleymix.state.caps[0] = 0.5 - n / 40;"
        " shapleymix.show(); return performance.now() - start; })"
    )
    print(f"{languages} languages: {np.median(took):.1f} ms from the move to the page, of at most {most}")
    assert min(took) < most, took


def test_a_report_without_an_optimum_stands_still(visit, fit):
    watched = visit(sm.report(fit))
    assert watched.page.get_by_role("slider").count() == 0
    assert "Nothing to move: no mixture is given." in watched.page.inner_text("#try")


@dataclass(frozen=True)
class Bent(Shapley):
    """A law whose exponent of Theta grows with N, which no sum of powers tells."""

    kind = "law/bent"
    name = "bent"

    def _straight(self, N: float) -> Shapley:
        return Shapley(**{**vars(self), "gamma": self.gamma * np.log(N)})

    def __call__(self, p, N, D):
        return self._straight(N[0])(p, N, D)

    def terms(self, N: float, D: float) -> PowerTerms:
        return self._straight(N).terms(N, D)


def test_a_law_of_another_form_keeps_its_budget_and_says_so(visit, fit):
    known = known_fit(fit, Bent(**vars(law_of("shapley", 4, 4, 0))), 4, 4)
    best = sm.optimize(known, "300M", "10B", caps=0.4)
    watched = visit(sm.report(known, best))
    assert watched.page.get_by_role("slider", name="N, parameters", exact=True).is_disabled()
    assert "Law bent has a form of its own in N and D" in watched.page.inner_text("#panel")
    watched.slide("cap of s1", 0.2)
    assert_same(watched.answer(), sm.optimize(known, "300M", "10B", caps={"s0": 0.4, "s1": 0.2, "s2": 0.4, "s3": 0.4}))
