// The law at one budget: losses, slopes and curvature in the mixture p, as shapleymix/laws/terms.py has them.
//
//   power:        loss_j = floor_j + scale_j Theta_j^(-gamma_j),  Theta_j = base_j + sum_i matrix_ij q_i^s_ij
//   exponential:  loss_j = floor_j + scale_j exp(sum_i matrix_ij p_i)
//
// q are the effective ratios where tokens are repeated, else p. Legend: M sources, K targets; matrices lie row by row
// (place i * K + j of source i and target j).
"use strict";

/** Less of a language than this is none of it. */
const TRACE = 1e-6;

/** A law of the page's data, its matrices as flat arrays. */
function prepared(law) {
  const flat = (rows) => (rows === null ? null : Float64Array.from(rows.flat()));
  const sources = law.matrix.length,
    targets = law.gamma.length;
  return { ...law, sources, targets, matrix: flat(law.matrix), s: flat(law.s), unique: null, rate: 0 };
}

/** The law at N parameters and D tokens: its floor and scale are constants, a power of N, and a power of D. */
function lawAt(law, N, D) {
  const bySize = law.alpha.map((alpha) => (N / law.N) ** -alpha),
    byData = law.beta.map((beta) => (D / law.D) ** -beta);
  const terms = { ...law, floorAt: summed(law.floor, bySize, byData), scaleAt: summed(law.scale, bySize, byData) };
  return law.growth === null ? terms : { ...terms, ...grown(law, bySize, byData) };
}

/** Parts where the powers of N and D are by factors other than at the parts' own budget. */
function summed(parts, bySize, byData) {
  return parts.fixed.map((fixed, j) => fixed + parts.size[j] * bySize[j] + parts.data[j] * byData[j]);
}

/** Logarithms of growth go no further, and are of cores between these, as in shapleymix/laws/growth.py. */
const FURTHEST = 200,
  LEAST = 1e-300,
  MOST = 1e300;

/** log g: by how much own data's help has grown, as the scale fell. */
function logGrowth({ scale, growth }, bySize, byData) {
  const logOf = (core) => Math.log(Math.min(Math.max(core, LEAST), MOST));
  const larger = summed(scale, bySize, growth.fewest).map(logOf),
    there = summed(scale, bySize, byData).map(logOf);
  return growth.start.map((start, j) => {
    const found = start - growth.eta[j] * larger[j] + growth.zeta[j] * (larger[j] - there[j]);
    return Math.min(Math.max(found, -FURTHEST), FURTHEST);
  });
}

/** Theta where the help of own data has grown, so that an even mixture stays where it is. */
function grown(law, bySize, byData) {
  const { matrix, base, targets, growth } = law;
  const here = new Array(targets).fill(1),
    from = logGrowth(law, here, here);
  const own = logGrowth(law, bySize, byData).map((log, j) => Math.exp(log - from[j]));
  const every = growth.help.map((help, j) => (1 + help) / (1 + help * own[j]));
  const factor = (at) => {
    const j = at % targets;
    return every[j] * (growth.own[j] === (at - j) / targets ? own[j] : 1);
  };
  return { matrix: matrix.map((value, at) => value * factor(at)), base: base.map((value, j) => value * every[j]) };
}

/** The same where source i has a share unique[i] of D in unique tokens (null: no limit). */
function withSupply(terms, unique, rate) {
  return unique.some((share) => share !== null && share < 1) ? { ...terms, unique, rate } : terms;
}

/** The targets of `there` from another law of the same form, the others from this one. */
function mixedLaws(one, other, there) {
  if (!there.some(Boolean)) return one;
  const perTarget = (a, b) => Float64Array.from(a, (value, j) => (there[j] ? b[j] : value));
  const perPair = (a, b) =>
    a === null ? null : Float64Array.from(a, (value, at) => (there[at % one.targets] ? b[at] : value));
  return {
    ...one,
    floorAt: perTarget(one.floorAt, other.floorAt),
    scaleAt: perTarget(one.scaleAt, other.scaleAt),
    gamma: perTarget(one.gamma, other.gamma),
    base: perTarget(one.base, other.base),
    matrix: perPair(one.matrix, other.matrix),
    s: perPair(one.s, other.s),
  };
}

/** What tokens are worth that a run sees more than once: q, and its first and second derivative in p. */
function effective(terms, p) {
  const q = Float64Array.from(p),
    slope = new Float64Array(p.length).fill(1),
    bend = new Float64Array(p.length);
  if (terms.unique === null) return { q, slope, bend };
  terms.unique.forEach((unique, i) => {
    if (unique === null || p[i] <= unique) return;
    const share = Math.max(unique, 1e-300),
      again = p[i] / share - 1,
      rate = terms.rate;
    const worth = rate * again > 1e-12 ? -Math.expm1(-rate * again) / rate : again;
    q[i] = unique + share * worth;
    slope[i] = Math.exp(-rate * again);
    bend[i] = (-rate * slope[i]) / share;
  });
  return { q, slope, bend };
}

/** The inner quantity (K) of each target: Theta, or the exponential's sum. */
function innerOf(terms, q) {
  const { sources, targets, matrix, s } = terms;
  const z = Float64Array.from(terms.base);
  for (let i = 0, at = 0; i < sources; i++) {
    for (let j = 0; j < targets; j++, at++) z[j] += matrix[at] * (s === null ? q[i] : q[i] ** s[at]);
  }
  return z;
}

/** Losses (K) in nats; infinite where Theta is zero. */
function lossesOf(terms, p) {
  const z = innerOf(terms, effective(terms, p).q);
  const removable = terms.form === "power" ? (j) => Math.max(z[j], 0) ** -terms.gamma[j] : (j) => Math.exp(z[j]);
  return Float64Array.from(
    z,
    (_, j) => terms.floorAt[j] + (terms.scaleAt[j] === 0 ? 0 : terms.scaleAt[j] * removable(j)),
  );
}

/** sum_j w_j loss_j; a target of weight zero never counts. */
function weighed(w, losses) {
  return losses.reduce((total, loss, j) => total + (w[j] === 0 ? 0 : w[j] * loss), 0);
}

/** Derivatives of the outer functions by their inner quantity, times the weights: first and second (K), and `level`,
 * the size of what the mixture can change. */
function outer(terms, w, z) {
  const first = new Float64Array(z.length),
    second = new Float64Array(z.length);
  let level = 0;
  for (let j = 0; j < z.length; j++) {
    if (w[j] === 0) continue;
    const gamma = terms.gamma[j],
      scale = w[j] * terms.scaleAt[j];
    if (terms.form === "power") {
      const pull = scale * gamma * z[j] ** -gamma;
      first[j] = -pull / z[j];
      second[j] = (pull * (gamma + 1)) / (z[j] * z[j]);
      level += pull;
    } else {
      first[j] = second[j] = scale * Math.exp(z[j]);
      level += first[j];
    }
  }
  return { first, second, level };
}

/** Gradient (M) of the weighted losses, and what makes the Hessian: inner diag(second) inner' + diag(diagonal). */
function expansion(terms, w, p) {
  const { sources: M, targets: K, matrix, s } = terms;
  const { q, slope, bend } = effective(terms, p);
  const { first, second, level } = outer(terms, w, innerOf(terms, q));
  const gradient = new Float64Array(M),
    diagonal = new Float64Array(M),
    inner = new Float64Array(M * K);
  for (let i = 0, at = 0; i < M; i++) {
    for (let j = 0; j < K; j++, at++) {
      if (first[j] === 0 || matrix[at] === 0) continue;
      const power = s === null ? 1 : s[at];
      const steep = power === 1 ? matrix[at] : q[i] > 0 ? power * matrix[at] * q[i] ** (power - 1) : Infinity;
      inner[at] = steep * slope[i];
      gradient[i] += first[j] * inner[at];
      diagonal[i] += first[j] * steep * bend[i];
      if (power < 1) diagonal[i] += (first[j] * steep * (power - 1) * slope[i] * slope[i]) / q[i];
    }
  }
  return { gradient, diagonal, inner, second, level };
}
