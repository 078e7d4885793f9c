"""Every public name, called as users call it: read by type checkers, never run."""

from pathlib import Path
from typing import Any, assert_type

import numpy as np

import shapleymix as sm

log = assert_type(sm.read_runs("runs.csv"), sm.RunLog)
sm.read_runs(["a.csv", "b.csv"], losses="optional")
sm.read_runs({"run": ["a"], "N": [1e6], "D": [1e9], "p_en": [1.0], "loss_en": [3.1]})
sm.read_runs([{"run": "a", "N": 1e6, "D": 1e9, "p_en": 1.0, "loss_en": 3.1}])
sm.read_runs("wandb.csv", map={"run": "Name", "loss": "eval/loss/{lang}"}, unit="bpb", bytes_per_token="en=4,de=5")
sm.read_runs("tidy.csv", map=["map.toml", "N=97.6k"], long=True, join=["design.csv"], ratio_unit="percent", decimal=",")
sm.write_runs(log, "log.parquet", force=True)
matrix = assert_type(sm.read_transfer("sv.csv", kind="raw"), sm.TransferMatrix)
table = assert_type(sm.read_languages("languages.csv"), sm.Languages)

assert_type(sm.shapley_values(log, sampled=True, samples=12, seed=1, N="243M", D=1e9), sm.TransferMatrix)
sm.exact_shapley(np.zeros(8)).sum()
sm.sampled_shapley(lambda members: members.sum(axis=1), 12, 200, seed=3).values.max()

fit = assert_type(sm.fit(log, "auto", matrix, table, bootstrap=20, folds=5, min_own_tokens="20k", delta=0.1), sm.Fit)
sm.fit("runs.csv", sm.LAWS["learned-base"], transfer="sv.csv", languages=table, vocabulary=32_000, threads=4, starts=3)
compared = assert_type(
    sm.compare(log, ["learned-base", "shapley"], "sv.csv", folds=5, leave_largest_N=True), sm.Comparison
)
sm.compare([log, log], "learned-base,chinchilla", split=True, prior=1e-6, drop_warmup=0.25).best().upper()
lessons = assert_type(sm.learning_curve(log, "learned-base", "sv.csv", parts=(4, 3), folds=5), sm.LearningCurve)
assert_type(lessons.needed(0.02, level=0.8), tuple[float, float, float])
assert_type(sm.evaluate(fit, "other.csv", level=0.8, strict=True), sm.Evaluation)

scored = assert_type(
    sm.calibrate_scores(log, "scores.csv", chance="hellaswag=0.25", task_language={"hellaswag": "en"}), sm.Downstream
)
sm.calibrate_scores("runs.csv", "lm-eval-output", metric="acc_norm", shots=5, run_pattern="{run}/*", transform="exp")
scored.score("hellaswag/en", 2.4).max()
tasks = sm.scored_fit(fit, scored)
sm.optimize(tasks, "243M", 1e11, weights=tasks.weights("hellaswag=1,cloze/de=0.5")).scores["hellaswag/en"]

assert_type(sm.like(fit, "cs=pl"), sm.Fit)
sm.like(fit, {"cs": "pl"}, seed=1).save("alike.json")
predicted = assert_type(fit.predict("en=0.5,de=50%", "243M", ["1B", "2B"], level=0.8, strict=True), sm.Prediction)
fit.predict("natural", 1e8, 1e9, languages="languages.csv", available={"en": "5T"})
fit.predict(["en=0.5,de=0.5", "uniform", "mix.json"], 1e8, np.array([1e9, 2e9, 3e9]))

mix = assert_type(sm.optimize(fit, "243M", 1e11), sm.Mixture)
sm.optimize(
    "fit.json",
    N="243M",
    D="100B",
    caps={"en": 0.5, "de": "40%"},
    floors=["fr=0.1", "zh=2%"],
    fix="ja=0.05",
    languages=table,
    available={"en": "5T"},
    max_epochs={"en": 2},
    min_tokens="1B",
    groups=["en+de<=30%", sm.Group(("zh", "ja"), lower=0.1)],
    near=mix,
    within=0.2,
    distance="kl",
    weights=[1.0, 2.0],
    monolingual={"en": 2.1},
    objective="worst",
    anchor={"en": 1.0},
    kl=0.1,
    constraints=[lambda p: p[0] <= 0.3],
    method="exact",
    compare_to={"plan": "en=0.5,de=0.5"},
    smoothing=0.3,
    allow_unseen=True,
    strict=True,
    level=0.8,
    seed=1,
    allow_nonconvex=True,
    what_if="de+50B",
)
assert_type(
    sm.optimize_scales(Path("fit.json"), ["1B", 2e9], 1e11, caps=0.5, groups="en+de<=0.3"), tuple[sm.Mixture, ...]
)
assert_type(sm.optimize_compute(fit, "1e22", weights="normalized", languages="languages.csv"), sm.Mixture)
assert_type(mix.export("hf", mean_tokens={"en": 810, "de": "640"}, seed=1), sm.Export).names.index("en")
assert_type(sm.export("en=0.5,de=0.5", "megatron", paths="paths.csv", D="100B", available="en=5T"), sm.Export)
sm.export({"en": 0.5}, "olmo-core", paths={"language": ["en"], "path": ["en.npy"]}, languages=table).write("mix.yaml")
curve = assert_type(sm.frontier(fit, 1e8, "2B", "en:rest", points=5, caps="en=0.5"), sm.Frontier)
both = assert_type(sm.compare_mixtures(fit, ["uniform", mix], "243M", "100B", weights="en=1"), sm.Candidates)

plan = assert_type(sm.design(35, sources=["en", "de"], caps={"en": 0.5}, seed=1), sm.Design)
sm.design(8, ["runs.csv", log], fit=fit, N="1B", D="100B", run_N="10M", purpose="region", candidates=log, batches=2)
sm.design(
    4, log, law="learned-base", candidates=["uniform", {"en": 1.0}], region=np.eye(3), languages=table, weights="en=1"
)

picture = assert_type(sm.plot_transfer(matrix, "irds.csv", values="raw", names=["exact", "in-run"]), sm.Picture)
picture.save("transfer.png", force=True)
picture.figure.axes[0].set_title(picture.caption)
sm.plot_agreement("exact.csv", matrix).save(Path("agreement.svg"))
sm.plot_fit(fit, log, "others.csv", targets=["en"], D="1B", against="prediction", level=0.8).to_bytes("pdf")
sm.plot_mixture(mix).save("mixture.pdf")
drawn = assert_type(mix.plot(), sm.Picture)
drawn = assert_type(fit.plot(log, targets=["en"]), sm.Picture)
sm.plot_compare(compared).to_polars()
sm.plot_downstream("downstream.json", tasks=["hellaswag/en"]).columns()
sm.plot_frontier(curve).summary().lower()
sm.plot_learning_curve(lessons).caption.lower()
sm.plot_design("plan.json").columns()
page: sm.Report = sm.report(fit, "mixture.json", comparison=compared, transfer=matrix)
page.save("report.html", force=True)

names: list[str] = [price.source for price in mix.binding] + [entry.name for entry in both.entries]
numbers: list[float] = [mix.objective, mix.gap, curve.entries[0].first, both.best().gain, mix.mixture["en"]]
for result in (log, matrix, table, fit, compared, predicted, mix, curve, both, plan):
    assert_type(result.summary(), str)
    assert_type(result.to_polars().height, int)
    assert_type(result == mix, bool)
    fields: dict[str, Any] = dict(result.to_dict())
for record in (matrix, fit, compared, predicted, mix, curve, both, plan):
    record.summary()
sm.Fit.load("fit.json").save("again.json", force=True)


class Own(sm.Law):
    """A law of a user's own: one symbol that is fitted, one that is given."""

    floor = sm.fitted("K")
    phi = sm.given("MK")

    @classmethod
    def require(cls, inputs: sm.Inputs) -> None:
        """It needs nothing."""

    def terms(self, N: float, D: float) -> sm.Terms:
        """The law at one budget."""
        return super().terms(N, D)


try:
    sm.optimize(fit, 1e8, 1e9, caps=0.01)
except sm.InfeasibleError as error:
    print(error.hint, error.location.line, error.faults)
except sm.LayoutError as error:
    sm.read_runs("wandb.csv", map=["run=Name"], sep=";") if error.reading else print(error.hint)
except (sm.SolveError, sm.OutsideError, sm.DataError, sm.FitError, sm.StoreError, sm.UsageError, sm.ShapleyMixError):
    print(sm.ShapleyMixError.exit_code)
    print(sm.ShapleyMixWarning("seen"))
