// The sliders: what the reader asks (`asked`), the answer of the solver, and the elements that show both.
"use strict";

const data = JSON.parse(document.getElementById("page-data").textContent);
const [SMALL, MOST] = [0.005, 12];

/** An element; texts are texts, whatever a name holds, and functions are listeners. */
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "rect", "line"].includes(tag),
    made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

const part = (name, ...children) => make("div", { class: name }, ...children);

function sized(value) {
  const [size, unit] = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]].find(([one]) => value >= one) ?? [1, ""];
  return `${parseFloat((value / size).toPrecision(4))}${unit}`;
}

let [asked, answer, opened] = [data.start, null, new Set()];

/** A law at a size and a number of tokens of the grid. */
const lawAt = ({ n, d }) => ({ ...data.shared, ...data.budgets[n * data.tokens.length + d] });

/** What is asked, solved: with the law, the weights of targets and the bounds; a reason where there is no mixture. */
function solved({ n, d, weights, caps }) {
  const law = lawAt({ n, d });
  if (law.reason) return { reason: law.reason };
  const whole = data.worst ? Math.max(...weights) : sum(weights);
  if (!(whole > 0)) return { reason: "every weight is zero: raise one" };
  const w = weights.map((value, j) => ((law.unit ? law.unit[j] : 1) * value) / whole);
  const upper = law.upper.map((value, i) => Math.min(value, caps[i])),
    lower = [...law.lower];
  law.own.forEach((i, j) => {
    if (i >= 0 && w[j] > 0) lower[i] = Math.max(lower[i], Math.min(law.edge[j], upper[i]));
  });
  const gone = data.sources.filter((_, i) => law.upper[i] > 0 && upper[i] < 1e-6 && law.own.some((own, j) => own === i && w[j] > 0)),
    reason = gone.length ? `without ${gone.join(", ")} another law holds: run the command` : infeasible(lower, upper, data.sources);
  if (reason) return { reason };
  const found = solve(law, w, { ...law, lower, upper, kl: data.kl, worst: data.worst }),
    losses = correct(found.losses, found.p);
  return found.outside < 1e-7 ? { law, w, upper, ...found, losses, objective: objectiveOf(losses, w, data.worst) } : { reason: "no mixture meets all of these bounds" };
}

/** What lies outside of what was fitted, at most three things. */
function warningsOf({ n, d }, p) {
  const [ranges, found] = [data.ranges.p, []];
  for (const [name, value] of [["N", data.sizes[n]], ["D", data.tokens[d]]]) {
    const [low, high] = data.ranges[name];
    if (value < low / data.ranges.slack || value > high * data.ranges.slack) found.push(`${name} = ${sized(value)} lies outside of the fitted ${sized(low)} to ${sized(high)}.`);
  }
  const odd = data.sources.filter((_, i) => p[i] > ranges[i][1] + 1e-9 || p[i] < ranges[i][0] - 1e-9);
  const named = odd.slice(0, 4).join(", ") + (odd.length > 4 ? ` and ${odd.length - 4} others` : "");
  return odd.length ? [...found, `No fitted run held such a ratio of ${named}.`] : found;
}

const pairs = (names, values) => names.map((name, i) => `${name}=${values[i]}`).join(",");
const quoted = (text) => (/^[\w@%+=:,./-]*$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** The same question as a command line. */
function commandOf({ n, d, weights, caps }) {
  const words = [...data.command, "-N", String(data.sizes[n]), "-D", String(data.tokens[d])];
  const limited = [...caps.keys()].filter((i) => caps[i] < 1),
    given = limited.length ? [["--caps", pairs(limited.map((i) => data.sources[i]), limited.map((i) => caps[i]))]] : [];
  const { unit } = lawAt({ n, d }),
    moved = weights.some((value, j) => value !== data.start.weights[j]),
    own = unit ? weights.map((value, j) => value * unit[j]) : weights;
  if (unit && !moved) given.push(["--weights", "normalized"]);
  else if (data.weighed || moved) given.push(["--weights", pairs(data.targets, own)]);
  for (const [flag, text] of [...data.flags, ...given]) words.push(flag, ...(text === "" ? [] : [text]));
  return words.map(quoted).join(" ");
}

/** The law's losses (K) of a mixture, with what it misses of those near the runs. */
function correct(losses, p, { roots, pull, counted, alone, together } = data.residual) {
  const apart = roots.map((row) => row.map((root, i) => Math.abs(root - Math.sqrt(p[i]))));
  const near = apart.map((one) => (sum(counted.map((i) => Math.exp(-one[i] / alone))) / counted.length + Math.exp(-sum(one) / together)) / 2);
  return [...losses].map((value, j) => value * Math.exp(sum(pull.map((row, g) => near[g] * row[j]))));
}

/** Losses (K); null for a target that counts nothing and whose own source is below the edge of the law's regime. */
function lossesOf({ law, w, p, upper, losses }) {
  const beyond = (i, j) => i >= 0 && !(w[j] > 0) && upper[i] > 0 && p[i] < law.edge[j];
  return losses.map((value, j) => (beyond(law.own[j], j) ? null : value));
}


/** A slider beside a number that may also be typed, of one weight or cap; what is typed stays as it is. */
function control(label, values, i, most) {
  const input = ({ target }) => {
    if (!target.checkValidity()) return;
    ask({ ...asked, [values]: asked[values].map((value, place) => (place === i ? Number(target.value) : value)) });
  };
  const shared = { min: "0", step: "any", input, required: true };
  const slider = make("input", { ...shared, type: "range", max: String(most), "aria-label": label });
  const highest = most === 1 ? "1" : null; // a weight may be typed that is higher than the slider goes
  const number = make("input", { ...shared, type: "number", max: highest, "aria-label": `${label}, as a number` });
  controls.push(() => {
    slider.max = String(Math.max(most, asked[values][i]));
    for (const one of [slider, number]) if (one !== document.activeElement) one.value = String(asked[values][i]);
  });
  return [slider, number];
}

/** A slider over the steps of the grid. */
function stepped(label, values, key) {
  const [told, most] = [make("output"), String(values.length - 1)],
    input = ({ target }) => ask({ ...asked, [key]: Number(target.value) });
  const slider = make("input", { type: "range", min: "0", max: most, step: "1", input, "aria-label": label });
  controls.push(() => {
    slider.value = String(asked[key]);
    told.textContent = sized(values[asked[key]]);
    slider.setAttribute("aria-valuetext", told.textContent);
  });
  return make("label", { class: "control" }, make("span", {}, label), slider, told);
}

/** The controls of the weights or the caps; of many the first, and the others folded. */
function groupOf(title, noun, names, order, values, most) {
  const named = (i) => [make("span", {}, names[i]), ...control(`${noun} of ${names[i]}`, values, i, most)];
  const rows = order.map((i) => part("control", ...named(i))),
    more = rows.slice(MOST);
  const folded = more.length ? [make("details", {}, make("summary", {}, `${more.length} more`), ...more)] : [];
  return make("fieldset", {}, make("legend", {}, title), ...rows.slice(0, MOST), ...folded);
}

function tableOf(caption, heads, rows) {
  const cell = (value) => make("td", { class: value instanceof Node ? null : "number" }, value);
  const body = rows.map(([name, ...cells]) => make("tr", {}, make("th", { scope: "row" }, name), ...cells.map(cell)));
  const head = make("tr", {}, ...heads.map((name, i) => make("th", { scope: "col", class: i ? "number" : null }, name)));
  const parts = [make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...body)];
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, make("table", {}, ...parts));
}

function barOf(value, cap, top) {
  const [wide, at] = [value, cap].map((ratio) => ((100 * ratio) / top).toFixed(2)),
    bar = make("rect", { class: "bar", width: wide, height: "8", y: "1" }),
    caps = cap < 1 && cap <= top ? [make("line", { class: "cap", x1: at, x2: at, y1: "0", y2: "10" })] : [];
  const shape = { class: "strip", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" };
  return make("svg", shape, bar, ...caps);
}

/** The ratios by size, those of a parent and of many rows the small ones as their sum, which opens. */
function ratiosOf({ p, upper, law: { read } }) {
  const rest = read ? p.map((value, i) => Math.max(value - read[i], 0) / (1 - sum(read))) : p, // of a begun run
    share = (places) => sum(places.map((i) => rest[i])),
    bySize = (rows) => [...rows].sort((a, b) => share(b[1]) - share(a[1])),
    order = bySize(data.rows),
    small = order.length > MOST ? order.filter(([, places]) => share(places) < SMALL) : [],
    large = order.filter((row) => !small.includes(row)),
    top = Math.max(...order.map(([, places]) => share(places)));
  const cells = (name, places) => {
    const [ratio, known] = [share(places), places.map((i) => data.available[i])],
      epochs = known.every(Boolean) ? ((sum(places.map((i) => p[i])) * data.tokens[asked.d]) / sum(known)).toFixed(2) : "–";
    return [name, ratio.toFixed(4), barOf(ratio, places.length > 1 ? 1 : upper[places[0]], top), epochs];
  };
  const folded = (id, name, places) => {
    if (places.length < 2) return places.map((i) => cells(data.sources[i], [i]));
    const open = opened.has(id);
    const click = () => {
      if (!opened.delete(id)) opened.add(id);
      showAnswer();
      document.getElementById(id).focus();
    };
    const head = make("button", { type: "button", id, "aria-expanded": String(open), click }, name);
    return [cells(head, places), ...(open ? bySize(places.map((i) => [data.sources[i], [i]])) : []).map((row) => cells(...row))];
  };
  const rows = large.flatMap(([name, places]) => folded(`parent-${name}`, `${name}, in all`, places)),
    others = small.flatMap(([, places]) => places);
  rows.push(...folded("small", `${others.length} small ones, in all`, others));
  return tableOf("The best mixture", ["source", "ratio", "", "epochs"], rows);
}

/** What other mixtures have at this budget, in the same ratios. */
function rivalsOf({ law, w, objective }) {
  return data.rivals.map(({ name, p: rest }) => {
    const p = law.read ? rest.map((value, i) => law.read[i] + (1 - sum(law.read)) * value) : rest,
      other = objectiveOf(correct(evaluate(law, p).losses, p), w, data.worst);
    if (law.own.some((i, j) => i >= 0 && w[j] > 0 && p[i] < law.edge[j])) return [name, "–", "–"]; // another law
    return [name, other.toFixed(4), (other - objective).toFixed(4)];
  });
}

function showAnswer() {
  if (answer.reason) {
    objective.textContent = `No mixture: ${answer.reason}.`;
    return [shown, warned].forEach((one) => one.replaceChildren());
  }
  const [{ p, gap, w, objective: mean }, losses] = [answer, lossesOf(answer)],
    most = gap < 1e-12 * Math.abs(mean) ? "rounding" : `${gap.toExponential(1)} ${data.unit}`;
  const ends = answer.law.spread?.map((share) => (share * mean).toFixed(4)).join(" to ");
  objective.textContent = `${data.worst ? "Largest weighted" : "Mean"} loss ${mean.toFixed(4)} ${data.unit}${ends ? `, ${data.level} interval ${ends}` : ""}. By the law alone no mixture within the bounds is better by more than ${most}.`;
  warned.replaceChildren(...warningsOf(asked, p).map((text) => make("li", {}, text)));
  const targets = data.targets.map((name, j) => [name, losses[j]?.toFixed(4) ?? "–", parseFloat(w[j].toPrecision(4))]);
  const parts = [ratiosOf(answer), tableOf(`Predicted losses, ${data.losses}`, ["target", "loss", "weight"], targets)];
  if (data.rivals.length) parts.push(tableOf("Other mixtures at this budget", ["mixture", "loss", "gain over it"], rivalsOf(answer)));
  shown.replaceChildren(...parts);
}

function ask(question) {
  [asked, answer] = [question, solved(question)];
  controls.forEach((show) => show());
  showAnswer();
  command.textContent = commandOf(asked);
}

/** The answer as JSON: what was asked, and what was found. */
function documentOf() {
  const named = (names, values) => Object.fromEntries(names.map((name, i) => [name, values[i]]));
  const [N, D, weights] = [data.sizes[asked.n], data.tokens[asked.d], named(data.targets, asked.weights)];
  const [caps, command] = [named(data.sources, asked.caps), commandOf(asked)];
  if (answer.reason) return { N, D, weights, caps, command, reason: answer.reason };
  const { p, objective, gap } = answer,
    [mixture, losses] = [named(data.sources, p), named(data.targets, lossesOf(answer))];
  return { N, D, weights, caps, command, mixture, losses, objective, gap, warnings: warningsOf(asked, p) };
}

const copy = (text) => Promise.resolve(text).then((one) => navigator.clipboard.writeText(one))
    .then(() => "Copied.", () => "The browser does not let a page copy here: select the text instead.")
    .then((told) => (said.textContent = told));

const controls = [],
  objective = make("p", { class: "objective", "aria-live": "polite" }),
  warned = make("ul", { class: "warnings" }),
  shown = make("div"),
  command = make("pre", { tabindex: "0", "aria-label": "The same question as a command" }),
  said = make("span", { role: "status" });
const button = (id, text, click) => make("button", { type: "button", id, click }, text);
const byWeight = [...data.targets.keys()].sort((a, b) => data.start.weights[b] - data.start.weights[a] || a - b),
  byRatio = [...data.sources.keys()].filter((i) => !data.closed[i]).sort((a, b) => data.p[b] - data.p[a] || a - b);
const groups = [
  groupOf("Weights of targets", "weight", data.targets, byWeight, "weights", 2 * Math.max(...data.start.weights)),
  groupOf("Caps of sources", "cap", data.sources, byRatio, "caps", 1),
];
document.getElementById("panel").append(
  part("controls", stepped("N, parameters", data.sizes, "n"), stepped("D, tokens", data.tokens, "d"), ...groups),
  part("answer", objective, warned, shown),
  part("after", make("h3", {}, "The same question as a command"), command,
    button("copy", "Copy the command", () => copy(command.textContent)),
    button("copy-json", "Copy the answer as JSON", () => copy(JSON.stringify(documentOf(), null, 1))),
    button("reset", "Reset", () => ask(data.start)), said),
);
ask(data.start);
