"""The page: what its script answers is what the library answers, and nothing in it asks or runs anything else."""

import base64
import hashlib
import html
import itertools
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import runner
from page_tools import LANGUAGES, answers, data_of
from shapleymix_cli.optimum import mixture_view
from shapleymix_view import report
from shapleymix_view.canvas import luminance
from shapleymix_view.markup import VOID
from shapleymix_view.page_data import opened, rows_of

import shapleymix as sm
from shapleymix.errors import UsageError

HOSTILE = "</script><img src=x onerror=alert(1)>&\"'"


def assert_same(found: dict[str, Any], best: sm.Mixture) -> None:
    np.testing.assert_allclose(list(found["mixture"].values()), best.p, atol=2e-6)
    losses = np.array(list(found["losses"].values()), dtype=float)  # null for those without weight in another regime
    known = (best.weights > 0) | ~np.isnan(losses)
    np.testing.assert_allclose(losses[known], best.losses[known], atol=1e-6)
    np.testing.assert_allclose(found["objective"], best.objective, atol=1e-9)
    assert 0 <= found["gap"] < 1e-8
    pairs = [
        (known, one) for known, one in itertools.product(best.baselines, found["gains"]) if known.name == one["name"]
    ]
    fixed = [pair for pair in pairs if pair[0].name in ("uniform", "natural") or pair[0].name.startswith("run ")]
    assert fixed or best.read.any(), "others follow from the question"
    for known, one in fixed if not best.read.any() else ():
        np.testing.assert_allclose(one["gain"], known.gain, atol=1e-8)
        gains = np.array(list(one["gains"].values()), dtype=float)
        np.testing.assert_allclose(gains[~np.isnan(gains)], known.gains[~np.isnan(gains)], atol=1e-5)


def contrast(one: str, other: str) -> float:
    light, dark = sorted(
        (luminance([int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)]) for code in (one, other)), reverse=True
    )
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(
    "law", ["shapley-tempered", "shapley-concave", "exponential", "learned-base", "additive", "jumps"]
)
def test_the_page_solves_every_law_as_the_library_does(law, known_fit):
    fit = known_fit(law)
    N, D = float(fit.N_range[1]), float(fit.D_range[1])
    best = sm.optimize(fit, N, D, caps={"en": 0.3}, floors={"de": 0.05})
    free = [0.3, 1, 1, 1]
    moves = [{}, {"weights": [1, 0, 2.5, 0.25]}, {"caps": [0.1, 0.3, 1, 0.4]}, {"caps": free, "n": 0, "d": 4}]
    start, heavy, tight, small = answers(report(fit, best), moves)
    assert_same(start, best)
    known: Any = {"floors": {"de": 0.05}}
    names = fit.targets
    weights = dict(zip(names, moves[1]["weights"], strict=True))
    assert_same(heavy, sm.optimize(fit, N, D, caps={"en": 0.3}, weights=weights, **known))
    assert_same(tight, sm.optimize(fit, N, D, caps=moves[2]["caps"], **known))
    assert_same(small, sm.optimize(fit, small["N"], small["D"], caps={"en": 0.3}, **known))


def test_repetition_regimes_and_typed_weights_are_those_of_the_library(real_fit, mixture):
    page = report(real_fit, mixture)
    assert len(data_of(page)["sizes"]) * len(data_of(page)["tokens"]) >= 25
    last = len(data_of(page)["tokens"]) - 1
    moves = [{}, {"d": last}, {"weights": [0, 3, 0.5, 0, 5], "d": last}, {"caps": [0.1] * 5}, {"caps": [1, 0, 1, 1, 1]}]
    found = answers(page, moves)
    assert_same(found[0], mixture)
    assert list(found[2]["weights"].values()) == [0, 3, 0.5, 0, 5]
    for one in found[1:3]:
        best = sm.optimize(real_fit, one["N"], one["D"], languages=LANGUAGES, caps={"ja": 0.2}, weights=one["weights"])
        assert best.epochs.max() > 1, "tokens are repeated"
        assert_same(one, best)
        assert "D beyond runs" in one["far"]
    assert "50.0%" in found[3]["reason"], "the caps leave half of the tokens"
    assert "without de" in found[4]["reason"], "whose losses then follow the law of the other regime"


def test_normalized_weights_are_those_of_each_budget(real_fit):
    known: Any = {"weights": "normalized", "languages": LANGUAGES, "max_epochs": 2, "floors": "fr=0.1"}
    page = report(real_fit, sm.optimize(real_fit, 97_600, "2M", **known))
    for one in answers(page, [{}, {"n": 0, "d": 0}]):
        best = sm.optimize(real_fit, one["N"], one["D"], **known)
        assert_same(one, best)
        assert "--weights normalized" in one["command"]
    (moved,) = answers(page, [{"weights": [3, 1, 1, 1, 0.5]}])
    words = shlex.split(moved["command"])
    typed = words[words.index("--weights") + 1]
    best = sm.optimize(real_fit, 97_600, "2M", **{**known, "weights": typed})
    np.testing.assert_allclose(list(moved["mixture"].values()), best.p, atol=2e-6)


def test_the_shown_command_answers_what_the_page_answers(real_fit, mixture, tmp_path, capsys):
    path = tmp_path / "my fit.json"
    real_fit.save(path)
    (moved,) = answers(
        report(real_fit, mixture, name=str(path)), [{"weights": [5, 3, 0.5, 1, 1], "caps": [1, 1, 1, 1, 0.1]}]
    )
    words = shlex.split(moved["command"])
    assert words[words.index("--weights") + 1] == "en=5,de=3,fr=0.5,zh=1,ja=1"
    outcome = runner(capsys)(*words[1:], "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.document["objective"] == pytest.approx(moved["objective"], abs=1e-9)


QUESTIONS: dict[str, dict[str, Any]] = {
    "groups": {"groups": ["en+de<=0.4", "0.2<=zh+ja<=0.5"], "caps": {"fr": 0.25}},
    "equality": {"groups": "en+de=0.5", "floors": "fr=.05"},
    "worst": {"objective": "worst", "weights": {"en": 1, "de": 2, "fr": 1, "zh": 1, "ja": 1.5}},
    "l1": {"near": "uniform", "within": 0.3},
    "kl": {"near": "en=.4,de=.2,fr=.1,zh=.2,ja=.1", "within": 0.1, "distance": "kl", "groups": "en+de<=0.45"},
    "pull": {"anchor": "en=.4,de=.2,fr=.1,zh=.2,ja=.1", "kl": 0.05, "languages": LANGUAGES, "max_epochs": 2},
    "begun": {"after": "en=.6,de=.1,fr=.1,zh=.1,ja=.1", "trained": "1M", "caps": {"en": 0.5}},
    "all": {
        "objective": "worst", "groups": "en+zh>=.3", "near": "uniform", "within": 0.5, "anchor": "uniform", "kl": 0.02,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_page_solves_bounds_of_every_kind_as_the_library_does(name, real_fit, tmp_path, capsys):
    """Where the question began, with other weights, with tighter caps, by the shown command, and at another budget."""
    asked, weights = QUESTIONS[name], [1, 3, 0.5, 0.25, 2]
    best = sm.optimize(real_fit, 97_600, "4M", **asked)
    real_fit.save(tmp_path / "fit.json")
    page = report(real_fit, best, name=str(tmp_path / "fit.json"))
    sizes, tokens = data_of(page)["sizes"], data_of(page)["tokens"]
    assert not any(data_of(page)["closed"]), "each source has a slider"
    later = next(place for place, D in enumerate(tokens) if D > 4e6)
    caps = [asked.get("caps", {}).get(one, 1) for one in real_fit.sources]
    tight = np.minimum(caps, [0.28, 1, 1, 0.3, 1]).tolist()
    start, heavy, capped, large = answers(page, [{}, {"weights": weights}, {"caps": tight}, {"n": 0, "d": later}])
    assert_same(start, best)
    named = dict(zip(real_fit.targets, weights, strict=True))
    assert_same(heavy, sm.optimize(real_fit, 97_600, "4M", **{**asked, "weights": named}))
    assert_same(capped, sm.optimize(real_fit, 97_600, "4M", **{**asked, "caps": tight}))
    assert_same(large, sm.optimize(real_fit, sizes[0], tokens[later], **asked))
    outcome = runner(capsys)(*shlex.split(capped["command"])[1:], "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.document["objective"] == pytest.approx(capped["objective"], abs=1e-9)


def test_a_question_that_the_sliders_do_not_know_is_shown_without_them(real_fit):
    found = sm.optimize(real_fit, 97_600, "2M", constraints=[lambda p: p["en"] + p["de"] <= 0.4])
    page = report(real_fit, found)
    (notice,) = page.notices
    assert "constraints of your own" in notice
    assert "<script" not in page.html
    assert "optimum" in page.html
    assert report(real_fit).notices
    begun = sm.optimize(real_fit, 97_600, "4M", after="uniform", trained="2M")
    text = report(real_fit, begun).html
    first = text.partition('data-at="3"')[2].partition("</li>")[0]
    assert f"<b>{begun.rest[3]:.4f}<" in first, "what a trainer reads next leads"
    columns = text.partition("whole run")[2].partition(">zh</th>")[2].partition("</tr>")[0]
    assert 0 < columns.index(f">{begun.rest[3]:.4f}<") < columns.index(f">{begun.p[3]:.4f}<")
    with pytest.raises(UsageError, match="other sources"):
        report(real_fit, replace(found, sources=("a", "b", "c", "d", "e")))


def test_parents_fold_and_open(nested_fit, nested, capsys):
    """Each source is in one row, sums are sums, and nothing of the answer changes; the library's table has them too."""
    page = report(nested_fit, nested)
    rows = rows_of(nested.families, nested.sources)
    assert [name for name, _ in rows] == ["en", "de", "fi"]
    assert sorted(place for _, places in rows for place in places) == [*range(24)]
    assert_same(*answers(page, [{}]), nested)
    rows = r'<summary class="row"><span class="name" title="(\w+)".*?<b>([.\d]+)</b>'
    shown = {name: float(value) for name, value in re.findall(rows, page.html)}
    expected = {one: sum(p for name, p in nested.mixture.items() if name.startswith(one)) for one in ("en", "de", "fi")}
    assert shown == pytest.approx(expected, abs=5e-5)
    inner = page.html.partition('title="en"')[2].partition("</details>")[0]
    values = [float(value) for value in re.findall(r"<b>([.\d]+)</b>", inner)][1:]
    assert values == sorted(values, reverse=True)
    assert sum(values) == pytest.approx(expected["en"], abs=5e-4)
    assert "ratio of bytes" not in page.html
    bought = report(nested_fit, replace(nested, p_bytes=nested.p[::-1].copy())).html
    row = bought.partition("ratio of bytes")[2].partition(">fi-0</th>")[2].partition("</tr>")[0]
    assert f">{nested.p[7]:.4f}<" in row, "the mixture's ratios were given as bytes in the other order"
    view = mixture_view(nested, False)
    table = next(part for part in view if hasattr(part, "columns")).columns
    assert dict(zip(table["source"], table["ratio"], strict=True)) == pytest.approx(
        {**nested.mixture, **{f"{one}, in all": value for one, value in expected.items()}}
    )


def test_an_address_holds_the_question_and_a_bad_one_nothing(real_fit, mixture):
    page = report(real_fit, mixture)
    data = data_of(page)
    asked = {"weights": [5, 0, 0.25, 1, 1], "caps": [1, 1, 0.1, 1, 0.2], "n": 0, "d": 2}
    moved, other = answers(page, [asked, {"rival": (data["start"]["rival"] + 1) % len(data["rivals"])}])
    bad = [
        "#weights.xx=1", "#weights.en=-1", "#caps.en=1.5", "#caps.en=", "#D=12345", "#n=0", "#caps.en=1&caps=.5", "#=1",
        "#constructor=1", "#__proto__.x=1", "#rival=none",
    ]  # fmt: skip
    start, again, compared, *others = answers(page, ["#main", moved["fragment"], other["fragment"], *bad])
    assert (again, compared) == (moved, other)
    assert (other["fragment"].count("="), {**other, "fragment": ""}) == (1, start), "another rival moves no answer"
    assert f"D={data['tokens'][2]:.0f}" in moved["fragment"]
    assert start["fragment"] == ""
    assert all(one == start for one in others)


def test_gains_of_targets_are_those_of_questions_about_one_target_alone(real_fit, mixture):
    """They and their intervals stand in a rival's panel; weighed, they are the gain of the objective."""
    known: Any = {"fit": real_fit, "N": mixture.N, "D": mixture.D, "languages": LANGUAGES}
    alone = [sm.problem(**known, weights={name: 1.0}) for name in real_fit.targets]
    text = report(real_fit, mixture).html
    for place, one in enumerate(mixture.baselines):
        assert mixture.weights @ one.gains == pytest.approx(one.gain, abs=1e-12)
        for j in np.flatnonzero(np.sign(one.gains) == np.sign(one.gain)):  # else drawn in the other order
            gain = alone[j].gain(mixture.p, one.p)
            found = one.gains[j], one.gains_low[j], one.gains_high[j]
            np.testing.assert_allclose(found, (gain.value, gain.low, gain.high), atol=1e-12)
        panel = next(part for part in text.split('<div id="against-')[1:] if part.startswith(f'{place}"'))
        for gain, low, high in zip(one.gains, one.gains_low, one.gains_high, strict=True):
            assert f"<b>{gain:+.4f}</b>".replace("-", "−") in panel
            assert f"{low:.4f} .. {high:.4f}<".replace("-", "−") in panel


@pytest.mark.parametrize("more", [{}, {"max_epochs": 1.5}, {"caps": {"en-1": 0.02, "fi-3": 0.01}}])
def test_kept_ratios_move_with_their_parent(nested_fit, nested, more):
    """Of two parents the sum moves alone, with repeated tokens, caps on a child, and another's child left out."""
    kept = {f"en-{kind}": (kind + 1) / 32 for kind in range(7)} | {f"de-{kind}": 1 / 64 for kind in range(8)}
    known = {"languages": opened(nested)["languages"], "keep_within": ["en", "de"], "kept": kept} | more
    best = sm.optimize(nested_fit, "30M", "3B", **known)
    page = report(nested_fit, best)
    weights, closed = [1, 0, 4], [1.0] * 24
    closed[nested_fit.sources.index("fi-1")] = 0.0
    moves = [{}, {"weights": weights, "d": len(data_of(page)["tokens"]) - 1}, {"caps": closed}]
    start, heavy, without = answers(page, moves)
    shut = [one for one, closed in zip(nested_fit.sources, data_of(page)["closed"], strict=True) if closed]
    assert not any(one.startswith("fi") for one in shut)
    assert {f"en-{kind}" for kind in range(8)} <= set(shut)
    assert_same(without, sm.optimize(nested_fit, "30M", "3B", **{**known, "caps": {"fi-1": 0.0}}))
    assert_same(start, best)
    assert_same(heavy, sm.optimize(nested_fit, "30M", heavy["D"], weights=heavy["weights"], **known))
    assert "--keep-within en,de" in heavy["command"]


class Parsed(HTMLParser):
    """Elements are closed in their order, ids are used once, and every address that is named is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.tags.append(tag)
        self.ids += [named["id"] or ""] if "id" in named else []
        self.links += [named[name] or "" for name in ("href", "src") if name in named]
        assert not any(name.startswith("on") or name == "style" for name in named)
        self.open += [] if tag in VOID else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        assert tag in VOID

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_whole_page_is_one_sound_file_that_allows_its_own_script_alone(real_fit, mixture, fixtures: Path):
    matrix = sm.shapley_values(fixtures / "multilingual5_coalitions.csv")
    tasks = sm.calibrate_scores(fixtures / "multilingual5_runs.csv", fixtures / "multilingual5_scores.csv")
    log = fixtures / "multilingual5_runs.csv"
    hostile = replace(mixture, notices=(HOSTILE,), baselines=(replace(mixture.baselines[0], name=HOSTILE),))
    page = report(real_fit, hostile, transfer=matrix, downstream=tasks, log=log, name=HOSTILE)
    parsed = Parsed()
    parsed.feed(page.html)
    assert parsed.open == []
    assert "img" not in parsed.tags
    assert len(set(parsed.ids)) == len(parsed.ids)
    assert all(link.startswith("#") and link[1:] in parsed.ids for link in parsed.links)
    policy = html.unescape(re.findall(r'content="(default-src[^"]*)"', page.html)[0])
    for kind, pattern in (("script", r"<script>(.*?)</script>"), ("style", r"<style>(.*?)</style>")):
        (text,) = re.findall(pattern, page.html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert data_of(page)["command"][-1] == HOSTILE
    for part in ("optimum", "law", "transfer", "tasks", "runs", "data", "origins"):
        assert part in parsed.ids


def test_numbers_of_the_page_are_the_records(real_fit, mixture):
    text = re.sub(r"<[^>]+>", " ", report(real_fit, mixture).html)
    for value in itertools.chain(mixture.p, mixture.losses, [one.gain for one in mixture.baselines]):
        assert f"{value:.4f}" in text
    assert all(one in html.unescape(text) for one in (*mixture.warnings, *mixture.notices))


def test_texts_contrast_with_what_they_stand_on():
    style = (Path(report.__code__.co_filename).parent / "web" / "style.css").read_text(encoding="utf-8")
    themes = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    assert len(themes) == 2
    for theme in themes:
        colour = dict(re.findall(r"--(\w+): (#\w{6})", theme))
        for text, ground in itertools.product(("ink", "faint", "accent"), ("page", "card")):
            assert contrast(colour[text], colour[ground]) >= 4.5
        assert contrast(colour["warn"], colour["warned"]) >= 4.5
    cells = re.findall(r"\.(?:up|down)\d \{ background: (#\w{6})", style) or re.findall(
        r"\.(?:up|down)\d \{\s*background: (#\w{6})", style
    )
    assert len(cells) == 8
    assert all(contrast("#000000", one) >= 4.5 for one in cells)
