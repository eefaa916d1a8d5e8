// One row with all its text, beside the table.
import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { own, plainValue, Usage, WholeCell } from "./cells.js";
import { address, ask, chosen, chosenOf, go, isGone, RUN, token } from "./server.js";
import { baseName, placeText } from "./text.js";
import { cellDiffers, rowsQuery } from "./rows.js";
import { Differences } from "./words.js";

const VIEWS = ["", "markdown", "json"];

export function RowPanel({ number, table, runs, close, say, onReview }) {
  const [page, setPage] = useState(null), [problem, setProblem] = useState(""), title = useRef(null), pressed = useRef("");
  const view = VIEWS.includes(chosen("view_as")) ? chosen("view_as") : "", wanted = String(rowsQuery({ first: number, alone: 1 }));
  useEffect(() => {
    let isWanted = true;
    ask(`api/rows?${wanted}`).then((found) => { if (isWanted) { setPage(found); setProblem(found.rows.length ? "" : "This row is not among the last rows any more."); } }, (error) => {
      if (!isWanted) return;
      const known = table?.rows.filter((row) => row.number === number) ?? [];
      if (!isGone(error) || !known.length) { setPage(null); setProblem(isGone(error) ? "The process has ended or cannot be reached." : error.message); return; }
      setPage({ ...table, rows: known, formulas: {} });
      setProblem("The process has ended or cannot be reached: this is the row as the table has it, and long texts are cut.");
    });
    return () => { isWanted = false; };
  }, [wanted]);
  const row = page?.rows[0], isShown = row?.number === number;
  const move = (side) => {
    pressed.current = isShown ? "" : side; // the row that the address names is still on its way
    const to = isShown ? page[side] : null;
    if (to !== null && to !== undefined) go(address({ row: to }), true);
  };
  // Not within the effect: Preact drops the effects of a drawing that begins there.
  useEffect(() => { if (isShown && pressed.current) queueMicrotask(() => move(pressed.current)); }, [isShown]);
  useEffect(() => { title.current?.focus(); }, []);
  useEffect(() => {
    const press = (event) => {
      if (event.target.closest?.("input, textarea, select, dialog[open]")) return;
      if (event.key === "Escape") close();
      else if (["ArrowLeft", "k"].includes(event.key)) move("before");
      else if (["ArrowRight", "j"].includes(event.key)) move("after");
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });
  const name = row ? placeText(row).replace(/^\w/, (letter) => letter.toUpperCase()) : "Row";
  const asJson = () => JSON.stringify(Object.fromEntries(page.columns.map((column, index) => [column.name, plainValue(row.cells[index])])), null, 2);
  const copy = async (text, done) => { await navigator.clipboard.writeText(text).then(() => say(done), () => say("The browser allows no copy.")); };
  return html`<aside id="row" class="card row-panel" aria-labelledby="row-title">
    <div class="row-head"><h2 id="row-title" tabindex="-1" ref=${title}>${name}</h2>
      <div class="actions">
        <button type="button" class="quiet" aria-label="Previous row" title="Previous row (←)" disabled=${page?.before === null || page?.before === undefined} onClick=${() => move("before")}>←</button>
        <button type="button" class="quiet" aria-label="Next row" title="Next row (→)" disabled=${page?.after === null || page?.after === undefined} onClick=${() => move("after")}>→</button>
        <label><span class="skip">View</span><select aria-label="View" value=${view} onChange=${(event) => go(address({ view_as: event.target.value }), true)}><option value="">Fields</option><option value="markdown">Markdown</option><option value="json">JSON</option></select></label>
        <button type="button" class="quiet" disabled=${!row} onClick=${() => copy(asJson(), "The row is copied as JSON.")}>Copy</button>
        <button type="button" class="quiet" onClick=${() => copy(`${location.href}#${token()}`, "The link is copied. It holds the token: give it to no one who may not see the data.")}>Link</button>
        <button type="button" id="row-close" class="quiet" onClick=${close}>Close</button>
      </div></div>
    <div id="row-body">
      ${problem && html`<p class="empty">${problem}</p>`}
      ${row && view === "json" && html`<pre>${asJson()}</pre>`}
      ${row && view !== "json" && parts(row, page, runs, view)}
    </div>
    ${row && page.can_review && html`<${Review} key=${number} number=${number} review=${row.review} isCompared=${runs.length > 1} say=${say} onReview=${onReview} />`}
  </aside>`;
}

function parts(row, page, runs, view) {
  const found = !row.error ? [] : [
    html`<h3>Error in ${row.error.operator}</h3>`, html`<pre class="bad-text">${`${row.error.error_type}: ${row.error.message}`}</pre>`,
    html`<details><summary>Traceback</summary><pre>${row.error.traceback}</pre></details>`,
    html`<details><summary>Input of ${row.error.operator}</summary><pre>${row.error.input}</pre></details>`,
  ];
  page.columns.forEach((column, index) => {
    const formula = own(page.formulas, column.name), messages = own(row.prompts, column.name), cell = row.cells[index];
    if (messages) found.push(html`<h3>Prompt for ${column.name}</h3>`, html`<div class="messages">${messages.map((message) => html`<div class="message" data-role=${message.role}>
      <span class="run-name">${message.role}</span>${message.parts.map((part) => html`<${WholeCell} cell=${part} view="text" />`)}</div>`)}</div>`);
    found.push(html`<h3>${column.name}${formula && html`<code>${formula}</code>`}</h3>`);
    if (cellDiffers(row, index, page)) {
      const other = row.other[index];
      found.push(html`<div class="side">${[cell, other].map((each, run) => html`<div><span class="run-name">${baseName(runs[run])}</span><${WholeCell} cell=${each} view=${view} /></div>`)}</div>`);
      if (cell?.text && other?.text && !cell.image && !cell.number) found.push(html`<details open><summary>Differences by word</summary><${Differences} before=${cell.text} after=${other.text} /></details>`);
    } else found.push(html`<${WholeCell} cell=${cell} view=${view} />`);
    if (!messages || cell?.usage) return;
    const usage = own(row.usage, column.name);
    found.push(usage ? html`<${Usage} usage=${usage} />` : html`<p class="empty">The tokens and the cost of this call are not known. A ledger on this machine keeps them (resume=True, cache_dir), or prompt(usage=True).</p>`);
  });
  if (runs.length > 1 && !row.other) found.push(html`<p class="empty">${runs[1]} has no such row.</p>`);
  return found;
}

function Review({ number, review, isCompared, say, onReview }) {
  const [now, setNow] = useState({ thumb: 0, note: "", verdict: "", ...review });
  const save = async (changes) => {
    const next = { ...now, ...changes };
    setNow(next);
    try { say((await ask("api/review", { ...chosenOf(RUN), number, thumb: next.thumb, note: next.note, verdict: next.verdict })).done); onReview(); } catch (error) { say(error.message); }
  };
  const toggle = (name, value, empty) => save({ [name]: now[name] === value ? empty : value });
  return html`<div class="review"><h3>Your notes</h3>
    <div class="actions">
      <button type="button" aria-label="Thumb up" aria-pressed=${now.thumb === 1} onClick=${() => toggle("thumb", 1, 0)}>▲</button>
      <button type="button" aria-label="Thumb down" aria-pressed=${now.thumb === -1} onClick=${() => toggle("thumb", -1, 0)}>▼</button>
      ${isCompared && [["first", "First is better"], ["second", "Second is better"], ["tie", "Equally good"]].map(([verdict, text]) =>
        html`<button type="button" aria-pressed=${now.verdict === verdict} onClick=${() => toggle("verdict", verdict, "")}>${text}</button>`)}
    </div>
    <label>Note <textarea rows="2" value=${now.note} onInput=${(event) => setNow({ ...now, note: event.target.value })} onChange=${(event) => save({ note: event.target.value })}></textarea></label></div>`;
}
