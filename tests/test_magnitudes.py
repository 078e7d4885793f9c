"""Numbers at the ends of floating point: fitted as their shares say, or refused by file, line and column."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated import FAST, log_of, with_loss

from shapleymix.errors import DataError
from shapleymix.fitting.comparison import compare
from shapleymix.fitting.fit import fit
from shapleymix.fitting.magnitudes import scaled_weights
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.runs import RunLog

LAWS = ("chinchilla", "learned-base", "shapley-tempered", "additive", "exponential", "gbm")


@pytest.fixture
def given():
    return log_of("shapley-tempered", rows=36, noise=1e-2)[1]


@pytest.fixture
def log() -> RunLog:
    return log_of("shapley-tempered", rows=36, noise=1e-2)[2]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [1e308, 1e-300, 5e-324, 3.0])
def test_only_the_shares_of_weights_matter(log, given, law, scale):
    """Fault: a weight column of 1e308 overflowed, and ended in an internal LinAlgError."""
    plain, scaled = (
        fit(replace(log, weight=weight), law, given.transfer, **FAST).fitted_scores.PE
        for weight in (None, np.full(36, scale))
    )
    np.testing.assert_allclose(scaled, plain, rtol=1e-6 if law != "gbm" else 0.2)


def test_weights_are_scaled_without_rounding(log):
    weight = np.random.default_rng(0).uniform(1e-5, 1e300, 36)
    found = scaled_weights(replace(log, weight=weight))
    np.testing.assert_array_equal(found / found.max(), weight / weight.max())
    assert 1 <= found.max() < 2
    np.testing.assert_array_equal(scaled_weights(replace(log, weight=np.ones(36))), scaled_weights(log))


BROKEN = {
    "inf": (np.inf, 1, "no finite number"),
    "nan": (np.nan, 1, "no finite number"),
    "negative": (-1.0, 1, "no finite number"),
    "one that hides the others": (1e308, 35, "less than 1e-250 times the largest"),
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize(
    "ask", [lambda log: fit(log, "learned-base", **FAST), lambda log: compare(log, "learned-base,gbm")]
)
def test_weights_that_cannot_be_taken_are_refused_by_run(log, how, ask):
    """Fault: they ended in LinAlgError, RuntimeWarning, or an empty reduction."""
    value, count, why = BROKEN[how]
    weight = np.where(np.arange(36) == 3, value, 1.0)
    with pytest.raises(DataError, match=why) as caught:
        ask(replace(log, weight=weight))
    assert len(caught.value.faults or (caught.value,)) == count


def test_a_log_without_a_weight_above_0_is_refused(log):
    with pytest.raises(DataError, match="no usable loss for 'en'") as caught:
        fit(replace(log, weight=np.zeros(36)), "learned-base", **FAST)
    assert "weight above 0" in str(caught.value.hint)


CELLS = ("a,{N},2e9,0.5,0.5,3.0,1\n", "b,1e8,{D},0.5,0.5,3.1,1\n", "c,1e8,2e9,0.5,0.5,{loss},1\n")


def table_with(folder, name, **cells):
    path = folder / name
    rows = "".join(CELLS).format(**{"N": "1e8", "D": "4e9", "loss": "2.9"} | cells)
    path.write_text("run,N,D,p_en,p_de,loss_en,weight\n" + rows)
    return path


@pytest.mark.parametrize("end", ["1e308", "1e-308"])
def test_every_fault_of_a_table_has_its_file_line_and_column(tmp_path, end):
    """Fault: numbers beyond floating point were told without the file's name, and in the order of the columns."""
    path = table_with(tmp_path, "runs.csv", N=end, D=end, loss=end)
    with pytest.raises(DataError, match=r"runs\.csv has 3 faults") as caught:
        read_runs(path)
    places = [(fault.location.line, fault.location.column) for fault in caught.value.faults]
    assert places == [(2, "N"), (3, "D"), (4, "loss_en")]
    assert {fault.location.file for fault in caught.value.faults} == {str(path)}


def test_of_several_tables_the_faulty_one_is_named(tmp_path):
    good, bad = table_with(tmp_path, "good.csv"), table_with(tmp_path, "bad.csv", D="1e308")
    with pytest.raises(DataError, match=r"bad\.csv:3 \[D\]: D = 1e\+308, expected 1e-25 to 1e\+25"):
        read_runs([good, bad])


def test_logs_made_in_memory_are_told_in_the_order_of_their_lines(log):
    """Fault: faults came column by column."""
    rows = np.arange(36)
    lines = rows + 2
    loss = log.loss.copy()
    loss[4, 1] = np.inf
    odd = replace(log, N=np.where(rows == 9, 1e308, log.N), D=np.where(rows == 2, np.nan, log.D), lines=lines)
    p = np.where((rows == 6)[:, None], [-0.5, 1.5, 0, 0], log.p)
    with pytest.raises(DataError, match=r"made\.csv has 5 faults") as caught:
        fit(with_loss(replace(odd, p=p, origin="made.csv"), loss), "learned-base", **FAST)
    places = [(fault.location.line, fault.location.column) for fault in caught.value.faults]
    assert places == [(4, "D"), (6, "loss_de"), (8, "p_en"), (8, "p_de"), (11, "N")]
