// The page of the dashboard. Text from data only ever becomes a text node, never markup.
import { html, render, useEffect, useLayoutEffect, useRef } from "./vendor/preact.js";
import { Home } from "./home.js";
import { Rows } from "./rows.js";
import { Run } from "./run.js";
import { address, ask, chosen, chosenOf, follow, go, isGone, news, RUN, whenAddressChanges } from "./server.js";
import { baseName, counted, isOver, isPaused, percent, roughly, seconds, shareDone, shortened, stateText } from "./text.js";

const FIRST_POLL_MS = 300, POLL_MS = 1000, LATER_POLL_MS = 2500, IDLE_POLL_MS = 3000, LATER_S = 20, SAID_MS = 8000;
const pageId = Math.random().toString(36).slice(2); // the process waits for open pages when it ends

const page = { state: null, seenAt: null, seenEnd: null, notice: "", said: "", question: null, tick: 0, isGone: false, lastRows: null };
let timer = 0, saidTimer = 0;
const draw = () => render(html`<${App} />`, document.body);

function say(text) {
  page.said = text;
  clearTimeout(saidTimer);
  saidTimer = setTimeout(() => { page.said = ""; draw(); }, SAID_MS);
  draw();
}

// --- the state of the run ---

const runKey = () => JSON.stringify(chosenOf(RUN)), moreKey = () => JSON.stringify(chosenOf(["errors"]));
let turn = 0, polledRun = "", polledMore = "";

async function poll() {
  clearTimeout(timer);
  let delay = IDLE_POLL_MS;
  const mine = ++turn;
  [polledRun, polledMore] = [runKey(), moreKey()];
  try {
    const state = await news("api/state", { ...chosenOf([...RUN, "errors"]), page: pageId, points: page.state?.query?.history.times.at(-1) ?? "" });
    if (mine !== turn) return;
    const before = page.state?.query;
    if (state.query) state.query.history ??= before.history; // the page has these points
    const isSame = state === page.state && !page.notice;
    Object.assign(page, { state, seenAt: new Date(), notice: "", isGone: false });
    if (state.query && !isOver(state.query)) delay = page.tick < 3 ? FIRST_POLL_MS : state.query.elapsed_s < LATER_S ? POLL_MS : LATER_POLL_MS;
    if (isOver(state.query) && before && !isOver(before) && before.id === state.query.id) announce(state.query);
    if (!isSame) { page.tick += 1; draw(); }
    if (state.end && state.end !== page.seenEnd) await keepEnd(state.end);
  } catch (error) {
    if (mine !== turn) return;
    const query = page.state?.query;
    if (isGone(error) && !page.isGone && query && !isOver(query) && !isJob()) announce({ ...query, state: "ended: its process is gone or cannot be reached" });
    page.isGone = isGone(error);
    page.notice = page.isGone ? goneText() : error.message;
    draw();
  }
  const isList = page.state?.has_home && !page.state.query; // the list asks for its own news
  if (mine === turn && (page.notice || !isList)) timer = setTimeout(poll, delay);
}

// The process may be gone at once after its last query: the page gets the last rows before it says that it has all.
async function keepEnd(end) {
  page.lastRows = await ask(`api/rows?${new URLSearchParams(chosenOf(RUN))}`);
  await ask("api/seen", { page: pageId, end });
  page.seenEnd = end;
}

const isJob = () => Boolean(page.state?.runs?.length);

function goneText() {
  const source = isJob() ? "The dashboard" : "The process", state = isJob() ? "this is the job as it was" : "this is its state";
  return page.seenAt === null ? `${source} has ended or cannot be reached.` : `${source} has ended or cannot be reached; ${state} at ${page.seenAt.toLocaleTimeString()}.`;
}

// --- changes: each asks once, and says what it did ---

async function control(change) {
  try {
    say((await ask("api/control", { ...chosenOf(RUN), query: page.state.query.id, ...change })).done || "Done.");
    setTimeout(poll, FIRST_POLL_MS);
  } catch (error) { say(error.message); }
}

function confirm(question) {
  page.question = question;
  draw();
}

function announce(query) {
  if (document.hidden && allowed === "granted") {
    new Notification(`${shortName(query)} ${query.state}`, { body: query.error || `${counted(query.num_failed)} failed, ${seconds(query.elapsed_s)}` });
  }
}

const shortName = (query) => (isJob() ? page.state.runs.map(baseName).join(" and ") : query.name);

// --- the page ---

function App() {
  const { state } = page, query = state?.query, view = chosen("view") || (state && !query && state.has_home ? "home" : "run");
  useLayoutEffect(() => { // an effect after the drawing would cost a frame of its own
    if (!query || view === "home") return;
    const stage = query.stages[query.calls_stage ?? query.stages.length - 1], share = shareDone(stage);
    const shown = page.isGone && !isOver(query) ? goneState(query) : !isOver(query) && share !== null ? `${percent(share)} ${query.state}` : query.state;
    const title = `${shown} · ${shortened(shortName(query), 40)} · Penstock`;
    if (document.title !== title) document.title = title;
  });
  return html`<a class="skip" href="#main">Skip to content</a>
    <header class="top">
      <div class="brand"><svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true" focusable="false">
        <path d="M3 5h9a6 6 0 0 1 6 6v3" fill="none" stroke="currentColor" stroke-width="3.2" stroke-linecap="round" />
        <path d="M18 17.2c1.5 1.7 2.2 2.7 2.2 3.6a2.2 2.2 0 0 1-4.4 0c0-.9.7-1.9 2.2-3.6z" fill="currentColor" /></svg><strong>Penstock</strong></div>
      <nav class="crumbs" aria-label="Place">${state?.has_home && html`<a href=${isJob() || !query ? "/" : "?view=home"} aria-current=${view === "home" ? "page" : undefined} onClick=${follow}>Jobs</a>`}
        <span id="source" class="source">${state?.source ?? ""}</span></nav>
      ${query && view !== "home" && html`<nav id="tabs" class="tabs" aria-label="Views">${[["run", "Run"], ["rows", "Rows"]].map(([name, text]) =>
        html`<a href=${address({ view: name === "run" ? null : name }, true)} aria-current=${view === name ? "page" : undefined} onClick=${follow}>${text}</a>`)}</nav>`}
      <${Theme} />
    </header>
    <main id="main" tabindex="-1">
      <p id="notice" class="notice" role="status" hidden=${!page.notice}>${page.notice}</p>
      <p id="said" class="said" role="status" hidden=${!page.said}>${page.said}</p>
      ${view === "home" ? html`<${Home} />` : state && html`<${Query} state=${state} view=${view} />`}
    </main>
    <${Question} />`;
}

const goneState = (query) => (isJob() ? `last seen ${query.state}` : "process ended");

// The figures of a query whose process is gone: nothing runs, waits or can be changed any more.
function asStopped(query) {
  const stages = query.stages.map((stage) => (stage.state !== "running" ? stage : { ...stage, state: "stopped", num_running: 0, num_rows_queued: 0, nbytes_queued: 0,
    rate: query.elapsed_s ? stage.num_done / query.elapsed_s : 0, calls: stage.calls && { ...stage.calls, num_in_flight: 0 } }));
  return { ...query, state: "stopped", left_s: null, can_control: false, stages, models: query.models.map((model) => ({ ...model, num_in_flight: 0, num_waiting: 0 })) };
}

function Query({ state, view }) {
  const { query } = state, runs = state.runs ?? [];
  if (!query) {
    return html`<section id="run" aria-label="Run"><div id="no-query" class="card waiting"><p><strong>No query has started yet.</strong></p>
      <p>Each query of this process appears here by itself, with its plan, throughput, costs and rows.</p></div></section>`;
  }
  const shown = !page.isGone || isOver(query) ? query : isJob() ? { ...query, left_s: null, can_control: false } : asStopped(query); // a job may still run
  return html`<section id=${view} aria-label=${view === "rows" ? "Rows" : "Run"}>
    <${Headline} query=${query} state=${state} isSmall=${view === "rows"} />
    ${view === "rows" ? html`<${Rows} query=${query} runs=${runs} compared=${state.compared ?? []} tick=${page.tick} say=${say} confirm=${confirm} last=${page.lastRows} isOff=${page.isGone} />` : html`<${Run} query=${shown} control=${control} confirm=${confirm} theme=${theme()} output=${state.output} isOff=${page.isGone} />`}
  </section>`;
}

function Headline({ query, state, isSmall }) {
  const isLost = page.isGone && !isOver(query), left = query.left_s ?? null, Title = isSmall ? "p" : "h1";
  const elapsed = (isSmall && !isOver(query) ? roughly : seconds)(query.elapsed_s); // beside rows, each new text draws the page again
  const time = isLost ? `after ${elapsed}, last seen ${query.state}`
    : `${elapsed}${isPaused(query) ? " since the start" : ""}${left === null ? "" : `, about ${roughly(left)} left`}`;
  return html`<div class="headline">
      <div class="headline-text"><${Title} id="query-name" class="query-name">${shortName(query)}<//>
        ${isJob() && !isSmall && html`<p class="sub">${query.name}</p>`}
        <p class="sub"><span id="query-state" class="badge" data-state=${isLost ? "stopped" : query.state}>${isLost ? goneState(query) : stateText(query)}</span> <span id="query-time">${time}</span></p></div>
      <div class="actions">
        ${state.queries.length > 1 && html`<label>Query <select id="queries" value=${chosen("query")} onChange=${(event) => go(address({ query: event.target.value, row: null, first: null }))}>
          <option value="">the latest</option>${state.queries.map((each) => html`<option value=${each.id}>${`${each.id}. ${shortened(each.name, 60)} (${each.state})`}</option>`)}</select></label>`}
        ${query.can_control && !isLost && html`<${Actions} query=${query} />`}
        ${state.can_try_input && isOver(query) && query.state !== "finished" && !page.isGone && html`<a class="button" href=${address({ view: "rows", try: "input" }, true)} onClick=${follow}>Try 20 rows first</a>`}
        ${state.command && isOver(query) && !page.isGone && html`<${Again} query=${query} command=${state.command} />`}
      </div></div>
    ${!isSmall && !state.command && state.program && isOver(query) && (query.state !== "finished" || query.num_failed > 0) && html`<${Program} query=${query} program=${state.program} />`}
    ${query.can_control && query.order_interval_s > 1 && html`<p class="sub">The run looks for orders every ${query.order_interval_s} seconds.</p>`}
    <p id="query-error" class="failure" role="alert" hidden=${!query.error}>${query.error}</p>`;
}

function Actions({ query }) {
  const stop = () => confirm({ text: "Stop this query? Rows that a job has committed stay; the others are lost.", no: "Keep it running", yes: "Stop the query", act: () => control({ action: "cancel" }) });
  const pause = () => confirm({ text: "Pause this query? Calls and tasks that run finish, and none starts until you resume it.", no: "Keep it running", yes: "Pause the query", act: () => control({ action: "pause" }) });
  const budget = () => confirm({ text: "The most that the run may cost in all, in dollars, with what is spent:", no: "Leave it", yes: "Set the budget", value: query.budget, act: (value) => control({ action: "budget", dollars: value }) });
  return html`${allowed === "default" && html`<button type="button" class="quiet" onClick=${notify}>Notify me</button>`}
    ${query.budget && html`<button type="button" onClick=${budget}>Budget</button>`}
    <button id="pause" type="button" onClick=${isPaused(query) ? () => control({ action: "resume" }) : pause}>${isPaused(query) ? "Resume" : "Pause"}</button>
    <button id="stop" type="button" class="danger" onClick=${stop}>Stop</button>`;
}

let allowed = "Notification" in window ? Notification.permission : "denied"; // asking the browser again for each drawing is slow

async function notify() {
  allowed = await Notification.requestPermission();
  say(allowed === "granted" ? "The browser tells you when the query ends." : "The browser shows no notifications.");
}

// The command line that began a job can run again; what it has done stays.
function Again({ query, command }) {
  const ask = (action, text) => confirm({ text, detail: command, no: "No", yes: "Start it", act: () => control({ action }) });
  return html`${query.state !== "finished" && html`<button type="button" onClick=${() => ask("continue", "Continue the job with the command that began it? Finished rows and answers are kept.")}>Continue</button>`}
    ${query.num_failed > 0 && html`<button type="button" onClick=${() => ask("retry", `Run the ${query.num_failed} failed rows again with the command that began the job? The new results replace the old ones.`)}>Retry ${query.num_failed}</button>`}`;
}

// A script may do more than the job, so the page does not start it.
function Program({ query, program }) {
  const command = `cd ${/^[\w./-]+$/.test(program.folder) ? program.folder : `'${program.folder.replaceAll("'", "'\\''")}'`} && ${program.command}`;
  const copy = async () => say(await navigator.clipboard.writeText(command).then(() => "The command is copied.", () => "The browser allows no copy."));
  return html`<p id="program" class="sub">${query.state !== "finished" && "To continue, start the program again that began the job. "}
    ${query.num_failed > 0 && html`To run the ${counted(query.num_failed, "failed row")} again, start it with <code>resume="errors"</code> in its write. `}
    <code>${command}</code> <button type="button" class="quiet" onClick=${copy}>Copy the command</button></p>`;
}

function Question() {
  const dialog = useRef(null), input = useRef(null), question = page.question;
  useEffect(() => {
    if (question && !dialog.current.open) dialog.current.showModal();
    if (!question && dialog.current.open) dialog.current.close();
  }, [question]);
  const answer = (isYes) => { const value = input.current?.value; confirm(null); if (isYes) question.act(value); };
  return html`<dialog id="confirm" ref=${dialog} aria-labelledby="confirm-text" onClose=${() => { if (page.question) confirm(null); }}>
    ${question && html`<p id="confirm-text">${question.text}</p>${question.detail && html`<pre>${question.detail}</pre>`}
      ${question.value !== undefined && html`<input ref=${input} type="number" min="0" step="any" defaultValue=${question.value} aria-labelledby="confirm-text" />`}
      <div class="actions"><button type="button" onClick=${() => answer(false)}>${question.no}</button><button type="button" class="danger" onClick=${() => answer(true)}>${question.yes}</button></div>`}
  </dialog>`;
}

// --- themes ---

const systemTheme = matchMedia("(prefers-color-scheme: dark)");
const theme = () => localStorage.getItem("penstock-theme") ?? (systemTheme.matches ? "dark" : "light");

function setTheme() {
  document.documentElement.dataset.theme = theme();
  draw();
}

function Theme() {
  const other = theme() === "dark" ? "light" : "dark";
  return html`<button id="theme" class="quiet" type="button" aria-label="Change to the ${other} theme" onClick=${() => { localStorage.setItem("penstock-theme", other); setTheme(); }}>${other === "light" ? "☀" : "☾"}</button>`;
}

systemTheme.addEventListener("change", setTheme);
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
whenAddressChanges(() => {
  const isOther = polledRun !== runKey();
  if (isOther) page.state = null;
  if (isOther || polledMore !== moreKey()) poll();
  draw();
});
setTheme();
poll();
