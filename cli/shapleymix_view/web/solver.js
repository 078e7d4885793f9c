// The best mixture under floors and caps, from a law's convex pieces, and the proof that it is the best.
//
// Pieces are those of shapleymix/laws/pieces.py: loss_j = floor_j + scale_j Theta_j^-gamma_j, or of exponential form
// floor_j + scale_j exp(Theta_j), with Theta_j = base_j + sum_i phi_ij q_i^s_ij. Where tokens are repeated, q are
// effective ratios (Muennighoff et al. 2023, eq. 5), and harm_ij (p_i - unique_i)^3 is added beyond one epoch. M sources
// are rows i, K targets are columns j.
"use strict";

const NARROW = 1e-12;
/** The barrier's weight falls from the first to the last, relative to the objective. */
const [FIRST, LAST, FALL] = [0.1, 1e-14, 0.15];

const sum = (values) => values.reduce((total, value) => total + value, 0);
const dot = (one, other) => one.reduce((total, value, i) => total + value * other[i], 0);

/** What a ratio is worth in fresh tokens, with its first and second derivative. */
function effective(p, unique, rate) {
  if (unique === null || p <= unique) return [p, 1, 0];
  const u = Math.max(unique, 1e-300),
    again = p / u - 1,
    slope = Math.exp(-rate * again);
  const worth = rate * again > 1e-12 ? -Math.expm1(-rate * again) / rate : again;
  return [u + u * worth, slope, (-rate * slope) / u];
}

/** Ratios of all sources by those of the parts that move: each a source, or those of a parent whose shares are kept. */
function spread(parts, z, size) {
  const p = new Array(size).fill(0);
  parts.forEach((part, g) => part.forEach(([i, share]) => (p[i] = share * z[g])));
  return p;
}

/** Losses (K), and with weights w the objective, its gradient by the parts z and the parts of its Hessian. */
function evaluate(law, z, w) {
  const K = law.floor.length,
    p = spread(law.parts, z, law.phi.length),
    theta = law.base ? Float64Array.from(law.base) : new Float64Array(K);
  const [slopes, bends] = [p, p].map((rows) => Array.from(rows, () => new Float64Array(K)));
  const [harm, push, bow] = [K, p.length, p.length].map((size) => new Float64Array(size));
  p.forEach((ratio, i) => {
    const beyond = law.harm && law.unique[i] !== null ? Math.max(ratio - law.unique[i], 0) : 0;
    for (let j = 0; beyond > 0 && j < K; j++) {
      harm[j] += law.harm[i][j] * beyond ** 3;
      push[i] += 3 * w[j] * law.harm[i][j] * beyond ** 2;
      bow[i] += 6 * w[j] * law.harm[i][j] * beyond;
    }
    const [q, once, twice] = effective(ratio, law.unique ? law.unique[i] : null, law.rate ? law.rate[i] : 0);
    for (let j = 0; j < K; j++) {
      const phi = law.phi[i][j],
        s = law.s ? law.s[i][j] : 1;
      if (phi === 0) continue;
      const part = phi * q ** s,
        slope = s === 1 ? phi : (s * part) / q;
      theta[j] += part;
      slopes[i][j] = slope * once;
      bends[i][j] = slope * twice + (s === 1 ? 0 : (((s - 1) * slope) / q) * once * once);
    }
  });
  const power = law.form === "power",
    [losses, first, second] = [K, K, K].map((size) => new Float64Array(size));
  for (let j = 0; j < K; j++) {
    const gamma = law.gamma[j],
      rest = law.scale[j] * (power ? theta[j] ** -gamma : Math.exp(theta[j]));
    losses[j] = law.floor[j] + rest + harm[j];
    if (!(w[j] > 0)) continue;
    first[j] = w[j] * (power ? (-gamma * rest) / theta[j] : rest);
    second[j] = w[j] * (power ? (gamma * (gamma + 1) * rest) / theta[j] ** 2 : rest);
  }
  const along = (part, of, power) => sum(part.map(([i, share]) => share ** power * of(i)));
  const [inner, bend] = [slopes, bends].map((rows, k) =>
    law.parts.map((part) => first.map((_, j) => along(part, (i) => rows[i][j], k + 1))),
  );
  const counted = [...w.keys()].filter((j) => w[j] > 0);
  const weigh = (rows, i) => counted.reduce((total, j) => total + (first[j] === 0 ? 0 : rows[i][j] * first[j]), 0);
  const objective = counted.reduce((total, j) => total + w[j] * losses[j], 0),
    gradient = Float64Array.from(law.parts, (part, g) => weigh(inner, g) + along(part, (i) => push[i], 1)),
    diagonal = Float64Array.from(law.parts, (part, g) => weigh(bend, g) + along(part, (i) => bow[i], 2));
  return { losses, inner, second, counted, objective, gradient, diagonal };
}

/** The lower triangle of the objective's Hessian in the sources that can move. */
function lowerHessian({ inner, second, diagonal, counted }, free) {
  return free.map((i, a) => {
    const row = new Float64Array(a + 1),
      scaled = inner[i].map((value, j) => value * second[j]);
    for (let b = 0; b <= a; b++) for (const j of counted) row[b] += scaled[j] * inner[free[b]][j];
    row[a] += diagonal[i];
    return row;
  });
}

/** x with A x = b for each of the right sides, A the lower triangle of a positive definite matrix: Cholesky with a ridge. */
function solveLinear(A, sides) {
  const n = A.length,
    L = A.map((row) => Float64Array.from(row));
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let left = A[i][j];
      for (let k = 0; k < j; k++) left -= L[i][k] * L[j][k];
      L[i][j] = i === j ? Math.sqrt(Math.max(left, 1e-15 * A[i][i])) : left / L[j][j];
    }
  }
  return sides.map((b) => {
    const x = Float64Array.from(b);
    for (let i = 0; i < n; i++) x[i] = (x[i] - dot(L[i].subarray(0, i), x)) / L[i][i];
    for (let i = n - 1; i >= 0; i--) {
      x[i] /= L[i][i];
      for (let k = 0; k < i; k++) x[k] -= L[i][k] * x[i];
    }
    return x;
  });
}

/** Why no mixture is within the bounds; empty where one is. */
function infeasible(lower, upper, names) {
  const crossed = [...lower.keys()].filter((i) => lower[i] > upper[i] + NARROW);
  if (crossed.length) return `the cap of ${crossed.map((i) => names[i]).join(", ")} is below its floor`;
  if (sum(upper) < 1 - 1e-9) return `the caps leave room for ${(100 * sum(upper)).toFixed(1)}% of the tokens: raise one`;
  return sum(lower) > 1 + 1e-9 ? `the floors ask for ${(100 * sum(lower)).toFixed(1)}% of the tokens` : "";
}

/** The mixture of least objective, by damped Newton steps on a barrier from the same share of each source's room. */
function minimise(law, w, lower, upper) {
  const rest = Math.max(1 - sum(lower), 0),
    high = upper.map((cap, i) => Math.max(Math.min(cap, lower[i] + rest), lower[i])),
    room = high.map((cap, i) => cap - lower[i]),
    share = Math.min(rest / Math.max(sum(room), 1e-300), 1),
    p = lower.map((low, i) => low + share * room[i]),
    free = [...p.keys()].filter((i) => share > NARROW && share < 1 - NARROW && room[i] > NARROW);
  if (free.length < 2) return p;
  let at = evaluate(law, p, w);
  const size = Math.max(Math.abs(dot(at.gradient, room)), 1e-12 * Math.abs(at.objective), 1e-200) / free.length;
  const slopeOf = (now, t) =>
    free.map((i) => now.gradient[i] - t / (p[i] - lower[i]) + t / Math.max(high[i] - p[i], 1e-300));
  for (let t = FIRST * size; t > LAST * size; t *= FALL) {
    for (let tries = 0; tries < 40; tries++) {
      const slope = slopeOf(at, t),
        ones = free.map(() => 1);
      const hessian = lowerHessian(at, free);
      const bent = (i) => t / (p[i] - lower[i]) ** 2 + t / Math.max(high[i] - p[i], 1e-300) ** 2;
      free.forEach((i, a) => (hessian[a][a] += bent(i)));
      const [down, along] = solveLinear(hessian, [slope, ones]),
        price = sum(down) / sum(along);
      const move = down.map((value, a) => price * along[a] - value),
        fall = -dot(slope, move);
      if (!(fall > 1e-3 * t)) break;
      const limits = free.map((i, a) => ((move[a] < 0 ? lower[i] : high[i]) - p[i]) / move[a]);
      let step = Math.min(1, 0.99 * Math.min(...limits));
      const from = p.slice();
      for (let halvings = 0; halvings < 40; halvings++, step /= 2) {
        free.forEach((i, a) => (p[i] = from[i] + step * move[a]));
        at = evaluate(law, p, w);
        if (dot(slopeOf(at, t), move) < 0.5 * fall) break; // not too far beyond the least value along the line
      }
    }
  }
  return p;
}

/** By how much any mixture within the bounds can be better at most: the Frank-Wolfe bound. */
function gapOf(law, w, lower, upper, p) {
  const { gradient } = evaluate(law, p, w),
    best = Float64Array.from(lower);
  let rest = 1 - sum(lower);
  for (const i of [...gradient.keys()].sort((a, b) => gradient[a] - gradient[b])) {
    const taken = Math.min(Math.max(rest, 0), upper[i] - lower[i]);
    best[i] += taken;
    rest -= taken;
  }
  const gap = gradient.reduce((total, slope, i) => (p[i] === best[i] ? total : total + slope * (p[i] - best[i])), 0);
  return Number.isNaN(gap) ? Infinity : Math.max(gap, 0);
}

/** The optimum with its proof; ratios next to a bound are at it wherever that costs no proof. */
function solve(law, w, lower, upper) {
  const found = minimise(law, w, lower, upper);
  const near = found.map((one, i) => (one - lower[i] < 1e-8 ? lower[i] : upper[i] - one < 1e-8 ? upper[i] : one));
  const between = near.map((value, i) => (value > lower[i] && value < upper[i] ? value : 0)),
    missing = 1 - sum(near);
  const snapped = sum(between) > 0 ? near.map((value, i) => value + (missing * between[i]) / sum(between)) : near;
  const [one, other] = [snapped, found].map((p) => ({ p, gap: gapOf(law, w, lower, upper, p) }));
  const slack = 1e-9 * Math.abs(evaluate(law, found, w).objective),
    chosen = one.gap <= Math.max(other.gap, slack) ? one : other;
  return { ...chosen, ...evaluate(law, chosen.p, w) };
}
