// The page of the dashboard. Text from data only ever becomes a text node, never markup.
"use strict";

const POLL_MS = 500, IDLE_POLL_MS = 2000, HIDDEN_POLL_MS = 1500, MAX_LINES = 8, FIRST_ERRORS = 8;
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);

// --- the token: from the URL's fragment into this tab's storage, out of sight ---

const fragment = location.hash.slice(1);
if (fragment && !["run", "rows", "main"].includes(fragment)) {
  sessionStorage.setItem("penstock-token", fragment);
  history.replaceState(null, "", location.pathname);
}

async function ask(path, body) {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem("penstock-token") ?? ""}` };
  const options = body === undefined ? { headers } : { headers, method: "POST", body: JSON.stringify(body) };
  const response = await fetch(path, options);
  if (response.status === 401) throw new Error("token");
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error ?? response.statusText);
  return answer;
}

// --- building elements ---

function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== false) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function show(element, isShown) {
  element.hidden = !isShown;
}

// A column may be named "constructor" or "__proto__".
const own = (object, name) => (object && Object.hasOwn(object, name) ? object[name] : undefined);

// --- numbers for people ---

const count = (value) => Math.round(value).toLocaleString("en-US");
const counted = (rows) => `${count(rows)} ${rows === 1 ? "row" : "rows"}`;
const rate = (value) => (value >= 10 ? count(value) : value ? value.toFixed(1) : "0");

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit && value < 99.5 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

function seconds(value) {
  if (value < 59.5) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  const total = Math.round(value), minutes = Math.floor(total / 60);
  if (minutes < 60) return `${minutes} min ${total % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const latency = (value) => (value < 1 ? `${Math.round(1000 * value)} ms` : seconds(value));

function dollars(value) {
  if (value === null) return "unknown";
  return `$${value.toFixed(value < 0.1 && value > 0 ? 4 : 2)}`;
}

const shortened = (text, length) => (text.length > length ? `${text.slice(0, Math.max(length - 1, 1))}…` : text);

// --- the run ---

let chosen = null; // the id of the query that the person chose; null for the latest
let shown = null; // the query on the page
let seenAt = null, seenEnd = null; // the time of the last state, and the end of all queries that this page shows
const pageId = Math.random().toString(36).slice(2); // the process waits for open pages when it ends
const isOver = (query) => Boolean(query) && !["running", "pausing", "paused"].includes(query.state);
const isGone = (error) => error instanceof TypeError; // the server did not answer

async function poll() {
  let delay = document.hidden ? HIDDEN_POLL_MS : IDLE_POLL_MS;
  try {
    const asked = new URLSearchParams({ page: pageId, ...(chosen === null ? {} : { query: chosen }) });
    const state = await ask(`api/state?${asked}`);
    seenAt = new Date();
    show($("notice"), false);
    renderState(state);
    if (state.query && !isOver(state.query) && !document.hidden) delay = POLL_MS;
    if (state.end && state.end !== seenEnd) await keepEnd(state.end);
  } catch (error) {
    if (isGone(error)) renderGone();
    else notice(error.message === "token" ? "This page needs its token. Open the whole URL that Penstock printed." : error.message);
  }
  setTimeout(poll, delay);
}

// The process may be gone at once after its last query: the page gets the last rows before it says that it has all.
async function keepEnd(end) {
  if ($("rows").hidden || canReplaceRows()) await loadRows();
  await ask("api/seen", { page: pageId, end });
  seenEnd = end;
}

function renderGone() {
  const source = runs.length ? "The dashboard" : "The process", state = runs.length ? "this is the job as it was" : "this is its state";
  notice(seenAt === null ? `${source} has ended or cannot be reached.`
    : `${source} has ended or cannot be reached; ${state} at ${seenAt.toLocaleTimeString()}.`);
  if (!shown || isOver(shown)) return;
  const text = runs.length ? `last seen ${shown.state}` : "process ended";
  document.title = `${text} · Penstock`;
  setText($("query-state"), text);
  $("query-state").dataset.state = "stopped";
  setText($("query-time"), `after ${seconds(shown.elapsed_s)}, last seen ${shown.state}`);
  show($("pause"), false);
  show($("cancel"), false);
}

function notice(text) {
  setText($("notice"), text);
  show($("notice"), true);
}

function renderState(state) {
  setText($("source"), state.source);
  runs = state.runs ?? [];
  renderQueries(state.queries);
  show($("no-query"), !state.query);
  show($("figures"), Boolean(state.query));
  if (!state.query) return;
  const query = state.query, isNews = !isOver(query) || query.state !== shown?.state;
  shown = query;
  document.title = `${query.state} · Penstock`;
  setText($("query-name"), query.name);
  setText($("query-state"), stateText(query));
  $("query-state").dataset.state = query.state;
  const left = query.left_s ?? null;
  setText($("query-time"), `${seconds(query.elapsed_s)}${query.state.startsWith("paus") ? " since the start" : ""}${left === null ? "" : `, about ${seconds(left)} left`}`);
  setText($("query-error"), query.error);
  show($("query-error"), Boolean(query.error));
  show($("pause"), query.can_control);
  show($("cancel"), query.can_control);
  show($("order-delay"), query.can_control && query.order_interval_s > 1);
  setText($("order-delay"), `The run looks for orders every ${query.order_interval_s} seconds.`);
  setText($("pause"), isPaused(query) ? "Resume" : "Pause");
  show($("no-figures"), !query.stages.length);
  show($("graphs"), query.stages.length > 0);
  renderTiles(query);
  renderPlan(query);
  renderCharts(query);
  renderStages(query);
  renderModels(query.models);
  renderGpus(query.gpus ?? []); // a job of an older version has noted none
  renderCounters(query.counters);
  renderErrors(query);
  if (isFollowed && isNews && canReplaceRows()) loadRows(canReplaceRows);
}

const isPaused = (query) => ["pausing", "paused"].includes(query.state);

function stateText(query) {
  if (query.state !== "pausing") return query.state;
  const { calls, tasks } = query.under_way, parts = ["pausing"];
  if (calls) parts.push(`${count(calls)} ${calls === 1 ? "call" : "calls"} in flight`);
  if (tasks) parts.push(`${count(tasks)} ${tasks === 1 ? "task" : "tasks"} running`);
  return parts.join(", ");
}

function renderQueries(queries) {
  const key = JSON.stringify(queries.map((query) => [query.id, query.state])), select = $("queries");
  show($("query-choice"), queries.length > 1);
  if (select.dataset.key === key) return;
  select.dataset.key = key;
  select.replaceChildren(
    make("option", { value: "" }, "the latest"),
    ...queries.map((query) => make("option", { value: query.id }, `${query.id}. ${shortened(query.name, 60)} (${query.state})`)),
  );
  select.value = chosen === null ? "" : String(chosen);
}

function lastStage(query) {
  return query.stages[query.stages.length - 1];
}

// A stage of calls counts its calls, others count rows.
const shareDone = (stage) => (stage?.total ? Math.min(stage.num_done / stage.total, 1) : null);
const inFlight = (calls) => (calls.num_in_flight ? `${count(calls.num_in_flight)} in flight` : "");

function progressText(stage) {
  const { calls } = stage;
  if (!calls) return `${count(stage.num_rows)} rows`; // a job of an older version has noted none
  return `${count(calls.num_answered)}${calls.total === null ? "" : ` of ${count(calls.total)}`} answered`;
}

function callsText(stage) {
  const { calls } = stage, failed = calls?.num_failed ? `${count(calls.num_failed)} failed` : "";
  return calls ? [progressText(stage), inFlight(calls), failed].filter(Boolean).join(", ") : "";
}

function renderTiles(query) {
  const last = lastStage(query), numRows = query.num_rows ?? last?.num_rows ?? 0; // a job has rows of earlier runs
  const figures = query.history.figures, newest = figures[figures.length - 1] ?? [0, 0];
  const peak = Math.max(0, ...figures.map((row) => row[0]));
  const tokens = query.models.reduce((sum, model) => sum + model.input_tokens + model.output_tokens, 0);
  const priced = query.models.every((model) => model.dollars !== null);
  const spent = priced ? query.models.reduce((sum, model) => sum + model.dollars, 0) : null;
  const calling = query.stages[query.calls_stage ?? -1], counted = calling ?? last, done = shareDone(counted);
  const part = done === null ? "" : `${Math.floor(done * 100)} % of ${count(counted.total)}`;
  const tiles = [
    ...(calling ? [["Answered", count(calling.calls.num_answered), [part, inFlight(calling.calls)].filter(Boolean).join(", "), "", done]] : []),
    ["Rows", count(numRows), calling ? "" : part, "", calling ? null : done],
    [calling ? "Answers / s" : "Rows per second", rate(counted?.rate ?? 0), isOver(query) ? "on average" : "lately"],
    ["Failed rows", count(query.num_failed), query.num_failed && numRows ? `${(100 * query.num_failed / numRows).toPrecision(2)} % of the rows` : "", query.num_failed ? "bad" : ""],
  ];
  if (newest[0]) tiles.push(["Memory", bytes(newest[0]), `at most ${bytes(peak)}`]);
  if (query.models.length) {
    const projected = query.models.reduce((sum, model) => sum + (model.projected_dollars ?? NaN), 0);
    tiles.push(["Cost", dollars(spent), !isOver(query) && projected > spent ? `about ${dollars(projected)} in all` : ""]);
    tiles.push(["Tokens", count(tokens), query.elapsed_s ? `${count(tokens / query.elapsed_s)} per second` : ""]);
  }
  const holder = $("tiles");
  while (holder.children.length > tiles.length) holder.lastChild.remove();
  tiles.forEach(([label, value, note = "", tone = "", done = null], index) => {
    const tile = holder.children[index] ?? holder.appendChild(make("div", { class: "tile" },
      make("dt"), make("dd", { class: "value" }), make("dd", { class: "note" })));
    tile.dataset.tone = tone;
    setText(tile.children[0], label);
    setText(tile.children[1], value);
    const noted = tile.children[2];
    if (done === null) return setText(noted, note);
    if (!noted.querySelector("progress")) noted.replaceChildren(make("span"), make("progress", { max: 1, "aria-label": `${label} done` }));
    setText(noted.firstChild, note);
    noted.lastChild.value = done;
  });
}

// --- the plan as a graph ---

function renderPlan(query) {
  const holder = $("plan"), width = Math.max(holder.clientWidth, 280), stages = query.stages;
  if (!stages.length) return; // a job that has not noted its stages yet
  const depth = [];
  stages.forEach((stage) => { depth[stage.index] = Math.max(-1, ...stage.inputs.map((input) => depth[input])) + 1; });
  const levels = [];
  stages.forEach((stage) => (levels[depth[stage.index]] ??= []).push(stage));
  const numLevels = levels.length, widest = Math.max(1, ...levels.map((level) => level.length));
  const gap = 58, height = 76, fitting = (width - (numLevels - 1) * gap) / numLevels;
  const isWide = fitting >= 132, nodeWidth = isWide ? Math.min(fitting, 236) : Math.min((width - (widest - 1) * 16) / widest, 320);
  const place = {};
  levels.forEach((level, row) => level.forEach((stage, lane) => {
    place[stage.index] = isWide
      ? { x: row * (nodeWidth + gap), y: lane * (height + 18) + 12 }
      : { x: lane * (nodeWidth + 16), y: row * (height + 42) + 12 };
  }));
  const fullWidth = isWide ? numLevels * (nodeWidth + gap) - gap : width;
  const fullHeight = (isWide ? widest * (height + 18) - 18 : numLevels * (height + 42) - 42) + 16;
  const svg = draw("svg", { viewBox: `-2 0 ${fullWidth + 4} ${fullHeight}`, role: "img", "aria-label": planText(query) });
  svg.setAttribute("width", fullWidth + 4);
  svg.style.maxWidth = `${fullWidth + 4}px`;
  for (const stage of stages) for (const input of stage.inputs) svg.append(...edge(place[input], place[stage.index], nodeWidth, height, isWide, stage));
  for (const stage of stages) svg.append(node(stage, place[stage.index], nodeWidth, height, query));
  holder.replaceChildren(svg);
}

function planText(query) {
  return query.stages.map((stage) => `${stage.name}: ${stage.state}, ${callsText(stage) || progressText(stage)}` +
    (stage.index === query.bottleneck ? ", the bottleneck" : "")).join("; ");
}

function edge(from, to, width, height, isWide, stage) {
  const [x1, y1] = isWide ? [from.x + width, from.y + height / 2] : [from.x + width / 2, from.y + height];
  const [x2, y2] = isWide ? [to.x - 7, to.y + height / 2] : [to.x + width / 2, to.y - 7];
  const path = isWide
    ? `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`
    : `M${x1} ${y1}C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}`;
  const tip = isWide ? `M${x2 + 7} ${y2}l-8 -4.5v9z` : `M${x2} ${y2 + 7}l-4.5 -8h9z`;
  const parts = [draw("path", { class: "edge", d: path }), draw("path", { class: "arrow", d: tip })];
  if (stage.num_rows_queued) {
    const at = isWide ? { x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 6, "text-anchor": "middle" } : { x: (x1 + x2) / 2 + 8, y: (y1 + y2) / 2 + 6 };
    parts.push(draw("text", { class: "edge-label", ...at }, compact(stage.num_rows_queued)));
  }
  return parts;
}

function compact(value) {
  if (value < 10) return String(Number(value.toFixed(1)));
  return value < 10_000 ? count(value) : value < 1e6 ? `${Math.round(value / 1e3)}k` : `${(value / 1e6).toFixed(1)}M`;
}

function node(stage, { x, y }, width, height, query) {
  const isSlow = stage.index === query.bottleneck;
  const group = draw("g", { class: `node${isSlow ? " bottleneck" : ""}`, "data-state": stage.state, transform: `translate(${x} ${y})` },
    draw("rect", { width, height, rx: 10 }),
    draw("text", { class: "name", x: 12, y: 24 }, shortened(stage.name, Math.floor((width - 22) / 7.4))),
    draw("text", { class: "figure", x: 12, y: 44 }, progressText(stage)),
    draw("text", { class: "figure", x: 12, y: 61 }, stage.state === "running" ? [`${rate(stage.rate)}/s`, stage.calls && inFlight(stage.calls)].filter(Boolean).join(", ") : stage.state));
  group.append(draw("title", {}, stage.name));
  if (isSlow) group.append(draw("text", { class: "flag", x: width - 10, y: -3, "text-anchor": "end" }, "bottleneck"));
  const share = shareDone(stage);
  if (share !== null) {
    group.append(draw("path", { class: "bar", d: `M13 ${height - 8}h${((width - 26) * share).toFixed(1)}` }));
  }
  return group;
}

// --- charts ---

function renderCharts(query) {
  const { times, figures } = query.history, stages = query.stages.filter((stage) => stage.kind !== "write").slice(-MAX_LINES);
  const lines = stages.map((stage) => ({
    name: stage.name, points: rates(times, figures.map((row) => row[2 + stage.index])), latest: `${rate(stage.rate)} rows/s`,
  }));
  renderChart("rate", times, lines, usualMaximum(lines), compact, (value) => `${rate(value)} rows/s`);
  const newest = figures[figures.length - 1] ?? [0, 0];
  const memory = [
    { name: "this process", points: figures.map((row) => row[0]), latest: bytes(newest[0]) },
    { name: "data in flight", points: figures.map((row) => row[1]), latest: bytes(newest[1]) },
  ];
  renderChart("memory", times, memory, Math.max(0, ...figures.flatMap((row) => row.slice(0, 2))), bytes, bytes);
}

// Rows come in batches, so a rate is the mean over a window.
function rates(times, rows) {
  const window = Math.max(2, 0.04 * (times[times.length - 1] ?? 0));
  let before = 0;
  return rows.map((value, index) => {
    while (before < index && times[before + 1] <= times[index] - window) before += 1;
    return times[index] > times[before] ? (value - rows[before]) / (times[index] - times[before]) : 0;
  });
}

function niceMaximum(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

// A short burst, such as a quick read at the start, must not flatten all the rest: it leaves the chart at the top.
function usualMaximum(lines) {
  const usual = lines.map((line) => [...line.points].sort((a, b) => a - b)[Math.floor(line.points.length * 0.75)] ?? 0);
  const last = lines[lines.length - 1]?.points ?? [], highest = Math.max(0, ...lines.flatMap((line) => line.points));
  const shown = Math.max(2 * Math.max(0, ...usual), 1.1 * Math.max(0, ...last));
  return shown > 0 ? Math.min(highest, shown) : highest;
}

function renderChart(name, times, lines, maximum, label, spoken) {
  const holder = $(`${name}-chart`), width = Math.max(holder.clientWidth, 260), height = 180;
  const left = 54, right = 8, top = 8, bottom = 22, last = Math.max(times[times.length - 1] ?? 1, 0.001);
  const highest = niceMaximum(maximum);
  const x = (time) => left + (time / last) * (width - left - right);
  const y = (value) => Math.max(top - 4, height - bottom - (value / highest) * (height - top - bottom));
  const text = lines.map((line) => `${line.name}: ${line.latest}, at most ${spoken(Math.max(0, ...line.points))}`).join("; ");
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": text });
  for (const share of [0, 0.5, 1]) {
    const level = y(highest * share);
    svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: level, y2: level }),
      draw("text", { x: left - 8, y: level + 4, "text-anchor": "end" }, label(highest * share)));
  }
  for (const share of [0, 0.5, 1]) {
    svg.append(draw("text", { x: x(last * share), y: height - 5, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle" }, seconds(last * share)));
  }
  lines.forEach((line, index) => {
    const path = line.points.map((value, point) => `${point ? "L" : "M"}${x(times[point]).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    svg.append(draw("path", { class: `lineplot c${index % MAX_LINES}`, d: path }));
  });
  holder.replaceChildren(svg);
  $(`${name}-legend`).replaceChildren(...lines.map((line, index) => make("li", {},
    draw("svg", { width: 16, height: 8, "aria-hidden": "true" }, draw("path", { class: `c${index % MAX_LINES}`, d: "M0 4h16", "stroke-width": 3 })),
    make("span", { class: "name" }, line.name), make("span", {}, line.latest))));
}

// --- tables ---

function renderStages(query) {
  const body = $("stages").tBodies[0], key = `${query.id} ${query.stages.map((stage) => canLimit(stage, query))}`;
  if (body.dataset.key !== key) {
    body.dataset.key = key;
    body.replaceChildren(...query.stages.map((stage) => stageRow(stage, query)));
  }
  query.stages.forEach((stage, index) => {
    const row = body.rows[index], [name, rows, speed, running, limit, queued, work, failed] = row.cells;
    setText(name.firstChild, stage.name);
    const isSlow = stage.index === query.bottleneck;
    setText(name.children[1], isSlow ? "bottleneck" : "");
    name.children[1].className = isSlow ? "flag-text" : "";
    setText(name.lastChild, callsText(stage));
    setText(rows, count(stage.num_rows));
    setText(speed, rate(stage.rate));
    setText(running, stage.num_workers ? count(stage.num_running) : "–");
    setText(queued, stage.num_rows_queued ? `${count(stage.num_rows_queued)} rows, ${bytes(stage.nbytes_queued)}` : "–");
    setText(work, seconds(stage.busy_s));
    setText(failed, count(stage.num_failed));
    failed.className = stage.num_failed ? "n bad-text" : "n";
    const input = limit.querySelector("input");
    if (input) {
      if (document.activeElement !== input) input.value = stage.limit ?? stage.num_allowed ?? stage.num_workers;
    } else {
      setText(limit, stage.num_workers ? count(stage.limit ?? stage.num_allowed ?? stage.num_workers) : "–");
    }
  });
}

const canLimit = (stage, query) => query.can_control && stage.num_workers > 0 && stage.state !== "finished";

function stageRow(stage, query) {
  const cell = (label) => make("td", { class: "n", "data-label": label });
  const limit = cell("At most");
  if (canLimit(stage, query)) {
    const input = make("input", { type: "number", min: 1, max: stage.is_remote ? null : stage.num_workers,
      "aria-label": `Most ${stage.is_remote ? "calls" : "tasks"} at once of ${stage.name}` });
    input.addEventListener("change", () => {
      const value = Math.min(Number.parseInt(input.value, 10), input.max || Infinity);
      if (value >= 1) control({ action: "limit", stage: stage.index, max_running: value });
    });
    limit.append(input);
  }
  return make("tr", {}, make("th", { scope: "row" }, make("span", {}, stage.name), make("span"), make("div", { class: "calls" })),
    cell("Rows"), cell("Rows/s"), cell("Running"), limit, cell("Queued"), cell("Busy"), cell("Failed"));
}

function renderModels(models) {
  show($("models-card"), models.length > 0);
  fillTable("models", models.map((model) => [
    `${model.provider} / ${model.model}`,
    count(model.num_calls), count(model.num_cached), count(model.input_tokens), count(model.output_tokens), dollars(model.dollars),
    count(model.num_in_flight), model.num_allowed === null ? "–" : count(model.num_allowed), count(model.num_waiting), count(model.num_refused),
  ]));
}

// The labels of cells stand before them on a narrow screen.
function fillTable(id, rows) {
  const labels = [...$(id).tHead.rows[0].cells].map((cell) => cell.textContent);
  $(id).tBodies[0].replaceChildren(...rows.map(([name, ...cells]) => make("tr", {}, make("th", { scope: "row" }, name),
    ...cells.map((text, index) => make("td", { class: "n", "data-label": labels[index + 1] }, text)))));
}

function renderGpus(gpus) {
  show($("gpus-card"), gpus.length > 0);
  const share = (value) => `${Math.round(100 * value)} %`;
  fillTable("gpus", gpus.map((gpu) => [`GPU ${gpu.gpu}`, share(gpu.busy_now), share(gpu.busy),
    `${bytes(gpu.memory_bytes)} of ${bytes(gpu.total_bytes)}`, gpu.power_w === null ? "–" : `${Math.round(gpu.power_w)} W`]));
}

function renderCounters(counters) {
  show($("counters-card"), counters.length > 0);
  $("counters").replaceChildren(...counters.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value.toLocaleString("en-US"))]));
}

let areAllErrorsShown = false;
$("more-errors").addEventListener("click", () => { areAllErrorsShown = true; renderErrors(shown); });

function renderErrors(query) {
  const holder = $("errors"), key = `${query.id} ${query.num_failed} ${query.errors.length} ${areAllErrorsShown} ${query.error}`;
  if (holder.dataset.key === key) return;
  const wasOpen = new Set([...holder.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
  holder.dataset.key = key;
  if (!query.errors.length) {
    show($("more-errors"), false);
    holder.replaceChildren(...(query.state === "failed"
      ? [make("p", {}, "The run ended with this error, and no other row had failed:"), make("pre", {}, query.error)]
      : [make("p", { class: "empty" }, "No row has failed.")]));
    return;
  }
  const listed = areAllErrorsShown ? query.errors : query.errors.slice(0, FIRST_ERRORS);
  show($("more-errors"), listed.length < query.errors.length);
  const items = listed.map((error) => {
    const item = errorItem(error);
    item.open = wasOpen.has(item.firstChild.textContent);
    return item;
  });
  const hidden = query.num_failed - query.errors.length;
  if (hidden > 0 && listed.length === query.errors.length) items.push(make("p", { class: "empty" }, `and ${count(hidden)} before these`));
  holder.replaceChildren(...items);
}

// A row has one number everywhere: that of the row in its input, counted from 0.
const placeText = (place) => place.row === null ? "a row" : `row ${place.row} of ${(place.source ?? "the input").split("/").pop()}`;
const placeTitle = (place) => place.row === null ? "Its number in the input is not known." : `row ${place.row} of ${place.source ?? "the input"}`;

function errorItem(error) {
  return make("details", {},
    make("summary", {}, make("span", { class: "kind" }, error.error_type), shortened(error.message, 200),
      make("span", { class: "where" }, error.row === null ? error.operator : `${error.operator}, ${placeText(error)}`)),
    make("pre", {}, error.input), make("pre", {}, error.traceback || error.message));
}

// --- control ---

async function control(change) {
  try {
    await ask("api/control", { query: shown.id, ...change });
  } catch (error) {
    notice(error.message);
  }
}

$("pause").addEventListener("click", () => control({ action: isPaused(shown) ? "resume" : "pause" }));
$("cancel").addEventListener("click", () => $("confirm").showModal());
$("confirm-no").addEventListener("click", () => $("confirm").close());
$("confirm-yes").addEventListener("click", () => { $("confirm").close(); control({ action: "cancel" }); });
$("queries").addEventListener("change", (event) => { chosen = event.target.value === "" ? null : Number(event.target.value); if (!$("rows").hidden) restart(); });

// --- rows ---

let runs = []; // the folders of the jobs: one, or two to compare
let first = 0, earlier = [], following = null; // the first row of this page, those of the pages before, and of the next
let rowsAsked = 0; // only the answer to the last question is shown
let shownPage = null; // the last page of rows
let isFollowed = false; // the rows shown are the last ones of a query that runs

// Rows that a person reads or has the focus on stay.
const canReplaceRows = () => !$("rows").hidden && first === 0 && !$("row").open && !$("rows-table").contains(document.activeElement);

// An answer that comes after a person began to read is dropped, unless the person asked for it.
async function loadRows(isWanted = () => true) {
  const mine = ++rowsAsked;
  const query = rowsQuery();
  if (!isFollowed) setText($("rows-summary"), "Reading …");
  try {
    const page = await ask(`api/rows?${query}`);
    if (mine !== rowsAsked || !isWanted()) return;
    renderRows(page);
    if (!page.is_counted) followCount(mine);
  } catch (error) {
    if (mine === rowsAsked) setText($("rows-summary"), error.message === "token" ? "This page needs its token." : isGone(error) ? goneRows() : error.message);
  }
}

const rowsQuery = (more = {}) => new URLSearchParams({ first, search: $("search").value, failed: $("failed").checked ? 1 : 0,
  different: $("differing").checked ? 1 : 0, key: $("key").value, query: chosen ?? "", ...more });

// A search of many rows goes on after its first rows are shown.
function followCount(asked) {
  setTimeout(async () => {
    if (asked !== rowsAsked) return;
    try {
      const counted = await ask(`api/rows?${rowsQuery({ count: 1 })}`);
      if (asked !== rowsAsked) return;
      setText($("rows-summary"), rowsSummary(Object.assign(shownPage, counted)));
    } catch (error) {
      return; // the page of rows stays
    }
    if (!shownPage.is_counted) followCount(asked);
  }, POLL_MS);
}

function goneRows() {
  return `The process has ended or cannot be reached. ${shownPage?.rows.length ? "These are the last rows that this page has." : "This page has no rows of it."}`;
}

function renderRows(page) {
  shownPage = page;
  const isCompared = runs.length > 1;
  show($("key-choice"), isCompared);
  show($("differing-choice"), isCompared);
  if (page.keys.length && $("key").dataset.keys !== page.keys.join("\n")) {
    $("key").dataset.keys = page.keys.join("\n");
    $("key").replaceChildren(...page.keys.map((name) => make("option", {}, name)));
    $("key").value = page.key;
  }
  following = page.next;
  isFollowed = Boolean(page.is_recent);
  $("previous").disabled = earlier.length === 0;
  $("next").disabled = following === null;
  setText($("rows-summary"), rowsSummary(page));
  show($("rows-scroll"), page.rows.length > 0);
  const table = $("rows-table"), source = onlySource(page);
  table.tHead.replaceChildren(make("tr", {}, make("th", { scope: "col", title: "The number of the row in the input, from 0." }, "Row", make("small", {}, source ? `of ${source.split("/").pop()}` : "of the input")),
    ...page.columns.map((column) => make("th", { scope: "col" }, column.name, make("small", {}, shortened(column.type, 40))))));
  table.tBodies[0].replaceChildren(...page.rows.flatMap((row) => rowLines(row, page)));
}

function rowsSummary(page) {
  const isFiltered = Boolean($("search").value) || $("failed").checked || $("differing").checked;
  if (!page.rows.length && isFiltered) return `No such row${page.next === null ? "" : ` before row ${count(page.next)}; press Next to go on`}.`;
  if (!page.rows.length) return page.note || (isOver(shown) ? "There are no rows." : "There are no rows yet.");
  if (isFollowed) return `${isFiltered ? `${counted(page.num_found)} found among the last rows` : `${count(page.num_rows)} of the last rows`}, the newest first.`;
  const range = `${count(page.rows[0].number + 1)} to ${count(page.rows[page.rows.length - 1].number + 1)}`;
  if (!isFiltered) return `${range} of ${count(page.num_rows)} rows, in the order of the output.${unshared(page)}`;
  const found = page.is_counted ? counted(page.num_found) : `At least ${counted(Math.max(page.num_found, page.rows.length))}`;
  const part = page.num_found > page.rows.length ? ` These are ${count(page.rows.length)} of them.` : "";
  return `${found} found among ${count(page.num_rows)}.${part}${unshared(page)}`;
}

// The columns of two runs that are compared may differ.
function unshared(page) {
  const only = (names, run) => (names.length ? ` Only in ${run}: ${names.join(", ")}.` : "");
  return only(page.only_here, runs[0]) + only(page.only_there, runs[1]);
}

// The input that all rows of a page come from, as far as their numbers are known; null if there are several.
function onlySource(page) {
  const sources = new Set(page.rows.filter((row) => row.row !== null).map((row) => row.source));
  return sources.size === 1 ? [...sources][0] : null;
}

function rowLines(row, page) {
  const label = row.row === null ? "open" : onlySource(page) ? String(row.row) : placeText(row).slice("row ".length);
  const open = make("button", { type: "button", class: "link", title: placeTitle(row), "aria-label": `Open ${placeText(row)}` }, label);
  open.addEventListener("click", () => openRow(row.number));
  const line = make("tr", row.error ? { class: "failed" } : {}, make("td", { "data-label": "Row" }, open), ...page.columns.map((column, index) => {
    const cell = row.cells[index], isNumber = cell?.number === true;
    const parts = [shownCell(cell)];
    if (differs(row, index, page)) {
      parts.push(make("div", { class: "pair differs" }, make("span", { class: "run-name" }, runs[1]), shownCell(row.other[index])));
    }
    return make("td", { class: isNumber ? "n" : null, "data-label": column.name }, ...parts);
  }));
  if (!row.error) return [line];
  const text = `${row.error.error_type}: ${row.error.message}`;
  return [line, make("tr", { class: "failed reason" }, make("td", { colspan: page.columns.length + 1 }, make("div", { class: "clamp bad-text" }, text)))];
}

const same = (cell, other) => cell?.text === other?.text && cell?.image === other?.image;
const differs = (row, index, page) => row.other && !page.only_here.includes(page.columns[index].name) && !same(row.cells[index], row.other[index]);

function shownCell(cell) {
  if (cell === null) return make("span", { class: "null" }, "null");
  if (cell.image) return make("img", { class: "thumb", src: cell.image, alt: cell.text });
  const text = make("div", { class: "clamp" }, cell.text);
  return cell.usage ? make("div", {}, text, make("div", { class: "usage" }, usageText(cell.usage))) : text;
}

function usageText(usage) {
  const parts = [`${count(usage.input_tokens)} + ${count(usage.output_tokens)} tokens`];
  if (usage.cost !== undefined) parts.push(`$${usage.cost.toPrecision(2)}`);
  if (usage.latency_s !== undefined) parts.push(latency(usage.latency_s));
  return parts.join(", ");
}

async function openRow(number) {
  let page, note = null;
  try {
    page = await ask(`api/rows?${new URLSearchParams({ first: number, alone: 1, key: $("key").value, query: chosen ?? "" })}`);
  } catch (error) {
    if (!isGone(error)) return setText($("rows-summary"), error.message);
    page = { ...shownPage, rows: shownPage.rows.filter((row) => row.number === number) };
    note = make("p", { class: "empty" }, "The process has ended or cannot be reached: this is the row as the table has it, and long texts are cut.");
  }
  const row = page.rows[0];
  if (!row) return setText($("rows-summary"), "This row is not among the last rows any more.");
  setText($("row-title"), placeText(row).replace(/^\w/, (letter) => letter.toUpperCase()));
  const parts = [note, ...(!row.error ? [] : [
    make("h3", {}, `Error in ${row.error.operator}`), make("pre", { class: "bad-text" }, `${row.error.error_type}: ${row.error.message}`),
    make("details", {}, make("summary", {}, "Traceback"), make("pre", {}, row.error.traceback)),
    make("details", {}, make("summary", {}, `Input of ${row.error.operator}`), make("pre", {}, row.error.input)),
  ])].filter(Boolean);
  page.columns.forEach((column, index) => {
    const formula = own(page.formulas, column.name), messages = own(row.prompts, column.name);
    if (messages) parts.push(make("h3", {}, `Prompt for ${column.name}`), make("div", { class: "messages" }, ...messages.map(shownMessage)));
    parts.push(make("h3", {}, column.name, ...(formula ? [make("code", {}, formula)] : [])));
    if (differs(row, index, page)) {
      parts.push(make("div", { class: "side" }, ...[row.cells[index], row.other[index]].map((cell, run) =>
        make("div", {}, make("span", { class: "run-name" }, runs[run]), wholeCell(cell)))));
    } else {
      parts.push(wholeCell(row.cells[index]));
    }
    if (!messages || row.cells[index]?.usage) return;
    const usage = own(row.usage, column.name);
    parts.push(usage ? usageList(usage) : make("p", { class: "empty" },
      "The tokens and the cost of this call are not known. A ledger on this machine keeps them (resume=True, cache_dir), or prompt(usage=True)."));
  });
  if (runs.length > 1 && !row.other) parts.push(make("p", { class: "empty" }, `${runs[1]} has no such row.`));
  $("row-body").replaceChildren(...parts);
  $("row").showModal();
}

function shownMessage(message) {
  return make("div", { class: "message", "data-role": message.role }, make("span", { class: "run-name" }, message.role), ...message.parts.map(wholeCell));
}

function wholeCell(cell) {
  if (cell === null) return make("pre", { class: "null" }, "null");
  if (cell.image) return make("img", { src: cell.image, alt: cell.text });
  const text = make("pre", {}, cell.text);
  return cell.usage ? make("div", {}, text, usageList(cell.usage)) : text;
}

function usageList(usage) {
  const { cost, latency_s: time, ...others } = usage;
  if (cost !== undefined) others.cost = `$${Number(cost.toPrecision(3))}`;
  if (time !== undefined) others.latency = latency(time);
  return make("dl", { class: "pairs usage" }, ...Object.entries(others).flatMap(([name, value]) => [make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, value)]));
}

let typing = 0;

function restart() {
  clearTimeout(typing); // or rows that a person has begun to use would be replaced by the same ones
  first = 0;
  earlier = [];
  loadRows();
}

$("search").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(restart, 250); });
$("rows-form").addEventListener("submit", (event) => { event.preventDefault(); restart(); });
for (const id of ["failed", "differing", "key"]) $(id).addEventListener("change", restart);
$("next").addEventListener("click", () => { earlier.push(first); first = following; loadRows(); });
$("previous").addEventListener("click", () => { first = earlier.pop(); loadRows(); });
$("row-close").addEventListener("click", () => $("row").close());

// --- themes and views ---

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const other = theme === "dark" ? "light" : "dark";
  $("theme").setAttribute("aria-label", `Change to the ${other} theme`);
  setText($("theme"), theme === "dark" ? "☀" : "☾");
}

$("theme").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("penstock-theme", theme);
  setTheme(theme);
});
const systemTheme = matchMedia("(prefers-color-scheme: dark)");
systemTheme.addEventListener("change", () => { if (!localStorage.getItem("penstock-theme")) setTheme(systemTheme.matches ? "dark" : "light"); });
setTheme(localStorage.getItem("penstock-theme") ?? (systemTheme.matches ? "dark" : "light"));

function setView() {
  const view = location.hash === "#rows" ? "rows" : "run";
  for (const name of ["run", "rows"]) show($(name), name === view);
  for (const link of $("tabs").children) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (view === "rows") loadRows();
}

addEventListener("hashchange", setView);
addEventListener("resize", () => { if (shown) { renderPlan(shown); renderCharts(shown); } });
setView();
poll();
