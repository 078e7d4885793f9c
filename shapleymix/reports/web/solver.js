// The best mixture under floors and caps, and the proof that it is: minimise sum_j w_j loss_j(p) over sum_i p_i = 1,
// lower <= p <= upper. A primal-dual barrier method with Mehrotra's predictor and corrector, as in
// shapleymix/mixing/engine/barrier.py; the proof is the Frank-Wolfe bound of shapleymix/mixing/certificate.py, computed
// from the law alone, whoever made the mixture.
"use strict";

const NARROW = 1e-13,
  SNAP = 1e-11,
  TO_THE_WALL = 0.995,
  OVERSHOOT = 0.9;
/** Shares of what the mixture can change: a gap at which to stop, and one at which to stop as soon as it stays. */
const TIGHT = 1e-15,
  ENOUGH = 1e-12;
/** Steps in all, and steps without a smaller gap: where tokens begin to repeat, curvature jumps and steps are short. */
const MOST_STEPS = 200,
  PATIENCE = 40;
/** After so many steps without a smaller gap they go calmly: towards a centre that falls slowly, and never too far. */
const RESTLESS = 5,
  SLOWLY = 0.2,
  CALMLY = 0.1;
/** Where a tangent may touch the objective in place of a ratio of zero, at which slopes can be infinite. */
const EDGES = [0, 1e-150, 1e-14, 1e-12, 1e-10];

const sumOf = (values) => values.reduce((total, value) => total + value, 0);

/** The lower triangle of Cholesky's factor of a positive definite matrix (n, n), in place; false where it is none. */
function factorised(A, n) {
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let left = A[i * n + j];
      for (let k = 0, a = i * n, b = j * n; k < j; k++) left -= A[a + k] * A[b + k];
      if (i === j && !(left > 0)) return false;
      A[i * n + j] = i === j ? Math.sqrt(left) : left / A[j * n + j];
    }
  }
  return true;
}

/** x with L L' x = right. */
function backSolved(L, n, right) {
  const x = Float64Array.from(right);
  for (let i = 0; i < n; i++) {
    for (let k = 0; k < i; k++) x[i] -= L[i * n + k] * x[k];
    x[i] /= L[i * n + i];
  }
  for (let i = n - 1; i >= 0; i--) {
    for (let k = i + 1; k < n; k++) x[i] -= L[k * n + i] * x[k];
    x[i] /= L[i * n + i];
  }
  return x;
}

/** The Hessian (n, n) of the sources `free` with `extra` (n) on its diagonal, factorised; a ridge where rounding asks
 * for one. */
function factorOf(local, free, extra, targets) {
  const n = free.length,
    H = new Float64Array(n * n);
  for (let a = 0; a < n; a++) {
    for (let b = 0; b <= a; b++) {
      let sum = 0;
      for (let j = 0, i = free[a] * targets, k = free[b] * targets; j < targets; j++) {
        sum += local.inner[i + j] * local.second[j] * local.inner[k + j];
      }
      H[a * n + b] = sum;
    }
    H[a * n + a] += local.diagonal[free[a]] + extra[a];
  }
  for (let ridge = 1e-14; ridge < 1; ridge *= 100) {
    const L = Float64Array.from(H);
    if (factorised(L, n)) return L;
    for (let a = 0; a < n; a++) H[a * n + a] *= 1 + ridge;
  }
  return null;
}

/** Moves (n) of zero sum with H move = pull + shift. */
function directions(L, n) {
  const along = backSolved(L, n, new Float64Array(n).fill(1)),
    total = sumOf(along);
  return (pull) => {
    const raw = backSolved(L, n, pull),
      shift = -sumOf(raw) / total;
    return { move: raw.map((value, i) => value + shift * along[i]), shift };
  };
}

/** The step, at most 1, that goes most of the way to where a positive value would be zero. */
function reach(values, changes) {
  let fall = 0;
  for (let i = 0; i < values.length; i++) fall = Math.max(fall, -changes[i] / values[i]);
  return TO_THE_WALL / Math.max(fall, TO_THE_WALL);
}

/** A strictly feasible start, the bounds that count, and which sources can move. */
function interior(lower, upper) {
  const rest = 1 - sumOf(lower);
  const high = upper.map((value, i) => Math.min(value, lower[i] + rest));
  const width = high.map((value, i) => Math.max(value - lower[i], 0));
  const share = Math.min(Math.max(rest / Math.max(sumOf(width), 1e-300), 0), 1);
  const movable = share > NARROW && share < 1 - NARROW;
  const free = [...width.keys()].filter((i) => movable && width[i] > NARROW);
  return { p: Float64Array.from(lower, (low, i) => low + share * width[i]), high, free };
}

/** The optimum of the law under the bounds (see `certificate` for its proof). */
function minimise(terms, w, lower, upper) {
  const { p, high, free } = interior(lower, upper);
  if (free.length < 2) return { p, steps: 0 };
  const state = started(terms, w, p, lower, high, free);
  let best = Infinity,
    answer = Float64Array.from(p),
    waited = 0,
    steps = 0;
  for (; steps < MOST_STEPS; steps++) {
    const gap = boundOf(state);
    if (gap < best) answer = Float64Array.from(state.p);
    waited = gap < 0.99 * best ? 0 : waited + 1;
    best = Math.min(best, gap);
    if (best <= TIGHT * state.local.level || waited > (best <= ENOUGH * state.local.level ? 2 : PATIENCE)) break;
    state.calm ||= waited > RESTLESS;
    if (!stepped(terms, w, state)) break;
  }
  return { p: answer, steps };
}

/** The iterate: `room` (2n) is the distance to the lower, then the upper bounds, `dual` (2n) their multipliers. */
function started(terms, w, p, lower, high, free) {
  const n = free.length,
    local = expansion(terms, w, p);
  const room = new Float64Array(2 * n),
    binds = new Float64Array(2 * n),
    floors = sumOf(lower);
  free.forEach((i, a) => {
    room[a] = p[i] - lower[i];
    room[n + a] = high[i] - p[i];
    binds[a] = 1;
    binds[n + a] = high[i] >= 1 - (floors - lower[i]) - NARROW ? 0 : 1; // the others' floors cap it already
  });
  const price = sumOf(free.map((i) => local.gradient[i])) / n;
  const pull = Float64Array.from(free, (i) => price - local.gradient[i]);
  const spread = pull.reduce((total, value, a) => total + Math.abs(value) * room[a], 0);
  const center = Math.max(spread, 1e-6 * Math.max(local.level, 1e-190)) / n;
  const dual = room.map((value, a) => (binds[a] ? center / value : 1e-300));
  return { p, free, local, room, dual, binds, price, pull, calm: false };
}

/** The excess over the minimum is at most this: the linearised objective against its dual at the price. */
function boundOf({ pull, room }) {
  const n = pull.length;
  return pull.reduce((total, value, a) => total + Math.max(-value * room[a], value * room[n + a]), 0);
}

/** Mehrotra's target of the multipliers: the centre that the predictor allows, less its second-order error. */
function correctorPush(state, move) {
  const n = move.length,
    q = new Float64Array(2 * n),
    products = state.room.map((value, a) => value * state.dual[a]);
  let furthest = 0,
    now = 0,
    errors = 0,
    count = 0;
  for (let a = 0; a < 2 * n; a++) {
    q[a] = state.binds[a] ? (a < n ? move[a] : -move[a - n]) / state.room[a] : 0;
    furthest = Math.max(furthest, Math.abs(q[a] + 0.5) + 0.5);
    now += products[a];
    errors += products[a] * q[a] * (1 + q[a]);
    count += state.binds[a];
  }
  const step = 1 / Math.max(furthest, 1);
  const left = Math.max(1 - step - (step * step * errors) / now, 0);
  const center = (now * (state.calm ? SLOWLY : left ** 3)) / Math.max(count, 1);
  if (state.calm) return state.room.map((value, a) => (state.binds[a] * center) / value);
  return q.map((value, a) => (state.binds[a] * (center + products[a] * value * (1 + value))) / state.room[a]);
}

/** One predictor-corrector step, in place; false where none can be taken. */
function stepped(terms, w, state) {
  const { free, room, dual, binds } = state,
    n = free.length;
  const ratio = dual.map((value, a) => value / room[a]);
  const L = factorOf(
    state.local,
    free,
    free.map((_, a) => ratio[a] + ratio[n + a]),
    terms.targets,
  );
  if (L === null) return false;
  const solve = directions(L, n);
  const push = correctorPush(state, solve(state.pull).move);
  const pull = state.pull.map((value, a) => value + push[a] - push[n + a]);
  const { move, shift } = solve(pull);
  if (!move.every(Number.isFinite)) return false;
  const way = Float64Array.from({ length: 2 * n }, (_, a) => (a < n ? move[a] : -move[a - n]));
  const turn = way.map((value, a) => binds[a] * (push[a] - dual[a] - ratio[a] * value));
  const fall = pull.reduce((total, value, a) => total + value * move[a], 0);
  const length = searched(terms, w, state, { move, shift, way, push }, fall, reach(room, way));
  const turned = reach(dual, turn);
  state.dual = dual.map((value, a) => value + turned * turn[a]);
  state.room = room.map((value, a) => value + length * way[a]);
  return true;
}

/** Moves the mixture and its price, less far while the slope at the end says too far; returns the step taken. Where it
 * goes calmly the slope is that of the barrier problem, in which the push falls as its bound is left. */
function searched(terms, w, state, { move, shift, way, push }, start, length) {
  const { free, p, price, room, calm } = state,
    from = Float64Array.from(p);
  for (let tries = 1; ; tries++) {
    free.forEach((i, a) => {
      p[i] = from[i] + length * move[a];
    });
    state.price = price + length * shift;
    state.local = expansion(terms, w, p);
    state.pull = Float64Array.from(free, (i) => state.price - state.local.gradient[i]);
    let end = -state.pull.reduce((total, value, a) => total + value * move[a], 0);
    if (calm)
      end -= way.reduce((total, value, a) => total + (push[a] * value * room[a]) / (room[a] + length * value), 0);
    if (!(end > (calm ? CALMLY : OVERSHOOT) * start) || tries === 30) return length;
    length *= Math.min(Math.max(start / (start + end), 0.1), 0.7);
  }
}

/** The cheapest mixture by a linear function under the bounds, and the price at its margin. */
function linearMinimiser(gradient, lower, upper) {
  const order = [...gradient.keys()].sort((a, b) => gradient[a] - gradient[b] || a - b);
  const s = Float64Array.from(lower);
  let rest = 1 - sumOf(lower),
    price = NaN;
  for (const i of order) {
    const room = upper[i] - lower[i];
    if (room <= 0) continue;
    if (rest > 1e-9 || Number.isNaN(price)) price = gradient[i];
    const taken = Math.min(Math.max(rest, 0), room);
    s[i] += taken;
    rest -= taken;
  }
  return { s, price };
}

/** The proof of p by the tangent at a point: no mixture within the bounds is better by more than `gap`. */
function proofAt(terms, w, lower, upper, p, base) {
  const { gradient } = expansion(terms, w, base);
  const { s, price } = linearMinimiser(gradient, lower, upper);
  let gap = weighed(w, lossesOf(terms, p)) - weighed(w, lossesOf(terms, base));
  base.forEach((value, i) => {
    if (value !== s[i]) gap += gradient[i] * (value - s[i]);
  });
  return { gap: Number.isNaN(gap) ? Infinity : Math.max(gap, 0), price, gradient };
}

/** The proof of p: the tightest by tangents at p or next to it; what each cap saves per unit of ratio that it gives. */
function certificate(terms, w, lower, upper, p) {
  const objective = weighed(w, lossesOf(terms, p));
  let best = { gap: Infinity, price: NaN, gradient: null };
  for (const edge of EDGES) {
    const base = Float64Array.from(p, (value, i) => (value < edge && upper[i] > edge ? edge : value));
    const proof = proofAt(terms, w, lower, upper, p, base);
    if (proof.gap < best.gap || best.gradient === null) best = proof;
    if (best.gap <= 1e-9 * Math.abs(objective)) break;
  }
  const worth = Float64Array.from(p, (value, i) =>
    value >= upper[i] - 1e-9 && upper[i] < 1 ? Math.max(best.price - best.gradient[i], 0) : 0,
  );
  return { objective, gap: best.gap, bound: objective - best.gap, price: best.price, worth };
}

/** Ratios next to their bounds moved onto them; the others make up for it. */
function snapped(p, lower, upper) {
  const moved = p.map((value, i) => (value - lower[i] < SNAP ? lower[i] : upper[i] - value < SNAP ? upper[i] : value));
  const between = moved.map((value, i) => (value > lower[i] && value < upper[i] ? value : 0)),
    total = sumOf(between);
  const missing = 1 - sumOf(moved);
  return total > 0 ? moved.map((value, i) => value + (missing * between[i]) / total) : moved;
}

/** The optimum with its proof; at its bounds exactly, unless the law needs what is less than the snap. */
function solved(terms, w, lower, upper) {
  const { p, steps } = minimise(terms, w, lower, upper);
  const [one, other] = [snapped(p, lower, upper), p].map((q) => ({ p: q, ...certificate(terms, w, lower, upper, q) }));
  return { ...(one.gap <= Math.max(other.gap, 1e-12 * Math.abs(other.objective)) ? one : other), steps };
}
