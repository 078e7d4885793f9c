// The sliders: what the reader asks (`asked`), its answer by the solver, and the elements of the page that show both.
const [data, MOST] = [JSON.parse(document.getElementById("page-data").textContent), 12];
const [element, all] = [(id) => document.getElementById(id), (selector) => [...document.querySelectorAll(selector)]];

let [asked, answer, later] = [data.start, null, 0];
const [ends, rivalNames] = [all("#objective > *").at(-1)?.textContent, data.rivals.map(({ name }) => name)]; // of the start
/** A law at a size and a number of tokens of the grid. */
const lawAt = ({ n, d }) => ({ ...data.shared, ...data.budgets[n * data.tokens.length + d] });

/** Weights (K) as the objective has them. */
function weighed(law, weights) {
  const whole = data.worst ? Math.max(...weights) : sum(weights);
  return weights.map((value, j) => ((law.unit ? law.unit[j] : 1) * value) / whole);
}

/** What is asked, solved: with the law, the weights of targets and the bounds; a reason where there is no mixture. */
function solved({ n, d, weights, caps }) {
  const law = lawAt({ n, d });
  if (law.reason) return { reason: law.reason };
  const w = weighed(law, weights);
  if (!w.some((value) => value > 0)) return { reason: "every weight is zero: raise one" };
  const [upper, lower] = [law.upper.map((value, i) => Math.min(value, caps[i])), [...law.lower]];
  law.own.forEach((i, j) => i >= 0 && w[j] > 0 && (lower[i] = Math.max(lower[i], Math.min(law.edge[j], upper[i]))));
  const gone = data.sources.filter((_, i) => law.upper[i] > 0 && upper[i] < 1e-6 && law.own.some((own, j) => own === i && w[j] > 0)),
    reason = gone.length ? `without ${gone.join(", ")} another law holds: run the command` : infeasible(lower, upper, data.sources);
  if (reason) return { reason };
  const found = helped(law, w, lower, upper), losses = toldOf(law, w, found.p, upper, found.losses);
  return found.outside < 1e-7 ? { law, w, upper, ...found, losses } : { reason: "no mixture meets all of these bounds" };
}

/** By how many times a target's loss is higher, on average, where no source may have its least ratio. */
const jump = (p, { low, high, height }) => 1 + Math.min(1, ...p.map((x, i) => Math.max(high[i] - x, 0) / (high[i] - low[i]))) * Math.expm1(height);

/** The optimum; where weighted losses jump there, with them as high, or with floors of sources without which they do. */
function helped(law, w, lower, upper) {
  const at = (floors, counted) => {
    const found = solve(law, counted, { ...law, lower: floors, upper, kl: data.kl, worst: data.worst }), losses = correct(found.losses, found.p), objective = objectiveOf(losses, w, data.worst);
    return { ...found, losses, objective, total: found.outside < 1e-7 ? objective + (data.kl > 0 ? data.kl * divergence(found.p, law.anchor) : 0) : Infinity };
  };
  const [first, known] = [at(lower, w), (data.residual.jumps ?? []).filter(({ height }, j) => height > 0 && w[j] > 0)];
  const each = known.reduce((sets, { low, high }) => {
    const ends = [...high.keys()].filter((i) => upper[i] > low[i] && high[i] <= 1), end = (i) => Math.min(high[i], upper[i]),
      more = (floors) => ends.map((i) => floors.map((value, k) => (k === i ? Math.max(value, end(i)) : value)));
    return sets.length * (ends.length + 1) > data.residual.most ? sets : sets.flatMap((floors) => [floors, ...more(floors)]);
  }, [lower]);
  return !known.some((one) => jump(first.p, one) > 1) ? first : each.map((floors) => at(floors, w.map((value, j) => value * jump(floors, data.residual.jumps[j])))).reduce((one, other) => (other.total < one.total ? other : one));
}

/** Of which sources no fitted run had such a ratio. */
function warningsOf(p) {
  const odd = data.sources.filter((_, i) => p[i] > data.ranges[i][1] + 1e-9 || p[i] < data.ranges[i][0] - 1e-9);
  return odd.length ? [`No fitted run held such a ratio of ${odd.slice(0, 4).join(", ")}${odd.length > 4 ? ` and ${odd.length - 4} others` : ""}.`] : [];
}

const pairs = (names, values) => names.map((name, i) => `${name}=${values[i]}`).join(",");
const quoted = (text) => (/^[\w@%+=:,./-]*$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** The same question as a command line. */
function commandOf({ n, d, weights, caps }) {
  const words = [...data.command, "-N", String(data.sizes[n]), "-D", String(data.tokens[d])];
  const limited = [...caps.keys()].filter((i) => caps[i] < 1),
    given = limited.length ? [["--caps", pairs(limited.map((i) => data.sources[i]), limited.map((i) => caps[i]))]] : [];
  const { unit } = lawAt({ n, d }), moved = weights.some((value, j) => value !== data.start.weights[j]),
    own = unit ? weights.map((value, j) => value * unit[j]) : weights;
  if (unit && !moved) given.push(["--weights", "normalized"]);
  else if (data.weighed || moved) given.push(["--weights", pairs(data.targets, own)]);
  for (const [flag, text] of [...data.flags, ...given]) words.push(flag, ...(text === "" ? [] : [text]));
  return words.map(quoted).join(" ");
}

/** The law's losses (K) of a mixture, with what it misses of those near the runs, and jumps where no source helps. */
function correct(losses, p, { roots, pull, counted, alone, together, jumps } = data.residual) {
  const alike = (one) => (sum(counted.map((i) => Math.exp(-one[i] / alone))) / counted.length + Math.exp(-sum(one) / together)) / 2,
    near = roots.map((row) => alike(row.map((root, i) => Math.abs(root - Math.sqrt(p[i])))));
  return [...losses].map((value, j) => value * Math.exp(sum(pull.map((row, g) => near[g] * row[j]))) * (jumps ? jump(p, jumps[j]) : 1));
}

/** Losses (K); NaN for a target that counts nothing and whose own source is below the edge of the law's regime. */
const toldOf = ({ own, edge }, w, p, upper, losses) => losses.map((value, j) => (own[j] >= 0 && !(w[j] > 0) && upper[own[j]] > 0 && p[own[j]] < edge[j] ? NaN : value));

/** The objective and the losses (K) of any mixture; NaN where another law holds. */
function valued(law, w, p) {
  const losses = toldOf(law, w, p, law.upper, correct(evaluate(law, p).losses, p)),
    other = law.own.some((i, j) => i >= 0 && w[j] > 0 && p[i] < law.edge[j]);
  return other ? [NaN, losses.map(() => NaN)] : [objectiveOf(losses, w, data.worst), losses];
}

/** What is gained over each other mixture, and by each target. */
function gainsOf({ law, w, objective, losses }) {
  return data.rivals.map(({ name, p: rest }) => {
    const p = law.read ? rest.map((value, i) => law.read[i] + (1 - sum(law.read)) * value) : rest,
      [other, each] = valued(law, w, p);
    return { name, gain: other - objective, gains: each.map((value, j) => value - losses[j]) };
  });
}

const [plain, signed] = [(value) => value.toFixed(4), (value) => (value < 0 ? "−" : "+") + plain(Math.abs(value))];

/** Rows with other values: their numbers, and their bars on a scale that holds all of them. */
function fill(rows, values, written) {
  const ends = rows[0]?.closest("[data-ends]").dataset.ends.split(" ").map(Number) ?? [0, 1],
    shown = values.filter((value, k) => !Number.isNaN(value) && rows[k]?.querySelector(".bar")),
    [low, high] = [Math.min(ends[0], ...shown), Math.max(ends[1], ...shown)];
  rows.forEach((row, k) => {
    const [bar, value] = [row.querySelector(".bar"), values[k] || 0];
    row.querySelector("b").textContent = Number.isNaN(values[k]) ? "–" : written(value);
    bar?.closest("svg").setAttribute("viewBox", `${low} 0 ${high - low} 10`);
    const drawn = [["x", Math.min(value, 0)], ["width", Math.abs(value)], ["class", value < 0 ? "bar down" : "bar"]];
    drawn.forEach(([name, one]) => bar?.setAttribute(name, String(one)));
  });
}

/** The ratios by size, of a begun run those of its rest: parents as sums, and of many rows the small as others. */
function showRatios({ p, upper, law: { read } }) {
  const ofRest = (value, i) => (read ? Math.max(value - read[i], 0) / (1 - sum(read)) : value),
    [rest, places] = [p.map(ofRest), (item) => item.dataset.at.split(",").map(Number)],
    share = (item) => sum(places(item).map((i) => rest[i])),
    bySize = (items) => [...items].sort((a, b) => share(b) - share(a)),
    [list, others] = [element("ratios"), element("others")],
    rows = bySize(all("#ratios > li:not(#others), #others > details > ol > li")),
    small = others ? rows.splice(MOST) : [];
  list.append(...rows, ...(others ? [others] : []));
  others?.querySelector("ol").append(...small);
  if (others) others.dataset.at = small.map((item) => item.dataset.at).join();
  for (const inner of all("#ratios details > ol")) inner.append(...bySize(inner.children));
  const items = all("#ratios li");
  fill(items.map((item) => item.querySelector(".row")), items.map(share), plain);
  for (const item of items) {
    const at = places(item),
      have = at.map((i) => data.available[i]),
      epochs = (sum(at.map((i) => p[i])) * data.tokens[asked.d]) / sum(have);
    item.querySelector(".epochs").textContent = have.every(Boolean) ? epochs.toFixed(2) : "";
    if (at.length === 1) ["x1", "x2"].forEach((end) => item.querySelector(".cap").setAttribute(end, String(ofRest(upper[at[0]], at[0]))));
  }
}

/** The gains, and that over the mixture which is chosen among what stays in sight. */
function showGains(found, moved) {
  fill(all(".rival"), found.map(({ gain }) => gain), signed);
  found.forEach(({ gains }, place) => {
    const [rows, told] = [all(`#against-${place} li[data-at]`), moved ? gains : data.rivals[place].gains];
    fill(rows, rows.map((row) => told[Number(row.dataset.at)] ?? NaN), signed);
  });
  const row = all("[name=rival]:checked")[0]?.closest("li");
  const [name, gain, ends] = [".name", "b", ".ends"].map((part) => row?.querySelector(part).textContent);
  if (row) state("gain", `Gain over ${name}`, gain, moved ? "no interval here" : ends);
}

/** The loss of the mixture at the other steps of N and of D. */
function showAhead({ p }) {
  for (const chart of all(".plot")) {
    const key = chart.closest(".budget").id.slice(-1),
      laws = data.told[key].map((_, step) => lawAt({ ...asked, [key]: step })),
      losses = laws.map((law) => (law.reason ? NaN : valued(law, weighed(law, asked.weights), p)[0])),
      points = losses.flatMap((loss, step) => (Number.isNaN(loss) ? [] : [[step, -loss]])),
      [left, top, wide, high] = (chart.dataset.box ??= chart.getAttribute("viewBox")).split(" ").map(Number),
      [least, most] = [Math.min(top, ...points.map(([, y]) => y)), Math.max(top + high, ...points.map(([, y]) => y))];
    chart.setAttribute("viewBox", [left, least, wide, most - least].join(" "));
    chart.querySelector(".loss").setAttribute("points", points.join(" "));
    ["x1", "x2"].forEach((end) => chart.querySelector(".now").setAttribute(end, String(asked[key])));
    all(`#along-${key} .level`).forEach((text, side) => (text.textContent = (side ? -most : -least).toFixed(3)));
  }
}

/** One of the three numbers that stay in sight: its label, itself, and its small print. */
const state = (id, ...texts) => all(`#${id} > *`).forEach((part, k) => (part.textContent = texts[k] ?? part.textContent));

const listed = (id, texts) => element(id).replaceChildren(...texts.map((text) => Object.assign(document.createElement("li"), { textContent: text })));

function show() {
  const [moved, { reason, p, gap, objective, losses }] = [fragmentOf({ ...asked, rival: data.start.rival }) !== "", answer];
  document.body.classList.toggle("moved", moved);
  document.body.classList.toggle("none", Boolean(reason));
  for (const input of all("[data-of]")) {
    const { of, at } = input.dataset,
      value = at ? asked[of][Number(at)] : asked[of];
    if (at && input.type === "range") input.max = String(Math.max(Number(input.max), value));
    if (input !== document.activeElement || input.type === "range") input.value = String(value);
    if (!at) input.setAttribute("aria-valuetext", (input.nextSibling.textContent = data.told[of][value]));
  }
  all("[name=rival]").forEach((one, place) => (one.checked = place === asked.rival));
  element("command").textContent = commandOf(asked);
  listed("reason", reason ? [`No mixture: ${reason}.`] : []);
  listed("beyond", moved && !reason ? warningsOf(p) : []);
  state("far", `N ${data.told.n[asked.n]}, D ${data.told.d[asked.d]}`, ...(lawAt(asked).far ?? []));
  const most = gap < 1e-12 * Math.abs(objective) ? "rounding" : `${gap?.toExponential(1)} ${data.unit}`;
  element("proof").textContent = reason ? "" : `By the law alone no mixture within the bounds is better by more than ${most}.`;
  if (reason) return ["objective", "gain"].forEach((id) => state(id, undefined, "–", ""));
  state("objective", undefined, plain(objective), moved ? "no interval here" : ends);
  showRatios(answer);
  showGains(gainsOf(answer), moved);
  showAhead(answer);
  const told = moved ? losses : data.losses;
  all("#losses tbody tr").forEach((row, j) => (row.children[1].textContent = Number.isFinite(told[j]) ? plain(told[j]) : "–"));
}

function ask(question) {
  [asked, answer] = [question, solved(question)];
  show();
  clearTimeout(later); // browsers limit how often an address may change
  later = setTimeout(() => history.replaceState(null, "", location.href.split("#")[0] + fragmentOf(asked)), 300);
}

/** What differs from the start, as the fragment of an address. */
function fragmentOf({ n, d, rival, ...values }) {
  const found = [["N", n, data.start.n, data.sizes], ["D", d, data.start.d, data.tokens], ["rival", rival, data.start.rival, rivalNames]]
    .flatMap(([name, now, first, of]) => (now === first ? [] : [[name, of[now]]]));
  for (const [key, names] of [["weights", data.targets], ["caps", data.sources]])
    names.forEach((name, i) => values[key][i] !== data.start[key][i] && found.push([`${key}.${name}`, values[key][i]]));
  return found.length ? `#${new URLSearchParams(found)}` : "";
}

/** The question of a fragment; null where it says what this page does not know. */
function questionOf(fragment) {
  const found = structuredClone(data.start);
  for (const [name, text] of fragment.includes("=") ? new URLSearchParams(fragment.slice(1)) : []) {
    const [key, value] = [name.split(".")[0], text.trim() ? Number(text) : NaN],
      steps = new Map([["N", data.sizes], ["D", data.tokens], ["rival", rivalNames]]).get(name),
      names = new Map([["weights", data.targets], ["caps", data.sources]]).get(key) ?? [],
      place = steps ? steps.indexOf(name === "rival" ? text : value) : names.indexOf(name.slice(key.length + 1));
    if (place < 0 || !(name === "rival" || (value >= 0 && value <= (key === "caps" ? 1 : Number.MAX_VALUE)))) return null;
    if (steps) found[key.toLowerCase()] = place;
    else found[key][place] = value;
  }
  return found;
}

/** Ask what the address says. */
function begin() {
  const found = questionOf(location.hash);
  ask(found ?? data.start);
  element("said").textContent = found ? "" : "The address asks what this page does not know, so it begins at its start.";
}

/** The answer as JSON: what was asked, and what was found. */
function documentOf() {
  const named = (names, values) => Object.fromEntries(names.map((name, i) => [name, values[i]]));
  const [weights, caps, command] = [named(data.targets, asked.weights), named(data.sources, asked.caps), commandOf(asked)],
    question = { N: data.sizes[asked.n], D: data.tokens[asked.d], weights, caps, command, far: lawAt(asked).far?.join(" ") };
  if (answer.reason) return { ...question, reason: answer.reason };
  const { p, objective, gap } = answer,
    [mixture, losses] = [named(data.sources, p), named(data.targets, answer.losses)],
    gains = gainsOf(answer).map((one) => ({ ...one, gains: named(data.targets, one.gains) }));
  return { ...question, mixture, losses, objective, gap, gains, warnings: warningsOf(p) };
}

const copy = (text) => Promise.resolve(text).then((one) => navigator.clipboard.writeText(one))
    .then(() => "Copied.", () => "The browser does not let a page copy here: select the text instead.")
    .then((told) => (element("said").textContent = told));

const buttons = { copy: () => copy(element("command").textContent), "copy-json": () => copy(JSON.stringify(documentOf(), null, 1)) };
for (const [id, press] of Object.entries({ ...buttons, reset: () => ask(data.start) })) element(id).addEventListener("click", press);
document.addEventListener("input", ({ target }) => {
  const [{ of, at }, value] = [target.dataset, Number(target.value)];
  if (target.name === "rival") ask({ ...asked, rival: Number(at) });
  if (!of || !target.checkValidity()) return;
  ask({ ...asked, [of]: at ? asked[of].map((now, i) => (i === Number(at) ? value : now)) : value });
});
addEventListener("hashchange", () => location.hash.includes("=") && begin());
[element("panel"), ...all(".control")].forEach((one) => (one.hidden = false));
begin();
