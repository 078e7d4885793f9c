// What the page asks: a budget, weights, caps and floors; the bounds that they make, the answer, and the same question
// as a command line. `data` is what the report holds (`shapleymix/reports/questions.py`), `state` what the sliders say.
"use strict";

/** The page's data with its laws prepared for arithmetic. */
function opened(data) {
  const absent = data.absent === null ? null : { ...data.absent, law: prepared(data.absent.law) };
  return { ...data, law: prepared(data.law), absent };
}

/** Where the sliders stand before anybody moves one. */
function begun(data) {
  const { N, D, weights, caps, floors } = data.start;
  return { N, D, weights: [...weights], caps: [...caps], floors: [...floors] };
}

/** Weights that sum to one. */
function sharesOf(weights) {
  const total = sumOf(weights);
  return weights.map((weight) => weight / total);
}

/** Highest ratio that each source's tokens allow at D (1: no limit). */
function tokenCaps(data, D) {
  return data.supply.available.map((tokens, i) =>
    tokens === null || data.supply.epochs[i] === null
      ? tokens === 0
        ? 0
        : 1
      : Math.min((tokens * data.supply.epochs[i]) / D, 1),
  );
}

/** Lowest and highest ratios, and in words why they leave no mixture. */
function boundsOf(data, state) {
  const supplied = tokenCaps(data, state.D);
  const upper = state.caps.map((cap, i) => Math.min(cap, supplied[i], 1, data.held[i] ? 0 : 1));
  const lower = [...state.floors];
  const crossed = data.sources.filter((_, i) => lower[i] > upper[i] + 1e-12);
  const fault =
    crossed.length > 0
      ? `the floor of ${crossed.join(", ")} lies above its cap`
      : sumOf(supplied) < 1 - 1e-9
        ? `the tokens at hand fill ${(100 * sumOf(supplied)).toFixed(1)}% of D: ask for fewer`
        : sumOf(upper) < 1 - 1e-9
          ? `the caps leave room for ${(100 * sumOf(upper)).toFixed(1)}% of the tokens: raise one`
          : sumOf(lower) > 1 + 1e-9
            ? "the floors sum to more than all tokens"
            : null;
  return { lower, upper: upper.map((value, i) => Math.max(value, lower[i])), supplied, fault };
}

/** Both laws at a budget, with the unique tokens at hand: that of runs with the targets' own languages, and without. */
function lawsAt(data, state) {
  const unique = data.supply.available.map((tokens) => (tokens === null ? null : tokens / state.D));
  const at = (law) => {
    const terms = lawAt(law, state.N, state.D);
    return data.supply.rate === null ? terms : withSupply(terms, unique, data.supply.rate);
  };
  return { own: at(data.law), absent: data.absent === null ? null : at(data.absent.law) };
}

/** Which targets (K) have no token of their own language in p (M), where runs show that this is another regime. */
function withoutOwn(data, p) {
  return data.absent === null ? data.targets.map(() => false) : data.absent.own.map((i) => i >= 0 && p[i] < TRACE);
}

/** Losses (K) of any mixture p, by the regime that each target is in; NaN where the law gives more than the loss of an
 * untrained model, which is no prediction. */
function lossesAt(data, laws, p) {
  const there = withoutOwn(data, effective(laws.own, p).q);
  const losses = lossesOf(laws.own, p).map((loss, j) => (loss > (data.untrained[j] ?? Infinity) ? NaN : loss));
  if (!there.some(Boolean)) return losses;
  const other = lossesOf(
    laws.absent,
    p.map((value) => (value < TRACE ? 0 : value)),
  );
  return losses.map((loss, j) => (there[j] ? other[j] : loss));
}

/** The best mixture for the question, with losses, proof, warnings and the time that it took (ms). */
function answerOf(data, state) {
  const began = performance.now(),
    { fault, ...bounds } = boundsOf(data, state);
  if (fault !== null) return { fault };
  if (!(sumOf(state.weights) > 0)) return { fault: "the weights are all zero: give a target some" };
  const laws = lawsAt(data, state),
    w = sharesOf(state.weights);
  const terms = laws.absent === null ? laws.own : mixedLaws(laws.own, laws.absent, withoutOwn(data, bounds.upper));
  if (!Number.isFinite(weighed(w, lossesOf(terms, interior(bounds.lower, bounds.upper).p)))) {
    return {
      fault: "no mixture within the caps has a finite loss: allow a source that helps every target with a weight",
    };
  }
  const found = solved(terms, w, bounds.lower, bounds.upper);
  const losses = lossesAt(data, laws, found.p);
  const answer = { ...found, ...bounds, losses, objective: weighed(w, losses), ms: performance.now() - began };
  return { ...answer, warnings: warningsOf(data, state, answer) };
}

/** A candidate at the question's budget and weights: its losses, its objective, and whether it keeps the bounds. */
function judged(data, state, p, bounds) {
  const losses = lossesAt(data, lawsAt(data, state), Float64Array.from(p));
  const within =
    bounds.fault === undefined &&
    p.every((value, i) => value >= bounds.lower[i] - 1e-9 && value <= bounds.upper[i] + 1e-9);
  return { losses, objective: weighed(sharesOf(state.weights), losses), within };
}

/** What makes the numbers doubtful: budgets and ratios beyond the fitted ones, repeated tokens, absurd losses. */
function warningsOf(data, state, answer) {
  return [
    ...["N", "D"].flatMap((name) => beyondBudget(name, state[name], data.ranges[name])),
    ...beyondRatios(data, answer.p),
    ...withoutAny(data, answer.p),
    ...repeated(data, state.D, answer.p),
    ...absurd(data, answer),
  ];
}

function beyondBudget(name, value, [low, high]) {
  const factor = Math.max(value / high, low / value);
  if (factor <= 1.01) return [];
  const far = factor > 10 ? ": so far from any run that the number is a guess" : factor > 3 ? ": far outside" : "";
  return [
    `${name} lies outside of the fitted range ${sizeText(low)} to ${sizeText(high)}, by a factor of ` +
      `${rounded(factor, 3)}${far}`,
  ];
}

function beyondRatios(data, p) {
  const off = data.sources.filter((_, i) => p[i] > data.ranges.p[i][1] + 1e-3 || p[i] < data.ranges.p[i][0] - 1e-3);
  return off.length ? [`no fitted mixture has so much, or so little, of ${listed(off)}`] : [];
}

function withoutAny(data, p) {
  const off = data.targets.filter((name, j) => {
    const own = data.sources.indexOf(name);
    return own >= 0 && data.absent === null && p[own] < data.ranges.least_own[j] - 1e-3;
  });
  return off.length
    ? [`every run that tells of ${listed(off)} has more of it: with less, its loss may be another matter`]
    : [];
}

function repeated(data, D, p) {
  const often = data.sources.flatMap((name, i) => {
    const tokens = data.supply.available[i],
      epochs = tokens ? (p[i] * D) / tokens : 0;
    return epochs > 1.01 && epochs > (data.supply.seen[i] ?? 1) * 1.01 ? [`${name} ${rounded(epochs, 3)} times`] : [];
  });
  return often.length ? [`repeated more often than in the fitted runs: ${listed(often)}`] : [];
}

function absurd(data, answer) {
  const off = data.targets.filter((_, j) => Number.isNaN(answer.losses[j]));
  return off.length ? [`no prediction for ${listed(off)}: the law gives more than the loss of an untrained model`] : [];
}

/** The same question for a terminal, wherever it is asked: no project file adds to it. Null where a name holds a comma,
 * which no flag can tell from the next name. */
function commandOf(data, state) {
  if ([...data.sources, ...data.targets].some((name) => name.includes(","))) return null;
  const pairs = (names, values, wanted) =>
    names.flatMap((name, i) => (wanted(values[i], i) ? [`${name}=${values[i]}`] : [])).join(",");
  const { available, epochs } = data.supply;
  const flags = [
    ["-N", String(state.N)],
    ["-D", String(state.D)],
    ["--weights", pairs(data.targets, state.weights, () => true)],
    ["--cap", pairs(data.sources, state.caps, (cap, i) => cap < 1 && !data.held[i])],
    ["--floor", pairs(data.sources, state.floors, (floor) => floor > 0)],
    ["--available", pairs(data.sources, available, (tokens) => tokens !== null)],
    ["--max-epochs", pairs(data.sources, epochs, (most, i) => most !== null && available[i] !== null)],
  ].filter(([, value]) => value !== "");
  const words = ["shapleymix", "optimize", data.fit, ...data.flags, ...flags.flat(), "--project", "none"];
  return words.map(quoted).join(" ");
}

/** A word as a POSIX shell reads it. */
function quoted(word) {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The question with its answer and the candidates, for other programs. */
function documentOf(data, state, answer, candidates) {
  const named = (names, values) => Object.fromEntries(names.map((name, i) => [name, values[i]]));
  return {
    kind: "report/answer",
    law: data.law.name,
    fit: data.fit,
    N: state.N,
    D: state.D,
    weights: named(data.targets, state.weights),
    caps: named(data.sources, state.caps),
    floors: named(data.sources, state.floors),
    mixture: named(data.sources, [...answer.p]),
    losses: named(data.targets, [...answer.losses]),
    objective: answer.objective,
    certificate: { gap: answer.gap, lower_bound: answer.bound, price: answer.price },
    warnings: answer.warnings,
    command: commandOf(data, state),
    candidates: candidates.map(({ name, p }) => ({ name, mixture: named(data.sources, [...p]) })),
  };
}

/** A number with so many digits that count, without zeros behind them. */
function rounded(value, digits) {
  return String(Number(value.toPrecision(digits)));
}

/** Parameters or tokens as people write them: 389.8k, 1.5B. */
function sizeText(value) {
  const [scale, letter] = [
    [1e12, "T"],
    [1e9, "B"],
    [1e6, "M"],
    [1e3, "k"],
    [1, ""],
  ].find(([one]) => value >= one) ?? [1, ""];
  return `${rounded(value / scale, 4)}${letter}`;
}

/** The value of text such as 243M or 1.5e9; NaN where it is none. */
function sizeOf(text) {
  const found = /^\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([kMBGT]?)\s*$/i.exec(text);
  const scale = { "": 1, K: 1e3, M: 1e6, B: 1e9, G: 1e9, T: 1e12 };
  return found === null ? NaN : Number(found[1]) * scale[found[2].toUpperCase()];
}

/** Names with commas between, the first eight of them. */
function listed(names) {
  return names.length <= 8 ? names.join(", ") : `${names.slice(0, 8).join(", ")} and ${names.length - 8} more`;
}
