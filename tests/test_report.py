"""`report`: a page that holds what it says, escapes what it is given, and whose numbers the command line gives, too."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from cli_tools import Run, runner
from report_tools import FIXTURES, HOSTILE, LANGUAGES, QUICK, RUNS, data_of, in_node, needs_node, small_fit

import shapleymix as sm
from shapleymix.mixing.mixtures import Mixture
from shapleymix.reports.pages import SCRIPTS


@pytest.fixture(scope="module")
def fit() -> sm.Fit:
    return small_fit()


@pytest.fixture(scope="module")
def saved(fit: sm.Fit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "fit.json"
    fit.save(path)
    return path


@pytest.fixture(scope="module")
def mixture(fit: sm.Fit) -> Mixture:
    return sm.optimize(fit, 97_600, "8M", languages=LANGUAGES, caps={"ja": 0.2}, weights="en=2,de=1,fr=1,zh=1,ja=3")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


class Parsed(HTMLParser):
    """The elements of a page with their attributes, and the text of each kind."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self._open[-1] if self._open else "", []).append(data)


def test_the_page_is_whole_and_asks_for_nothing(fit, mixture):
    page = sm.report(fit, mixture).html
    parsed = Parsed(page)
    policy = next(dict(values)["content"] for tag, values in parsed.elements if "http-equiv" in values)
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.S)
    styles = re.findall(r"<style>(.*?)</style>", page, flags=re.S)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (*scripts, *styles)]
    assert policy.startswith("default-src 'none'")
    assert re.findall(r"'sha256-(.*?)'", policy) == hashes
    assert len(hashes) == 2
    names = {name for _, values in parsed.elements for name in values}
    assert not {name for name in names if name.startswith("on")} | names & {"src", "style"}
    assert {values["href"][0] for tag, values in parsed.elements if "href" in values} == {"#"}
    ids = [values["id"] for _, values in parsed.elements if "id" in values]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", [*(f"{one}.js" for one in SCRIPTS), "style.css"])
def test_scripts_are_short_and_no_markup(name):
    text = (files("shapleymix.reports") / "web" / name).read_text(encoding="utf-8")
    assert text.count("\n") < 350 or name == "style.css"
    assert max(map(len, text.split("\n"))) <= 120
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|https?://(?!www\.w3\.org)", text)


def test_every_part_is_there_with_its_numbers(fit, mixture):
    page = html.unescape(sm.report(fit, mixture).html)
    for title in ("Move the question", "The mixture for", "what it errs by", "What sources do", "Fitted symbols",
                  "The data, and what was wrong with it", "Where the numbers come from"):  # fmt: skip
        assert title in page
    assert all(f"{ratio:.4f}" in page for ratio in mixture.p)
    assert f"{fit.held_out.mean['PE']:.2%}" in page
    assert all(notice[1:] in page for notice in (*fit.notices, *mixture.notices))
    assert str(fit.provenance["log_sha256"]) in page


def test_names_are_text_whatever_they_hold(fit, mixture):
    """A language called like markup neither ends the script nor becomes an element."""
    names = (HOSTILE, *fit.sources[1:])
    renamed, other = (replace(one, sources=names, targets=names) for one in (fit, mixture))
    page = sm.report(renamed, other, name=HOSTILE).html
    assert "<img" not in page
    assert data_of(page)["sources"][0] == HOSTILE
    parsed = Parsed(page)
    assert "img" not in {tag for tag, _ in parsed.elements}
    assert sum(tag == "script" for tag, _ in parsed.elements) == 2
    assert HOSTILE in "".join(parsed.texts["th"])


MOVED = """
    const data = opened(content.data);
    return content.moves.map((move) => {
        const state = { ...begun(data), ...move }, { p, objective, losses, gap } = answerOf(data, state);
        return { command: commandOf(data, state), p: [...p], losses: [...losses], objective, gap };
    });
"""


def moves_of(fit: sm.Fit) -> list[dict]:
    K, M = len(fit.targets), len(fit.sources)
    return [
        {},
        {"N": 500_000, "D": 3e6},
        {"weights": [0.25 * (j + 1) for j in range(K)], "caps": [0.3] * M},
        {"weights": [1.0] + [0.0] * (K - 1), "floors": [0.05] * M, "D": 4e7},
    ]


@needs_node
def test_the_command_that_the_page_shows_gives_the_same_numbers(run, fit, mixture, saved, tmp_path):
    data = data_of(sm.report(fit, mixture, name=str(saved)).html)
    for one in in_node(MOVED, {"data": data, "moves": moves_of(fit)}):
        words = shlex.split(one["command"])
        assert words[0] == "shapleymix"
        outcome = run(*words[1:], "--json")
        assert outcome.code == 0, outcome.err
        found = outcome.document
        np.testing.assert_allclose(one["p"], found["p"], atol=1e-6)
        np.testing.assert_allclose(one["losses"], found["losses"], rtol=1e-6)
        assert one["objective"] == pytest.approx(found["objective"], rel=1e-9)
        assert 0 <= one["gap"] < 1e-9


def test_the_command_writes_the_page_and_says_how_large_it_is(run, saved, mixture, tmp_path):
    mixture.save(tmp_path / "mix.json")
    goal = tmp_path / "report.html"
    outcome = run("report", saved, "--mixture", tmp_path / "mix.json", "--log", RUNS, "-o", goal)
    assert outcome.code == 0, outcome.err
    assert " ".join(outcome.out.split()) == f"Wrote {goal}: {goal.stat().st_size / 1000:.0f} kB, one file."
    page = goal.read_text(encoding="utf-8")
    assert data_of(page)["fit"] == str(saved)
    assert "The runs, measured and predicted" in page
    assert "not the log that was fitted" not in page
    again = run("report", saved, "-o", goal)
    assert (again.code, "exists already" in again.err) == (2, True)
    found = run("report", saved, "--mixture", tmp_path / "mix.json", "-o", goal, "--force", "--json").document
    assert (found["kind"], found["bytes"]) == ("report", goal.stat().st_size)
    first = goal.read_bytes()
    run("report", saved, "--mixture", tmp_path / "mix.json", "-o", goal, "--force")
    assert goal.read_bytes() == first, "the same inputs give the same bytes"


def test_another_log_than_the_fitted_one_is_called_so(fit):
    page = sm.report(fit, log=FIXTURES / "multilingual5_coalitions.csv").html
    assert "This is not the log that was fitted." in page


def test_without_a_mixture_the_page_begins_at_the_largest_fitted_budget(run, saved, fit, tmp_path):
    assert run("report", saved, "--languages", LANGUAGES, "-o", tmp_path / "a.html").code == 0
    start = data_of((tmp_path / "a.html").read_text(encoding="utf-8"))["start"]
    assert (start["N"], start["D"]) == (fit.N_range[1], fit.D_range[1])
    assert run("report", saved, "-N", "1M", "-D", "5M", "--weights", "en=1,zh=3", "-o", tmp_path / "b.html").code == 0
    start = data_of((tmp_path / "b.html").read_text(encoding="utf-8"))["start"]
    assert (start["N"], start["D"], start["weights"]) == (1e6, 5e6, [1.25, 0, 0, 3.75, 0])


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ("--cap ja=0.1 --floor en=0.3", ""),
        ("--fix de=0.2", ""),
        ("--available en=2M,zh=1M --max-epochs zh=1", ""),
        ("--min-tokens fr=2M", "fewest tokens are asked for, which the sliders keep as ratios"),
        ("--group en+de<=0.2", "groups of sources are bound"),
        ("--near uniform --within 0.05", "it obeys more than caps"),
    ],
)
def test_without_a_mixture_every_bound_of_optimize_is_taken(run, saved, tmp_path, bounds, told):
    page, asked = tmp_path / "page.html", ["-N", "97600", "-D", "8M", *bounds.split()]
    outcome = run("report", saved, *asked, "-o", page)
    assert outcome.code == 0, outcome.err
    best = run("optimize", saved, *asked, "--json").document
    assert data_of(page.read_text(encoding="utf-8"))["candidates"][0]["p"] == best["p"]
    assert told in outcome.err
    assert ("the sliders know" in outcome.err) == bool(told)


def test_what_is_doubtful_of_the_optimum_is_told_where_the_page_is_made(run, saved, tmp_path):
    outcome = run("report", saved, "-N", "100M", "-D", "1T", "-o", tmp_path / "page.html", "--json")
    assert any("D lies outside of the fitted range" in one for one in outcome.document["notices"])
    assert "by up to a factor of 500,000" in outcome.err


def test_a_log_of_other_languages_is_named(run, saved, tmp_path):
    text = RUNS.read_text(encoding="utf-8").replace("_ja", "_xx").replace("_zh", "_yy")
    (tmp_path / "other.csv").write_text(text, encoding="utf-8")
    outcome = run("report", saved, "--log", tmp_path / "other.csv", "-o", tmp_path / "page.html")
    assert outcome.code == 1
    assert f"error: {tmp_path / 'other.csv'} has 4 faults" in outcome.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "nothing says where to write the page"),
        ("-o page.txt", "end the name in .html"),
        ("--mixture {mix} -N 1M -o {page}", "-N does nothing beside --mixture"),
        ("--mixture {mix} --cap ja=0.1 -o {page}", "--cap does nothing beside --mixture"),
        ("--mixture {mix} --distance l1 -o {page}", "--distance does nothing beside --mixture"),
        ("--mixture {mix} --languages {mix} -o {page}", "--languages does nothing beside --mixture"),
        ("--mixture {fit} -o {page}", "mixture"),
        ("--compare {mix} -o {page}", "comparison"),
    ],
)
def test_wrong_calls_are_refused_by_name(run, saved, mixture, tmp_path, words, told):
    mixture.save(tmp_path / "mix.json")
    filled = words.format(mix=tmp_path / "mix.json", fit=saved, page=tmp_path / "page.html")
    outcome = run("report", saved, *shlex.split(filled))
    assert outcome.code in (1, 2)
    assert told in outcome.err
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("law", ["chinchilla", "hellinger"])
def test_a_law_without_convex_pieces_stands_still_and_says_why(run, law, tmp_path):
    sm.fit(RUNS, law, **{**QUICK, "folds": 0}).save(tmp_path / "fit.json")
    outcome = run("report", tmp_path / "fit.json", "--cap", "ja=0.1", "-o", tmp_path / "page.html")
    assert outcome.code == 0, outcome.err
    assert "--cap: not used, for the law has no optimum that is proved" in outcome.err
    assert f"law '{law}'" in outcome.err
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "page-data" not in page
    assert "script-src 'none'" in page


@needs_node
def test_a_name_with_a_comma_has_no_command(fit, mixture):
    names = ("en, old", *fit.sources[1:])
    renamed, other = (replace(one, sources=names, targets=names) for one in (fit, mixture))
    (found,) = in_node(MOVED, {"data": data_of(sm.report(renamed, other).html), "moves": [{}]})
    assert found["command"] is None
    assert found["p"]


@needs_node
def test_words_are_quoted_for_a_shell(fit):
    words = ["plain", "a b", "it's", "$(rm -rf x)", "`x`", "a\nb", "", "*", "~", "日本", "a=b,c=d", '"', "\\", "--x"]
    assert shlex.split(in_node("return content.map(quoted).join(' ');", words)) == words


@needs_node
@pytest.mark.parametrize(
    ("move", "told"),
    [
        ({"caps": [0.1] * 5}, "the caps leave room for 50.0% of the tokens: raise one"),
        ({"D": 1e12}, "the tokens at hand fill"),
        ({"floors": [0.3] * 5}, "the floors sum to more than all tokens"),
        ({"floors": [0.3, 0, 0, 0, 0], "caps": [0.2, 1, 1, 1, 1]}, "the floor of en lies above its cap"),
        ({"weights": [0.0] * 5}, "the weights are all zero: give a target some"),
    ],
)
def test_a_question_without_an_answer_is_told(fit, move, told):
    best = sm.optimize(fit, 97_600, "2M", languages=LANGUAGES, max_epochs=2)
    body = "const data = opened(content.data); return answerOf(data, { ...begun(data), ...content.move }).fault;"
    assert told in in_node(body, {"data": data_of(sm.report(fit, best).html), "move": move})


@needs_node
@pytest.mark.parametrize(("text", "size"), [("243M", 243e6), ("1.5e9", 1.5e9), (" 2 b", 2e9), ("7k", 7e3), ("x", None)])
def test_sizes_are_read_as_the_command_line_reads_them(text, size):
    found = in_node("const size = sizeOf(content); return Number.isNaN(size) ? null : size;", text)
    assert found == size


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_words_can_be_told_from_their_ground(scheme):
    """The contrast of each pair of colours that words stand in: 4.5, as WCAG asks."""
    style = (files("shapleymix.reports") / "web" / "style.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"--(\w+): (#\w{6})", re.findall(r":root \{(.*?)\}", style, flags=re.S)[scheme]))

    def light(name: str) -> float:
        parts = [int(colours[name][place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05

    pairs = ["ink page", "ink card", "faint page", "faint card", "accent page", "less page", "warn warned", "on accent"]
    for pair in pairs:
        ends = sorted(map(light, pair.split()))
        assert ends[1] / ends[0] >= 4.5, pair
