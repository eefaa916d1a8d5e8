// Rows in a table, with search, filters, sort, distributions and export; an open row is beside it.
import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { CellInTable, sameCell } from "./cells.js";
import { RowPanel } from "./row.js";
import { Compare } from "./compare.js";
import { address, ask, chosen, chosenOf, fetched, follow, go, isGone, news, RUN } from "./server.js";
import { baseName, count, counted, isOver, placeText, placeTitle, shortened } from "./text.js";
import { Shapes } from "./shapes.js";
import { picked, togglePick, Trial } from "./trial.js";

const POLL_MS = 500, LATEST_MS = 10_000, TYPING_MS = 250, PAGE_ROWS = 25;
const FILTERS = ["search", "status", "error", "where", "sort", "desc", "different", "key"];
const OPERATORS = ["is", "is not", "has", "over", "under", "null", "filled"];

export const rowsQuery = (more = {}) => new URLSearchParams({ ...chosenOf([...RUN, ...FILTERS, "first"]), ...more });
const isFiltered = () => FILTERS.some((name) => !["sort", "desc", "key"].includes(name) && chosen(name));
export const conditions = () => { try { return JSON.parse(chosen("where") || "[]"); } catch { return []; } };
const hidden = () => { try { return JSON.parse(chosen("hide") || "[]"); } catch { return []; } };
export const filtered = (changes) => address({ first: null, row: null, ...changes });
export const withCondition = (...added) => filtered({ where: JSON.stringify([...conditions().filter((each) => !added.some((one) => one[0] === each[0] && one[1] === each[1])), ...added]) });

export function Rows({ query, runs, compared, tick, say, confirm, last, isOff }) {
  const [page, setPage] = useState(last), [problem, setProblem] = useState(""), [isReading, setReading] = useState(false);
  const table = useRef(null), asked = useRef(0), state = useRef(""), loadedAt = useRef(0), open = chosen("row");
  const shown = useRef(String(new URLSearchParams(chosenOf(RUN)))); // the rows that the page has: at first all of the last ones
  const wanted = String(rowsQuery());
  // Rows that a person reads or has the focus on stay.
  const canReplace = () => !Number(chosen("first")) && !chosen("row") && !table.current?.contains(document.activeElement);

  // An answer that comes after a person began to read is dropped, unless the person asked for it.
  const load = async (isWanted = () => true) => {
    const mine = ++asked.current;
    loadedAt.current = performance.now();
    try {
      const found = await news("api/rows", rowsQuery());
      if (mine !== asked.current || !isWanted()) return;
      shown.current = wanted;
      setPage(found); setProblem(""); setReading(false);
      if (!found.is_counted) followCount(mine, found);
    } catch (error) {
      if (mine !== asked.current) return;
      setReading(false);
      setProblem(isGone(error) ? "gone" : error.message);
    }
  };
  // A search of many rows goes on after its first rows are shown.
  const followCount = (mine, found) => setTimeout(async () => {
    if (mine !== asked.current) return;
    if (!found.rows.length || chosen("sort")) { load(); return; }
    const told = await ask(`api/rows?${rowsQuery({ count: 1 })}`).catch(() => null);
    if (mine !== asked.current || !told) return;
    const next = { ...found, ...told };
    setPage(next);
    if (!next.is_counted) followCount(mine, next);
  }, POLL_MS);

  useEffect(() => { setReading(true); load(); return () => { asked.current += 1; }; }, [wanted]);
  useEffect(() => {
    const isDue = !page?.rows.length || performance.now() - loadedAt.current > LATEST_MS; // nobody reads rows that go away at once
    const isNews = query && ((!isOver(query) && isDue) || query.state !== state.current);
    state.current = query?.state ?? "";
    if (page?.is_recent && isNews && canReplace()) load(canReplace);
  }, [tick]);

  const close = () => {
    go(address({ row: null, view_as: null }));
    table.current?.querySelector(`[data-number="${Number(open)}"]`)?.focus();
  };
  // All that a person chooses is in the address.
  const rows = useMemo(() => html`<${Table} page=${page} runs=${runs} holder=${table} open=${open} isOff=${isOff} />`, [page, location.search, isOff]);
  return html`<div class="headline rows-title"><h1>Rows</h1>${page?.can_try && !chosen("try") && html`<button type="button" disabled=${isOff} onClick=${() => go(address({ try: "rows" }))}>Try a prompt</button>`}</div>
    ${compared.length > 1 && html`<${Compare} runs=${runs} compared=${compared} />`}
    ${chosen("try") && html`<${Trial} page=${page} confirm=${confirm} isOff=${isOff} />`}
    <fieldset class="plain" disabled=${isOff}><${Filters} page=${page} runs=${runs} say=${say} isStale=${isOff && shown.current !== wanted} /></fieldset>
    ${isOff && html`<p id="rows-off" class="sub">${offText(query, runs)}</p>`}
    <p id="rows-summary" class="sub" role="status">${isReading && !page?.is_recent ? "Reading …" : problem === "gone" ? goneText(page) : problem || (page ? summary(page, query, runs) : "Reading …")}</p>
    ${chosen("shapes") && html`<${Shapes} />`}
    <div class=${open ? "beside" : ""}>
      <div>
        ${page?.rows.length > 0 && html`<div id="rows-scroll" class="scroll rows" role="group" aria-label="Table of rows" tabindex="0">${rows}</div>`}
        <div class="pages">
          <button type="button" disabled=${isOff || !Number(chosen("first"))} onClick=${() => go(address({ first: Math.max(Number(chosen("first")) - PAGE_ROWS, 0) || null }))}>Previous</button>
          <button type="button" disabled=${isOff || !page || page.next === null} onClick=${() => go(address({ first: page.next }))}>Next</button>
        </div>
      </div>
      ${open && html`<${RowPanel} number=${Number(open)} table=${page} runs=${runs} close=${close} say=${say} onReview=${() => load()} />`}
    </div>`;
}

function offText(query, runs) {
  const off = `Search, filters, sort, export and prompts are off: the ${runs.length ? "dashboard" : "process"} that answers them has ended.`;
  if (runs.length) return `${off} Start it again with: penstock dashboard ${runs.join(" ")}`;
  return query.stages.some((stage) => stage.kind === "write") ? `${off} If the run wrote to a folder with resume=True, this command has all of it: penstock dashboard FOLDER` : off;
}

const goneText = (page) => `The process has ended or cannot be reached. ${page?.rows.length ? "These are the last rows that this page has." : "This page has no rows of it."}`;

function summary(page, query, runs) {
  if (!page.rows.length && !page.is_counted) return "Searching …";
  if (!page.rows.length && isFiltered()) return "No such row.";
  if (!page.rows.length) return page.note || (isOver(query) ? "There are no rows." : "There are no rows yet.");
  if (page.is_recent) return `${isFiltered() ? `${counted(page.num_found)} found among the last rows` : `${count(page.num_rows)} of the last rows`}, ${chosen("sort") ? "sorted" : "the newest first"}.`;
  const first = Number(chosen("first")), order = chosen("sort") ? `by ${chosen("sort")}` : "in the order of the output";
  if (!isFiltered()) return `${count(first + 1)} to ${count(first + page.rows.length)} of ${count(page.num_rows)} rows, ${order}.${unshared(page, runs)}`;
  const found = page.is_counted ? counted(page.num_found) : `At least ${counted(Math.max(page.num_found, page.rows.length))}`;
  const part = page.num_found > page.rows.length ? ` These are ${count(page.rows.length)} of them.` : "";
  return `${found} found among ${count(page.num_rows)}.${part}${unshared(page, runs)}`;
}

// The columns of two runs that are compared may differ.
function unshared(page, runs) {
  const only = (names, run) => (names.length ? ` Only in ${run}: ${names.join(", ")}.` : "");
  return only(page.only_here, runs[0]) + only(page.only_there, runs[1]);
}

// --- what is shown ---

function Filters({ page, runs, say, isStale }) {
  const typing = useRef(0), isCompared = runs.length > 1, facets = page?.facets ?? [];
  const [facet, setFacet] = useState(""), [operator, setOperator] = useState("is"), [value, setValue] = useState("");
  const [typed, setTyped] = useState(null), hasConditions = conditions().length > 0, [isUnfolded, setUnfolded] = useState(hasConditions);
  useEffect(() => { if (hasConditions) setUnfolded(true); }, [hasConditions]);
  const search = (event) => {
    const text = event.target.value;
    setTyped(text);
    clearTimeout(typing.current);
    typing.current = setTimeout(() => { go(filtered({ search: text }), true); setTyped(null); }, TYPING_MS);
  };
  const add = (event) => {
    event.preventDefault();
    go(withCondition([facet || facets[0], operator, value]));
    setValue("");
  };
  const jump = async (event) => {
    if (event.target.value === "") return;
    try {
      const found = await ask(`api/rows?${new URLSearchParams({ ...chosenOf(RUN), alone: 1, jump: event.target.value })}`);
      const row = found.rows[0];
      if (!row) say(`There is no row ${event.target.value} here.`);
      else go(address({ row: row.number, first: isFiltered() || found.is_recent ? chosen("first") : Math.floor(row.number / PAGE_ROWS) * PAGE_ROWS || null }));
    } catch (error) { say(error.message); }
  };
  return html`<form id="rows-form" class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label class="grow">Search <input id="search" type="search" autocomplete="off" placeholder="Text in any column" value=${typed ?? chosen("search")} onInput=${search} /></label>
      <label>Status <select id="status" value=${chosen("status")} onChange=${(event) => go(filtered({ status: event.target.value, error: null }))}>
        <option value="">all</option><option value="answered">answered</option><option value="failed">failed</option></select></label>
      <label>Sort by <select id="sort" value=${chosen("sort")} onChange=${(event) => go(filtered({ sort: event.target.value, desc: null }))}>
        <option value="">${page?.is_recent ? "newest" : "order of the output"}</option>${facets.map((name) => html`<option>${name}</option>`)}</select></label>
      ${chosen("sort") && html`<label class="check"><input type="checkbox" checked=${chosen("desc") === "1"} onChange=${(event) => go(filtered({ desc: event.target.checked }))} /> Largest first</label>`}
      ${isCompared && html`<label class="check"><input id="differing" type="checkbox" checked=${chosen("different") === "1"} onChange=${(event) => go(filtered({ different: event.target.checked }))} /> Different rows only</label>
        <label>Match by <select id="key" value=${chosen("key") || page?.key} onChange=${(event) => go(filtered({ key: event.target.value }))}>${(page?.keys ?? []).map((name) => html`<option>${name}</option>`)}</select></label>`}
      <label>Go to row <input id="jump" type="number" min="0" onChange=${jump} /></label>
    </form>
    <details class="more" open=${isUnfolded} onToggle=${(event) => setUnfolded(event.target.open)}><summary>Filter by column, hide columns, export</summary>
      <form class="filters" onSubmit=${add} aria-label="Filter by column">
        <label>Column <select value=${facet || facets[0]} onChange=${(event) => setFacet(event.target.value)}>${facets.map((name) => html`<option>${name}</option>`)}</select></label>
        <label>Condition <select value=${operator} onChange=${(event) => setOperator(event.target.value)}>${OPERATORS.map((name) => html`<option>${name}</option>`)}</select></label>
        <label>Value <input value=${value} disabled=${["null", "filled"].includes(operator)} onInput=${(event) => setValue(event.target.value)} /></label>
        <button type="submit" disabled=${!facets.length}>Add filter</button>
        <button type="button" aria-pressed=${Boolean(chosen("shapes"))} onClick=${() => go(address({ shapes: !chosen("shapes") }))}>Distributions</button>
        <label>Export <select id="export" value="" onChange=${(event) => exportRows(event.target, say)}><option value="">choose …</option><option value="csv">CSV</option><option value="jsonl">JSON Lines</option><option value="parquet">Parquet</option></select></label>
      </form>
      <fieldset class="columns"><legend>Columns</legend>${(page?.columns ?? []).map(({ name }) => html`<label class="check"><input type="checkbox" checked=${!hidden().includes(name)}
        onChange=${() => go(address({ hide: hidden().includes(name) ? (hidden().length > 1 ? JSON.stringify(hidden().filter((each) => each !== name)) : null) : JSON.stringify([...hidden(), name]) }))} /> ${name}</label>`)}</fieldset>
    </details>
    ${!isStale && html`<p class="chips">${chosen("error") && html`<${Chip} text="error: ${chosen("error")}" href=${filtered({ error: null })} />`}
      ${conditions().map((each) => html`<${Chip} text=${each.join(" ")} href=${filtered({ where: conditions().length > 1 ? JSON.stringify(conditions().filter((other) => String(other) !== String(each))) : null })} />`)}</p>`}`;
}

const Chip = ({ text, href }) => html`<a class="chip" href=${href} onClick=${follow} aria-label="Remove the filter ${text}">${shortened(text, 90)} ✕</a>`;

async function exportRows(select, say) {
  const format = select.value;
  select.value = "";
  if (!format) return;
  say("The rows are being written …");
  try {
    const response = await fetched(`api/export?${rowsQuery({ format })}`);
    const link = document.createElement("a"), url = URL.createObjectURL(await response.blob());
    link.href = url;
    link.download = `rows.${format}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
    say(response.headers.get("X-Rows") ?? "Exported.");
  } catch (error) { say(error.message); }
}

// --- the table ---

// The input that all rows of a page come from, as far as their numbers are known; null if there are several.
function onlySource(page) {
  const sources = new Set(page.rows.filter((row) => row.row !== null).map((row) => row.source));
  return sources.size === 1 ? [...sources][0] : null;
}

const isSorted = (name) => (chosen("sort") === name ? (chosen("desc") ? "descending" : "ascending") : undefined);

function Table({ page, runs, holder, open, isOff }) {
  const source = onlySource(page), without = hidden(), columns = page.columns.map((column, index) => ({ ...column, index })).filter(({ name }) => !without.includes(name));
  return html`<table id="rows-table" ref=${holder}><thead><tr>
      <th scope="col" title="The number of the row in the input, from 0.">Row<small>${source ? `of ${baseName(source)}` : "of the input"}</small></th>
      ${columns.map(({ name, type }) => html`<th scope="col" aria-sort=${isSorted(name)}>
        ${isOff ? name : html`<a href=${filtered({ sort: name, desc: isSorted(name) === "ascending" })} onClick=${follow} title="Sort by ${name}">${name}${{ ascending: " ↑", descending: " ↓" }[isSorted(name)] ?? ""}</a>`}<small>${shortened(type, 40)}</small></th>`)}
    </tr></thead><tbody>${page.rows.flatMap((row) => lines(row, page, columns, source, runs, open))}</tbody></table>`;
}

function lines(row, page, columns, source, runs, open) {
  const label = row.row === null ? "open" : source ? String(row.row) : placeText(row).slice("row ".length), mark = { 1: " ▲", "-1": " ▼" }[row.review?.thumb] ?? "";
  const line = html`<tr key=${row.number} class=${[row.error && "failed", open !== "" && Number(open) === row.number && "open"].filter(Boolean).join(" ")}>
    <td data-label="Row">${chosen("try") === "rows" && html`<input type="checkbox" aria-label="Try ${placeText(row)}" checked=${picked().includes(row.number)} onChange=${() => togglePick(row.number)} /> `}<button type="button" class="link" title=${placeTitle(row)} aria-label="Open ${placeText(row)}" data-number=${row.number} onClick=${() => go(address({ row: row.number }))}>${label}</button>${mark}${row.review?.note ? " ✎" : ""}</td>
    ${columns.map(({ name, index }) => {
      const cell = row.cells[index], differs = cellDiffers(row, index, page);
      return html`<td class=${cell?.number ? "n" : ""} data-label=${name}><${CellInTable} cell=${cell} />
        ${differs && html`<div class="pair differs"><span class="run-name">${baseName(runs[1])}</span><${CellInTable} cell=${row.other[index]} /></div>`}</td>`;
    })}</tr>`;
  if (!row.error) return [line];
  return [line, html`<tr key="${row.number} failed" class="failed reason"><td colspan=${columns.length + 1}><div class="clamp bad-text">${`${row.error.error_type}: ${row.error.message}`}</div></td></tr>`];
}

export const cellDiffers = (row, index, page) => row.other && !page.only_here.includes(page.columns[index].name) && !sameCell(row.cells[index], row.other[index]);
