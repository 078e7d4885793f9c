// Elements of a page, made without markup: a text is text, whatever a name holds.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
/** So many languages have a frame of their own to scroll in, and caps with more room for small ones. */
const MANY = 15;

/** An element with attributes (functions are listeners) and children. */
function make(tag, attributes = {}, ...children) {
  const made =
    tag === "svg" || tag === "rect" || tag === "line"
      ? document.createElementNS(SVG, tag)
      : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** One source's bar, its cap as a tick, and what is worth saying of it. */
function showRatio({ fill, limit, ratio, more }, i, data, state, answer, top) {
  const wide = (value) => rounded(200 * Math.min(value / top, 1), 5);
  fill.setAttribute("width", wide(answer.p[i]));
  limit.setAttribute("x1", wide(answer.upper[i]));
  limit.setAttribute("x2", wide(answer.upper[i]));
  limit.setAttribute("visibility", answer.upper[i] < 1 && answer.upper[i] <= top ? "visible" : "hidden");
  ratio.textContent = answer.p[i].toFixed(4);
  const tokens = data.supply.available[i],
    notes = [];
  if (data.held[i]) notes.push("no run saw it");
  else if (answer.supplied[i] < Math.min(state.caps[i], 1))
    notes.push(`at most ${answer.supplied[i].toFixed(3)}, by its tokens`);
  if (tokens) notes.push(`${((answer.p[i] * state.D) / tokens).toFixed(2)} epochs`);
  if (answer.worth[i] > 1e-9) notes.push(`1% of D more saves ${rounded(answer.worth[i] / 100, 3)} nats`);
  more.textContent = notes.join("; ");
}

function rowsOf(rows) {
  return rows.length > MANY ? "rows many" : "rows";
}

/** A number where there is one. */
function told(value) {
  return Number.isFinite(value) ? value.toFixed(4) : "–";
}

function signed(value, digits = 4) {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
}
