// The best mixture under bounds of every kind, from a law's convex pieces, and the proof that it is the best.
//
// Pieces are those of shapleymix/laws/pieces.py, whose text has the equations; M sources are rows i, K targets columns j.
// Bounds: lower, upper, `equal` and `rows` [weights, limit], a `ball` {kind, center, radius}, an `anchor` that pulls by `kl`.
"use strict";

const [NARROW, NONE, TINY, RIDGE, TOLERANCE, ITERATIONS, STALE, TO_THE_WALL, HALVINGS] = [1e-13, 1e-300, 1e-150, 1e-14, 1e-12, 100, 8, 0.995, 8];

const sum = (values) => values.reduce((total, value) => total + value, 0);
const dot = (one, other) => one.reduce((total, value, i) => total + value * other[i], 0);
const ahead = (from, step, way) => from.map((value, i) => value + step * way[i]);
const logs = (p, q) => p.map((value, i) => (value > 0 && q[i] > 0 ? Math.log(value / q[i]) : 0)); // 0 where closed
const divergence = (p, q) => dot(p, logs(p, q));
const addOuter = (matrix, row, by) => row.forEach((value, i) => value && matrix[i].forEach((_, k) => (matrix[i][k] += by * value * row[k])));

/** The mean or the largest of weighed losses (K). */
function objectiveOf(losses, w, worst) {
  const weighed = w.map((value, j) => value * losses[j]).filter((_, j) => w[j] > 0);
  return worst ? Math.max(...weighed) : sum(weighed);
}

/** What a ratio is worth in fresh tokens, with its first and second derivative. */
function effective(p, unique, rate) {
  if (unique === null || p <= unique) return [p, 1, 0];
  const [u, again] = [Math.max(unique, NONE), p / Math.max(unique, NONE) - 1],
    [slope, worth] = [Math.exp(-rate * again), rate * again > 1e-12 ? -Math.expm1(-rate * again) / rate : again];
  return [u + u * worth, slope, (-rate * slope) / u];
}

/** Losses (K) at ratios p, their slopes (M, K), and their Hessian weighed by targets, the lower triangle of (n, n). */
function evaluate(law, p) {
  const K = law.floor.length,
    [slopes, bends, push, bow] = [0, 1, 2, 3].map(() => Array.from(p, () => new Float64Array(K))),
    [losses, theta, first, second] = [law.floor, law.base ?? K, K, K].map((of) => new Float64Array(of));
  p.forEach((ratio, i) => {
    const beyond = law.harm && law.unique[i] !== null ? Math.max(ratio - law.unique[i], 0) : 0;
    const [q, once, twice] = effective(ratio, law.unique ? law.unique[i] : null, law.rate ? law.rate[i] : 0);
    for (let j = 0; j < K; j++) {
      const [phi, s, harm] = [law.phi[i][j], law.s ? law.s[i][j] : 1, beyond > 0 ? law.harm[i][j] : 0];
      losses[j] += harm * beyond ** 3;
      [push[i][j], bow[i][j]] = [3 * harm * beyond ** 2, 6 * harm * beyond];
      if (phi === 0) continue;
      const part = phi * q ** s, slope = s === 1 ? phi : (s * part) / q;
      [theta[j], slopes[i][j]] = [theta[j] + part, slope * once];
      bends[i][j] = slope * twice + (s === 1 ? 0 : (((s - 1) * slope) / q) * once * once);
    }
  });
  for (let j = 0; j < K; j++) {
    const [power, gamma] = [law.form === "power", law.gamma[j]],
      rest = law.scale[j] * (power ? theta[j] ** -gamma : Math.exp(theta[j]));
    losses[j] += rest;
    [first[j], second[j]] = power ? [-1 / theta[j], (gamma + 1) / theta[j] ** 2].map((one) => gamma * rest * one) : [rest, rest];
  }
  const steep = slopes.map((row, i) => row.map((slope, j) => (slope ? first[j] * slope : 0) + push[i][j]));
  const hessian = (w, n) => {
    const found = Array.from({ length: n }, (_, i) => new Float64Array(i + 1));
    for (const j of [...w.keys()].filter((j) => w[j] > 0)) {
      addOuter(found, slopes.map((row) => row[j]), w[j] * second[j]);
      bends.forEach((row, i) => (found[i][i] += w[j] * ((row[j] ? first[j] * row[j] : 0) + bow[i][j])));
    }
    return found;
  };
  return { losses, steep, hessian };
}

/** What solves A x = b, from the lower triangle of a positive definite matrix: Cholesky with a ridge. */
function factorised(A) {
  const L = A.map((row) => Float64Array.from(row));
  for (let i = 0; i < L.length; i++)
    for (let j = 0; j <= i; j++) {
      const left = A[i][j] - dot(L[i].subarray(0, j), L[j]);
      L[i][j] = i === j ? Math.sqrt(Math.max(left, 1e-15 * A[i][i], NONE)) : left / L[j][j];
    }
  return (b) => {
    const x = Float64Array.from(b);
    for (let i = 0; i < L.length; i++) x[i] = (x[i] - dot(L[i].subarray(0, i), x)) / L[i][i];
    for (let i = L.length - 1; i >= 0; i--)
      for (let k = i; k >= 0; k--) x[k] = k === i ? x[k] / L[i][i] : x[k] - L[i][k] * x[i];
    return x;
  };
}

/** Why no mixture is within the bounds on single ratios; empty where one is. */
function infeasible(lower, upper, names) {
  const crossed = [...lower.keys()].filter((i) => lower[i] > upper[i] + 1e-12);
  if (crossed.length) return `the cap of ${crossed.map((i) => names[i]).join(", ")} is below its floor`;
  if (sum(upper) < 1 - 1e-9) return `the caps leave room for ${(100 * sum(upper)).toFixed(1)}% of the tokens: raise one`;
  return sum(lower) > 1 + 1e-9 ? `the floors ask for ${(100 * sum(lower)).toFixed(1)}% of the tokens` : "";
}

/** A goal as the method of shapleymix/mixing/engine.py takes it, and its surroundings at an iterate: unknowns x are the
 * ratios, v of an L1 ball (v >= p - center, v >= 0, in all at most half of the radius) and t of the worst case. Sides, at
 * most 0 within, are those of targets and v first, which are taken into the matrix, then those that tie ratios. */
function programOf(law, w, { lower, upper, equal, rows, ball, kl, anchor, worst }) {
  const M = lower.length,
    rest = Math.max(1 - sum(lower), 0),
    high = upper.map((cap, i) => Math.max(Math.min(cap, lower[i] + rest), lower[i])),
    share = Math.min(rest / Math.max(sum(high) - sum(lower), NONE), 1),
    free = high.map((cap, i) => +(cap - lower[i] > NARROW && share > NARROW && share < 1 - NARROW)),
    [K, L] = [worst ? w.length : 0, ball?.kind === "l1" ? M : 0],
    n = M + L + (worst ? 1 : 0),
    rowOf = (at) => Float64Array.from({ length: n }, (_, i) => at(i) * (free[i] ?? 1)),
    [E, A] = [equal, rows].map((each) => each.map(([row]) => rowOf((i) => row[i] ?? 0))),
    [over, above] = [1, 0].map((own) => high.slice(0, L).map((_, i) => rowOf((a) => (a === i ? own : a === M + i ? -1 : 0)))),
    allV = rowOf((i) => +(i >= M && i < M + L)),
    inside = lower.map((low, i) => low + share * (high[i] - low)),
    walls = (x) => [...free.map((one, i) => (one ? x[i] - lower[i] : 1)), ...free.map((one, i) => (one ? high[i] - x[i] : 1))];

  function look({ x, dual, price }) {
    const p = x.slice(0, M).map((value) => Math.max(value, TINY)),
      at = evaluate(law, p),
      shares = w.map((value, j) => (worst ? value * dual[2 * M + j] : value)),
      matrix = at.hessian(shares, n),
      pull = kl > 0 ? logs(p, anchor).map((value) => kl * (value + 1)) : p.map(() => 0),
      slope = at.steep.map((row) => sum(row.map((value, j) => (shares[j] > 0 ? shares[j] * value : 0)))),
      level = Math.max(sum(ahead(slope, 1, pull).map((value, i) => Math.abs(value) * p[i])) + kl, 1e-60),
      tilt = rowOf((i) => (i < M ? slope[i] + pull[i] : worst && i === n - 1 ? 1 - sum(dual.slice(2 * M, 2 * M + K)) : 0)),
      [curved, near] = [ball && !L, ball ? logs(p, ball.center) : []];
    const sides = w.slice(0, K).map((value, j) => [value * at.losses[j] - x[n - 1], rowOf((i) => (i < M ? value * at.steep[i][j] : i === n - 1 ? -1 : 0))]);
    over.forEach((row, i) => sides.push([x[i] - x[M + i] - ball.center[i], row]));
    above.forEach((row, i) => sides.push([-x[M + i], row]));
    rows.forEach(([row, limit], g) => sides.push([dot(row, x) - limit, A[g]]));
    if (ball) sides.push(curved ? [divergence(p, ball.center) - ball.radius, rowOf((i) => (i < M ? near[i] + 1 : 0))] : [dot(allV, x) - ball.radius / 2, allV]);
    for (const [row, by] of [...sides.map(([, row], g) => [row, dual[2 * M + g]]).slice(K), ...E.map((row, e) => [row, price[e]])]) row.forEach((value, i) => (tilt[i] += by * value));
    for (let i = 0; i < M; i++) {
      matrix[i][i] += (kl + (curved ? dual[dual.length - 1] : 0)) / p[i];
      if (!free[i]) for (let k = 0; k < M; k++) matrix[Math.max(i, k)][Math.min(i, k)] = 0;
    }
    const lean = tilt.map((value, i) => value + (i < M ? dual[M + i] - dual[i] : 0));
    return { matrix, sides, tilt, lean, level, lacking: equal.map(([row, value]) => dot(row, x) - value) };
  }
  return { M, K, n, E, free, inside, walls, look, hard: K + 2 * L, count: K + 2 * L + rows.length + (ball ? 1 : 0) };
}

/** What weak duality leaves open at an iterate, or what sides and equalities do where that is more, relative. */
function openOf({ M, K, n, free }, { x, slack, dual }, { sides, tilt, level, lacking }) {
  const best = K ? Math.max(...sides.slice(0, K).map(([value]) => value)) : 0,
    beyond = sides.map(([value], g) => (g < K ? value - best : value));
  let gap = sum(beyond.map((value, g) => dual[2 * M + g] * Math.max(-value, 0)));
  for (let i = 0; i < M; i++) gap += Math.max(tilt[i] * slack[i], -tilt[i] * slack[M + i]) * free[i];
  for (let i = M; i < n; i++) gap += Math.abs(tilt[i]) * (K && i === n - 1 ? level : Math.abs(x[i]));
  return Math.max(gap / level, ...lacking.map(Math.abs), ...beyond);
}

/** By a target for each: changes that make products of slacks and multipliers less by it; one factorisation for all. */
function newton({ M, E, free, hard }, { slack, dual }, { matrix, sides, lean, level, lacking }) {
  const ratio = dual.map((value, c) => (c < 2 * M && !free[c % M] ? 0 : value / slack[c])),
    open = sides.map(([value], g) => slack[2 * M + g] + value),
    [taken, tying] = [sides.slice(0, hard).map(([, row]) => row), sides.slice(hard).map(([, row]) => row)],
    ties = [...E, ...tying],
    spare = ties.map((_, c) => (c < E.length ? 0 : 1 / ratio[2 * M + hard + c - E.length])),
    lent = spare.map((value) => Math.min(level, 0.5 / Math.max(value, NONE)));
  matrix.forEach((row, i) => (row[i] += RIDGE * row[i] + 1e-200 + (i < M ? ratio[i] + ratio[M + i] + 1 - free[i] : 0)));
  const whole = matrix.map((row) => Float64Array.from(row));
  taken.forEach((row, g) => addOuter(whole, row, ratio[2 * M + g]));
  ties.forEach((row, c) => addOuter(whole, row, lent[c])); // so that directions which they alone determine are determined
  const solve = factorised(whole),
    along = ties.map(solve),
    total = ties.map((row, c) => Float64Array.from({ length: c + 1 }, (_, k) => dot(row, along[k])));
  total.forEach((row, c) => (row[c] += RIDGE * row[c] + NONE + spare[c] / (1 - lent[c] * spare[c])));
  const shift = factorised(total);
  return (target) => {
    const back = slack.map((value, c) => -target[c] / value + (c < 2 * M ? 0 : ratio[c] * open[c - 2 * M])),
      lack = [...lacking.map((value) => -value), ...tying.map((_, g) => target[2 * M + hard + g] / dual[2 * M + hard + g] - open[hard + g])];
    let right = lean.map((value, i) => -value + (i < M ? back[i] - back[M + i] : 0));
    taken.forEach((row, g) => (right = ahead(right, -back[2 * M + g], row)));
    ties.forEach((row, c) => (right = ahead(right, lent[c] * lack[c], row)));
    const raw = solve(right.map((value, i) => value * (free[i] ?? 1))),
      y = shift(ties.map((row, c) => dot(row, raw) - lack[c])),
      x = along.reduce((moved, column, c) => ahead(moved, -y[c], column), raw),
      tied = y.map((value, c) => value / (1 - lent[c] * spare[c])),
      way = slack.map((_, c) => (c < M ? x[c] : c < 2 * M ? -x[c - M] : -open[c - 2 * M] - dot(sides[c - 2 * M][1], x))),
      turn = slack.map((value, c) => (c < 2 * M + hard ? -target[c] / value - ratio[c] * way[c] : tied[E.length + c - 2 * M - hard]));
    return { x, slack: way, dual: turn, price: tied.slice(0, E.length) };
  };
}

/** The mixture of least objective with its multipliers, by Mehrotra's predictor and corrector. */
function minimise(goal, ball) {
  const { M, K, n, E, free, inside, walls, look, hard, count } = goal,
    x = Float64Array.from({ length: n }, (_, i) => (i < M ? inside[i] : i < M + (hard - K) / 2 ? Math.max(inside[i - M] - ball.center[i - M], 0) + 0.1 / M : 0)),
    on = [...free, ...free, ...new Array(count).fill(1)],
    roomy = (x, slack) => [...walls(x).map((value) => Math.max(value, NONE)), ...slack];
  let here = { x, slack: on, dual: on.map((_, c) => (c >= 2 * M && c < 2 * M + K ? 1 / K : NONE)), price: E.map(() => 0) },
    at = look(here);
  if (K) x[n - 1] = Math.max(...at.sides.slice(0, K).map(([value]) => value)) + 0.1 * at.level;
  at = look(here);
  const [moving, slopes] = [Math.max(sum(free), 1), at.tilt.slice(0, M).map((slope, i) => slope * free[i])],
    spread = sum(slopes.map((slope, i) => free[i] * Math.abs(slope - sum(slopes) / moving) * inside[i])),
    center = K ? (0.1 * at.level) / K : Math.max(spread, 1e-6 * at.level) / moving,
    far = Math.max(...at.sides.map(([value]) => Math.abs(value)), 0.01);
  here.slack = roomy(x, at.sides.map(([value]) => Math.max(-value, 0.01 * far)));
  here.dual = here.slack.map((value, c) => (on[c] ? center / value : NONE));
  at = look(here);
  const reach = (values, change) => Math.min(1, ...values.map((value, c) => (on[c] && change[c] < 0 ? (-TO_THE_WALL * value) / change[c] : 1)));
  let [best, least, stale] = [here, Infinity, 0];
  for (let turns = 0; turns <= ITERATIONS; turns++) {
    const gap = openOf(goal, here, at);
    stale = gap < least ? 0 : stale + 1;
    if (gap < least) [best, least] = [here, gap];
    if (least <= TOLERANCE || (stale >= STALE && least < 1e-4) || Number.isNaN(gap)) break;
    const wall = free.map((one, i) => one * (here.dual[i] / here.slack[i] + here.dual[M + i] / here.slack[M + i])),
      direction = newton(goal, here, at),
      product = here.slack.map((value, c) => value * here.dual[c] * on[c]),
      now = sum(product),
      first = direction(product),
      error = first.slack.map((value, c) => value * first.dual[c] * on[c]),
      most = Math.min(reach(here.slack, first.slack), reach(here.dual, first.dual)),
      left = Math.min(Math.max(1 - most + (most ** 2 * sum(error)) / Math.max(now, NONE), 0), 1),
      unsettled = (count ? 0.1 : 1e-3) * sum(at.lean.map((value, i) => Math.abs(value * here.x[i]))),
      target = Math.min(Math.max(left ** 3 * now, 0.3 * TOLERANCE * at.level, unsettled), now) / Math.max(sum(on), 1),
      change = direction(product.map((value, c) => (value + most ** 2 * error[c] - target) * on[c])),
      move = change.x.slice(0, M),
      bent = move.map((_, i) => sum(move.map((value, k) => at.matrix[Math.max(i, k)][Math.min(i, k)] * value)));
    let [step, up, there, found] = [reach(here.slack, change.slack), reach(here.dual, change.dual)];
    if (count) step = up = Math.min(step, up);
    for (let halvings = 0; halvings <= HALVINGS; halvings++, step /= 2, up /= 2) {
      const next = ahead(here.x, step, change.x);
      there = { x: next, slack: roomy(next, ahead(here.slack, step, change.slack).slice(2 * M)), dual: ahead(here.dual, up, change.dual), price: ahead(here.price, up, change.price) };
      found = look(there);
      const expected = move.map((value, i) => (1 - up) * at.lean[i] + (step - up) * (bent[i] - wall[i] * value)),
        beyond = dot(move, found.lean.slice(0, M).map((value, i) => value - expected[i]));
      if (!(beyond > (stale < 3 ? 1 : 0.05) * dot(bent, move) && dot(bent, move) > TOLERANCE * at.level)) break;
    }
    found.sides.forEach(([value], g) => -value > 0.1 * there.slack[2 * M + g] && (there.slack[2 * M + g] = -value));
    [here, at] = [there, found];
  }
  return { p: [...best.x.slice(0, M)], price: best.price, dual: best.dual.slice(2 * M), outside: least };
}

/** The optimum, and by how much any mixture within the bounds can be better at most: weak duality, with a sort. */
function solve(law, w, bounds) {
  const { lower, upper, equal, rows, ball, kl, anchor, worst } = bounds,
    goal = programOf(law, w, bounds),
    { p, price, dual, outside } = minimise(goal, ball),
    { losses, steep } = evaluate(law, p),
    all = sum(dual.slice(0, goal.K)),
    shares = w.map((value, j) => (worst ? (value * dual[j]) / all : value)),
    objective = objectiveOf(losses, w, worst),
    ties = [...equal.map(([row, limit], e) => [row, limit, price[e]]), ...rows.map(([row, limit], g) => [row, limit, dual[goal.hard + g]])];
  if (ball?.kind === "l1") {
    const over = dual.slice(goal.K, goal.K + p.length),
      row = over.map((value) => value - Math.max(...over) / 2);
    ties.push([row, dot(row, ball.center) + ball.radius * Math.max(...row.map(Math.abs)), 1]);
  } else if (ball) {
    const row = logs(p, ball.center).map((value) => value + 1);
    ties.push([row, ball.radius - divergence(p, ball.center) + dot(row, p), dual[dual.length - 1]]);
  }
  const leaning = [...ties, ...(kl > 0 ? [[logs(p, anchor), 0, kl]] : [])],
    slope = leaning.reduce((left, [row, , by]) => ahead(left, by, row), p.map((_, i) => sum(shares.map((share, j) => (share > 0 ? share * steep[i][j] : 0)))));
  let [gap, rest] = [objective - sum(shares.map((share, j) => (share > 0 ? share * losses[j] : 0))), 1 - sum(lower)];
  for (const i of [...slope.keys()].sort((a, b) => slope[a] - slope[b])) {
    const taken = Math.min(Math.max(rest, 0), upper[i] - lower[i]);
    if (p[i] !== lower[i] + taken) gap += slope[i] * (p[i] - lower[i] - taken);
    rest -= taken;
  }
  gap -= sum(ties.map(([row, limit, by]) => by * (dot(row, p) - limit)));
  return { p, losses, objective, gap: Number.isNaN(gap) ? Infinity : Math.max(gap, 0), outside };
}
