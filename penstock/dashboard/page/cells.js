// The value of a cell: in the table, and whole.
import { html } from "./vendor/preact.js";
import { latency, usageText } from "./text.js";
import { Markdown } from "./words.js";

export const sameCell = (cell, other) => cell?.text === other?.text && cell?.image === other?.image;

// A column may be named "constructor" or "__proto__".
export const own = (object, name) => (object && Object.hasOwn(object, name) ? object[name] : undefined);

export function CellInTable({ cell }) {
  if (cell === null) return html`<span class="null">null</span>`;
  if (cell.image) return html`<img class="thumb" src=${cell.image} alt=${cell.text} />`;
  const text = html`<div class="clamp">${cell.text}</div>`;
  return cell.usage ? html`<div>${text}<div class="usage">${usageText(cell.usage)}</div></div>` : text;
}

export function WholeCell({ cell, view }) {
  if (cell === null) return html`<pre class="null">null</pre>`;
  if (cell.image) return html`<img src=${cell.image} alt=${cell.text} />`;
  const value = parsed(cell), isFields = !view && value && typeof value === "object";
  const text = isFields ? html`<${Fields} value=${value} />` : view === "markdown" ? html`<${Markdown} text=${cell.text} />` : html`<pre>${cell.text}</pre>`;
  return cell.usage ? html`<div>${text}<${Usage} usage=${cell.usage} /></div>` : text;
}

// A structured answer, or undefined if the text is none or was cut.
function parsed(cell) {
  if (!cell.json || cell.num_chars) return undefined;
  try { return JSON.parse(cell.text); } catch { return undefined; }
}

export const plainValue = (cell) => (cell === null ? null : parsed(cell) ?? (cell.number ? JSON.parse(/^[-\d.e+]+$/i.test(cell.text) ? cell.text : JSON.stringify(cell.text)) : cell.text));

function Fields({ value }) {
  if (value === null || typeof value !== "object") return html`<span class=${value === null ? "null" : ""}>${String(value)}</span>`;
  if (Array.isArray(value) && value.every((each) => each === null || typeof each !== "object")) return html`<ul class="list">${value.map((each) => html`<li>${String(each)}</li>`)}</ul>`;
  return html`<dl class="fields">${Object.entries(value).map(([name, each]) => html`<dt>${Array.isArray(value) ? Number(name) + 1 : name}</dt><dd><${Fields} value=${each} /></dd>`)}</dl>`;
}

export function Usage({ usage }) {
  const { cost, latency_s: time, ...others } = usage;
  if (cost !== undefined) others.cost = `$${Number(cost.toPrecision(3))}`;
  if (time !== undefined) others.latency = latency(time);
  return html`<dl class="pairs usage">${Object.entries(others).flatMap(([name, value]) => [html`<dt>${name.replaceAll("_", " ")}</dt>`, html`<dd>${String(value)}</dd>`])}</dl>`;
}
