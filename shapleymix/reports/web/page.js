// The sliders and what they move. All text goes into the page as text, never as markup: names come from files.
"use strict";

/** How far beyond the fitted budgets the sliders of N and D reach, and where those of the weights end. */
const BEYOND = 100,
  HEAVIEST = 5;

/** The page at work: what is asked, what was pinned, and the elements that show the answer. */
class Page {
  constructor(data, panel) {
    this.data = opened(data);
    this.state = begun(this.data);
    this.pins = data.candidates.map(({ name, p }) => ({ name, p, fixed: true }));
    this.asked = false;
    this.says = make("p", { class: "objective" });
    this.proof = make("p", { class: "proof" });
    this.warnings = make("ul", { class: "warnings" });
    this.spoken = make("p", { class: "unseen", role: "status", "aria-live": "polite" });
    this.command = make("pre", { id: "command", tabindex: "0" });
    this.candidates = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Candidates" });
    this.copied = make("span", { role: "status" });
    this.controls = [];
    panel.append(
      make("div", { class: "answer" }, this.says, this.proof, this.spoken),
      this.warnings,
      this.budgets(),
      this.sources(),
      this.targets(),
      this.buttons(),
      make("h3", {}, "The same question in a terminal"),
      this.command,
      make("h3", {}, "Candidates, at this budget and these weights"),
      this.candidates,
    );
    this.start = answerOf(this.data, this.state);
    this.show();
  }

  /** Ask again soon, once for many moves. */
  ask() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.show();
    });
  }

  /** N and D, by sliders of their logarithm and as text. */
  budgets() {
    const rows = ["N", "D"].map((name) => this.budget(name));
    const why = this.data.moves
      ? []
      : [
          make(
            "p",
            { class: "warnings" },
            `Law ${this.data.law.name} has a form of its own in N and D: they stay where they are.`,
          ),
        ];
    return make("fieldset", { class: "budgets" }, make("legend", {}, "Budget"), ...rows, ...why);
  }

  budget(name) {
    const [low, high] = this.data.ranges[name],
      now = this.state[name];
    const from = Math.log10(Math.min(low, now) / 2),
      to = Math.log10(Math.max(high, now) * BEYOND);
    const what = name === "N" ? "N, parameters" : "D, tokens";
    const disabled = !this.data.moves;
    const put = (value, source) => {
      if (!(value > 0 && Number.isFinite(value))) return;
      this.state[name] = value;
      if (source !== slider) slider.value = Math.log10(value);
      if (source !== text) text.value = sizeText(value);
      slider.setAttribute("aria-valuetext", sizeText(value));
      this.ask();
    };
    const slider = make("input", {
      type: "range",
      id: `slider-${name}`,
      min: from,
      max: to,
      step: "any",
      "aria-label": what,
      disabled,
      input: () => put(Number((10 ** slider.valueAsNumber).toPrecision(3)), slider),
    });
    const text = make("input", {
      type: "text",
      id: `text-${name}`,
      inputmode: "text",
      "aria-label": `${what}, as text`,
      disabled,
      change: () => {
        const value = sizeOf(text.value);
        text.setAttribute("aria-invalid", String(!(value > 0)));
        put(value, text);
      },
    });
    const reset = () => {
      slider.value = Math.log10(this.state[name]);
      text.value = sizeText(this.state[name]);
    };
    this.controls.push(reset);
    reset();
    return make("div", { class: "row" }, make("span", { class: "name" }, what), slider, text);
  }

  /** A slider and a number for one entry of a list in the state; a `bend` above 1 makes room for small numbers. */
  dial(list, place, label, { most, step, bend = 1, limit = null, disabled = false }) {
    const put = (value, source) => {
      const known = value >= 0 && value <= (limit ?? Infinity);
      number.setAttribute("aria-invalid", String(!known));
      if (!known) return;
      this.state[list][place] = value;
      show(source);
      this.ask();
    };
    const slider = make("input", {
      type: "range",
      min: 0,
      max: most ** (1 / bend),
      step,
      "aria-label": label,
      disabled,
      input: () => put(Number((slider.valueAsNumber ** bend).toPrecision(4)), slider),
    });
    const number = make("input", {
      type: "number",
      min: 0,
      max: limit,
      step: "any",
      "aria-label": `${label}, as a number`,
      disabled,
      input: () => put(number.valueAsNumber, number),
    });
    const show = (source) => {
      const value = this.state[list][place];
      if (source !== slider) slider.value = value ** (1 / bend);
      if (source !== number) number.value = rounded(value, 4);
      slider.setAttribute("aria-valuetext", rounded(value, 4));
    };
    this.controls.push(show);
    show();
    return [slider, number];
  }

  /** A cap for each source, with its ratio as a bar. */
  sources() {
    const bend = this.data.sources.length > MANY ? 2 : 1;
    this.ratios = this.data.sources.map((name, i) => {
      const fill = make("rect", { class: "bar", x: 0, y: 3, height: 10, width: 0 });
      const limit = make("line", { class: "limit", y1: 0, y2: 16 });
      const strip = make(
        "svg",
        { class: "strip", viewBox: "0 0 200 16", preserveAspectRatio: "none", "aria-hidden": "true" },
        fill,
        limit,
      );
      const ratio = make("output", { class: "number" }),
        more = make("output", { class: "note" });
      const dial = this.dial("caps", i, `cap of ${name}`, {
        most: 1,
        step: 0.005,
        bend,
        limit: 1,
        disabled: this.data.held[i],
      });
      const row = make(
        "div",
        { class: "row" },
        make("span", { class: "name", title: name }, name),
        ...dial,
        strip,
        ratio,
        more,
      );
      return { row, fill, limit, ratio, more };
    });
    return make(
      "fieldset",
      { class: "sources" },
      make("legend", {}, "Sources: caps, and the best ratios within them"),
      make("div", { class: rowsOf(this.ratios) }, ...this.ratios.map(({ row }) => row)),
    );
  }

  /** A weight for each target, with its loss. */
  targets() {
    const most = Math.max(HEAVIEST, 2 * Math.max(...this.state.weights));
    this.losses = this.data.targets.map((name, j) => {
      const loss = make("output", { class: "number" }),
        change = make("output", { class: "note" });
      const dial = this.dial("weights", j, `weight of ${name}`, { most, step: 0.05 });
      const row = make(
        "div",
        { class: "row" },
        make("span", { class: "name", title: name }, name),
        ...dial,
        loss,
        change,
      );
      return { row, loss, change };
    });
    return make(
      "fieldset",
      { class: "targets" },
      make("legend", {}, "Targets: weights, and the losses there"),
      make("div", { class: rowsOf(this.losses) }, ...this.losses.map(({ row }) => row)),
    );
  }

  buttons() {
    const button = (id, label, click) => make("button", { type: "button", id, click }, label);
    return make(
      "div",
      { class: "buttons" },
      button("pin", "Pin this mixture", () => this.pin()),
      button("reset", "Back to the start", () => this.reset()),
      button("copy", "Copy the command", () => this.copy()),
      button("download", "Download JSON", () => this.download()),
      this.copied,
    );
  }

  pin() {
    if (this.answer.fault !== undefined) return;
    const count = this.pins.filter(({ fixed }) => !fixed).length + 1;
    const name = `pin ${count} (N ${sizeText(this.state.N)}, D ${sizeText(this.state.D)})`;
    this.pins.push({ name, p: [...this.answer.p], fixed: false });
    this.show();
  }

  reset() {
    this.state = begun(this.data);
    for (const reset of this.controls) reset();
    this.show();
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(this.command.textContent);
      this.copied.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(this.command);
      this.copied.textContent = "selected: copy it with your keys";
    }
  }

  download() {
    if (this.answer.fault !== undefined) return;
    const text = JSON.stringify(documentOf(this.data, this.state, this.answer, this.pins), null, 1);
    const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    make("a", { href: address, download: "answer.json" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  /** Solve, and show what was found. */
  show() {
    const answer = answerOf(this.data, this.state);
    this.answer = answer;
    this.command.textContent =
      commandOf(this.data, this.state) ??
      "A name holds a comma, which no flag can tell from the next name: give caps and weights from Python.";
    const faulty = answer.fault !== undefined;
    document.body.classList.toggle("faulty", faulty);
    if (faulty) {
      this.says.textContent = `No mixture: ${answer.fault}.`;
      this.proof.textContent = "";
      this.warnings.replaceChildren();
    } else {
      this.showAnswer(answer);
    }
    this.showCandidates();
    clearTimeout(this.speaking);
    this.speaking = setTimeout(() => {
      this.spoken.textContent = this.says.textContent;
    }, 700);
  }

  showAnswer(answer) {
    const change = answer.objective - (this.start.objective ?? NaN);
    const moved = Math.abs(change) >= 5e-5 ? `, ${signed(change)} against where the page began` : "";
    this.says.textContent = Number.isFinite(answer.objective)
      ? `Mean loss ${answer.objective.toFixed(4)} nats${moved}`
      : "No mean loss: for some target there is no prediction";
    const gap = answer.gap <= 1e-12 * Math.abs(answer.objective) ? "rounding" : `${answer.gap.toExponential(1)} nats`;
    this.proof.textContent =
      `No mixture within these bounds is better by more than ${gap} ` +
      `(Frank-Wolfe bound, computed here; ${answer.steps} steps, ${answer.ms.toFixed(1)} ms).`;
    this.warnings.replaceChildren(...answer.warnings.map((text) => make("li", {}, text)));
    const top = Math.max(...answer.p, 1e-3);
    this.ratios.forEach((row, i) => showRatio(row, i, this.data, this.state, answer, top));
    this.losses.forEach(({ loss, change: note }, j) => {
      loss.textContent = Number.isFinite(answer.losses[j]) ? answer.losses[j].toFixed(3) : "–";
      const by = this.start.fault === undefined ? answer.losses[j] - this.start.losses[j] : 0;
      note.textContent = Math.abs(by) >= 5e-4 ? signed(by, 3) : "";
    });
  }

  showCandidates() {
    const found = this.pins.map((pin) => ({ ...pin, ...judged(this.data, this.state, pin.p, this.answer) }));
    const now =
      this.answer.fault === undefined
        ? [{ name: "best now", p: this.answer.p, objective: this.answer.objective, within: true, fixed: true }]
        : [];
    const best = now.length ? now[0].objective : Math.min(...found.map(({ objective }) => objective));
    const head = ["mixture", "mean loss", "more than the best", ...this.data.sources, ""];
    const rows = [...now, ...found].map((one) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, one.name),
        ...[
          told(one.objective),
          `${told(one.objective - best)}${one.within ? "" : ", breaks a bound"}`,
          ...[...one.p].map((ratio) => ratio.toFixed(3)),
        ].map((text) => make("td", { class: "number" }, text)),
        make("td", {}, ...(one.fixed ? [] : [this.unpin(one.name)])),
      ),
    );
    const columns = head.map((name, place) => make("th", { scope: "col", class: place ? "number" : null }, name));
    this.candidates.replaceChildren(
      make("table", {}, make("thead", {}, make("tr", {}, ...columns)), make("tbody", {}, ...rows)),
    );
  }

  unpin(name) {
    const click = () => {
      this.pins = this.pins.filter((pin) => pin.name !== name);
      this.show();
    };
    return make("button", { type: "button", "aria-label": `Remove ${name}`, click }, "remove");
  }
}

document.addEventListener("DOMContentLoaded", () => {
  const data = JSON.parse(document.getElementById("page-data").textContent);
  globalThis.shapleymix = new Page(data, document.getElementById("panel"));
});
