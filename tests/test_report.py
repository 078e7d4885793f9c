"""`report`: a page that holds what it says, escapes what it is given, and whose numbers the command line gives, too."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from cli_tools import Run, runner
from report_tools import HOSTILE, LANGUAGES, data_of, in_node, needs_node, small_fit

import shapleymix as sm
from shapleymix.mixing.mixtures import Mixture


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
