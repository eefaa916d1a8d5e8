// A run: how far it is, what it costs, what went wrong, and the ways to change it.
import { html, useMemo, useState } from "./vendor/preact.js";
import { Chart, rates } from "./chart.js";
import { Plan } from "./plan.js";
import { address, chosen, follow, go } from "./server.js";
import { bytes, callsText, compact, count, counted, dollars, inFlight, isOver, latency, percent, placeText, plain, rate, roughly, seconds, shareDone, shortened } from "./text.js";

const MAX_LINES = 8;

export function Run({ query, control, confirm, theme, output, isOff }) {
  if (!query.stages.length) {
    return html`<${Tiles} query=${query} />
      <p id="no-figures" class="card empty">The last run has left no figures: it has just begun, or it was killed while no page watched it.</p>
      <${Errors} query=${query} isOff=${isOff} />`;
  }
  return html`<${Tiles} query=${query} />
    <div id="graphs">
      <section class="card" aria-labelledby="plan-title"><h2 id="plan-title">Plan</h2><${Plan} query=${query} /></section>
      ${query.num_failed > 0 && html`<${Errors} query=${query} isOff=${isOff} />`}
      <${Charts} query=${query} theme=${theme} />
      <${Stages} query=${query} control=${control} confirm=${confirm} />
    </div>
    <${Models} models=${query.models} />
    <${Cluster} cluster=${query.cluster} />
    <${Gpus} gpus=${query.gpus ?? []} />
    ${query.counters.length > 0 && html`<${Counters} counters=${query.counters} />`}
    ${!query.num_failed && html`<${Errors} query=${query} isOff=${isOff} />`}
    <${Log} lines=${query.log ?? []} output=${output} />`;
}

// --- figures ---

function Tiles({ query }) {
  const last = query.stages.at(-1), numRows = query.num_rows ?? last?.num_rows ?? 0; // a job has rows of earlier runs
  const figures = query.history.figures, memory = figures.at(-1)?.[0], slow = query.history.latency_so_far;
  const calling = query.stages[query.calls_stage ?? -1], counts = calling ?? last, done = shareDone(counts);
  const answered = calling && done !== null ? calling.calls.num_answered / counts.total : done; // calls that failed are done, without an answer
  const part = done === null ? "" : `${percent(answered)} of ${count(counts.total)}`, left = query.left_s ?? null;
  const { models } = query, tokens = models.reduce((sum, model) => sum + model.input_tokens + model.output_tokens, 0);
  const spent = models.every((model) => model.dollars !== null) ? models.reduce((sum, model) => sum + model.dollars, 0) : null;
  const projected = models.reduce((sum, model) => sum + (model.projected_dollars ?? NaN), 0);
  const money = [!isOver(query) && projected > spent && `about ${dollars(projected)} in all`, query.budget && `budget ${dollars(query.budget)}`];
  const failedNote = query.is_live ? "in this run" : query.num_failed && numRows ? `${(100 * query.num_failed / numRows).toPrecision(2)} % of the rows` : "";
  const tiles = [
    calling && ["Answered", count(calling.calls.num_answered), [part, inFlight(calling.calls)].filter(Boolean).join(", "), "", answered],
    ["Rows", count(numRows), query.is_live ? "committed" : calling ? "" : part, "", calling ? null : done],
    ["Failed rows", count(query.num_failed), failedNote, query.num_failed ? "bad" : ""],
    left !== null && ["Time left", roughly(left), query.left_range ? `${roughly(query.left_range[0])} to ${roughly(query.left_range[1])}` : ""],
    [calling ? "Answers / s" : "Rows per second", rate(counts?.rate ?? 0), isOver(query) ? "on average" : "lately"],
    slow && ["Latency", latency(slow[0]), `95 % within ${latency(slow[1])}`],
    models.length > 0 && ["Cost", dollars(spent), money.filter(Boolean).join(", ")],
    models.length > 0 && ["Tokens", compact(tokens), query.elapsed_s ? `${count(tokens / query.elapsed_s)} per second` : ""],
    !models.length && memory > 0 && ["Memory", bytes(memory), `at most ${bytes(Math.max(...figures.map((row) => row[0])))}`],
  ].filter(Boolean);
  return html`<dl id="tiles" class="tiles">${tiles.map(([label, value, note, tone, share = null]) => html`<div class="tile" key=${label} data-tone=${tone}>
    <dt>${label}</dt><dd class="value">${value}</dd>
    <dd class="note">${note}${share !== null && html`<progress max="1" value=${share} aria-label="${label} done" />`}</dd></div>`)}</dl>`;
}

// Charts are drawn again when their points have changed.
function Charts({ query, theme }) {
  const { times } = query.history;
  return useMemo(() => drawn(query, theme), [query.id, times.length, times.at(-1), query.stages.length, theme]);
}

function drawn(query, theme) {
  const { times, figures, models = [], latency: times50 = [] } = query.history;
  const stages = query.stages.filter((stage) => stage.kind !== "write").slice(-MAX_LINES);
  const answers = stages.map((stage) => [stage.name, rates(times, figures.map((row) => row[2 + stage.index]))]);
  const hasModels = query.models.length > 0, over = (column) => models.map((row) => row[column]);
  return html`<div class="charts">
    <${Chart} id="rate" title="Throughput" unit="rows per second" times=${times} lines=${answers} format=${compact} theme=${theme} />
    ${times50.some(Boolean) && html`<${Chart} id="latency" title="Latency" unit="of the calls" times=${times} theme=${theme} format=${latency}
      lines=${[["p50", times50.map((pair) => pair?.[0] ?? null)], ["p95", times50.map((pair) => pair?.[1] ?? null)]]} />`}
    ${hasModels && html`<${Chart} id="tokens" title="Tokens" unit="per second" times=${times} lines=${[["tokens", rates(times, over(0))]]} format=${compact} theme=${theme} />`}
    ${hasModels && html`<${Chart} id="cost" title="Cost" unit="dollars so far" times=${times} lines=${[["dollars", over(2)]]} format=${dollars} theme=${theme} />`}
    ${hasModels && over(1).some(Boolean) && html`<${Chart} id="refused" title="Refused" unit="calls per second" times=${times} lines=${[["refused", rates(times, over(1))]]} format=${compact} theme=${theme} />`}
    <${Chart} id="memory" title="Memory" unit="" times=${times} format=${bytes} theme=${theme}
      lines=${[["this process", figures.map((row) => row[0])], ["data in flight", figures.map((row) => row[1])]]} />
  </div>`;
}

// --- tables: the labels of cells stand before them on a narrow screen ---

function Table({ id, title, labels, children }) {
  return html`<section class="card" aria-labelledby="${id}-title"><h2 id="${id}-title">${title}</h2>
    <div class="scroll" role="group" aria-label="Table of ${title.toLowerCase()}" tabindex="0"><table id=${id} class="stacked">
      <thead><tr>${labels.map((label, index) => html`<th scope="col" class=${index ? "n" : ""}>${label}</th>`)}</tr></thead>
      <tbody>${children}</tbody></table></div></section>`;
}

const Cells = ({ name, labels, values }) => html`<tr><th scope="row">${name}</th>
  ${values.map((value, index) => html`<td class="n" data-label=${labels[index + 1]}>${value}</td>`)}</tr>`;

function Stages({ query, control, confirm }) {
  const labels = ["Stage", "Rows", "Rows/s", "Running", "At most", "Queued", "Busy", "Failed"];
  return html`<${Table} id="stages" title="Stages" labels=${labels}>${query.stages.map((stage) => html`<tr key=${stage.index}>
    <th scope="row"><span>${stage.name}</span><span class=${stage.index === query.bottleneck ? "flag-text" : ""}>${stage.index === query.bottleneck ? "bottleneck" : ""}</span>
      <div class="calls">${callsText(stage)}</div></th>
    <td class="n" data-label="Rows">${count(stage.num_rows)}</td>
    <td class="n" data-label="Rows/s">${rate(stage.rate)}</td>
    <td class="n" data-label="Running">${stage.num_workers ? count(stage.num_running) : "–"}</td>
    <td class="n" data-label="At most"><${Limit} stage=${stage} query=${query} control=${control} confirm=${confirm} /></td>
    <td class="n" data-label="Queued">${stage.num_rows_queued ? `${count(stage.num_rows_queued)} rows, ${bytes(stage.nbytes_queued)}` : "–"}</td>
    <td class="n" data-label="Busy">${seconds(stage.busy_s)}</td>
    <td class="n ${stage.num_failed ? "bad-text" : ""}" data-label="Failed">${count(stage.num_failed)}</td></tr>`)}<//>`;
}

function Limit({ stage, query, control, confirm }) {
  const [typed, setTyped] = useState(null), most = stage.limit ?? stage.num_allowed ?? stage.num_workers;
  if (!query.can_control || !stage.num_workers || stage.state === "finished") return stage.num_workers ? count(most) : "–";
  const change = (event) => {
    const value = Math.min(Number.parseInt(event.target.value, 10), event.target.max || Infinity);
    setTyped(null);
    event.target.value = most;
    if (value < 1 || value === most || Number.isNaN(value)) return;
    confirm({ text: `Let ${stage.name} run at most ${count(value)} ${stage.is_remote ? "call" : "task"}${value === 1 ? "" : "s"} at once, in place of ${count(most)}?`, no: "Leave it", yes: "Change it",
      act: () => control({ action: "limit", stage: stage.index, max_running: value }) });
  };
  return html`<input type="number" min="1" max=${stage.is_remote ? undefined : stage.num_workers} value=${typed ?? most}
    aria-label="Most ${stage.is_remote ? "calls" : "tasks"} at once of ${stage.name}" onInput=${(event) => setTyped(event.target.value)} onChange=${change} onBlur=${() => setTyped(null)} />`;
}

function Models({ models }) {
  const labels = ["Model", "Calls", "Cached", "Tokens in", "Tokens out", "Cost", "In flight", "Allowed", "Waiting", "Refused"];
  return models.length > 0 && html`<${Table} id="models" title="Models" labels=${labels}>${models.map((model) => html`<${Cells}
    name="${model.provider} / ${model.model}" labels=${labels} values=${[count(model.num_calls), count(model.num_cached), count(model.input_tokens),
      count(model.output_tokens), dollars(model.dollars), count(model.num_in_flight), model.num_allowed === null ? "–" : count(model.num_allowed),
      count(model.num_waiting), count(model.num_refused)]} />`)}<//>`;
}

// What is taken is booked by actors and tasks; what is busy is measured by the agent of each node.
function Cluster({ cluster }) {
  if (!cluster) return null;
  const labels = ["Node", "State", "CPUs", "CPUs busy", "GPUs", "GPUs busy", "Memory", "Memory used"], { nodes, free, actors } = cluster;
  const total = (name) => nodes.filter((node) => node.is_alive).reduce((sum, node) => sum + node[name], 0);
  const taken = (name) => `${compact(total(name) - free[name])} of ${compact(total(name))} taken`;
  const gpus = ({ gpu, gpus_busy: busy }) => Object.entries(busy).map(([index, share]) => `${index}: ${percent(share)}`).join(", ") || (gpu ? "not reported" : "–");
  const nameOf = (id) => nodes.find((node) => node.id === id)?.name ?? id;
  return html`<${Table} id="nodes" title="Ray nodes" labels=${labels}>
      ${nodes.map((node) => html`<${Cells} name="${node.name} ${node.address}" labels=${labels} values=${[node.is_alive ? "alive" : "gone", compact(node.cpu), node.cpu_busy === null ? "not reported" : percent(node.cpu_busy),
        `${compact(node.gpu)} ${node.gpu_kind}`, gpus(node), bytes(node.memory), node.memory_used === null ? "not reported" : bytes(node.memory_used)]} />`)}
      <${Cells} name="All" labels=${labels} values=${["", taken("cpu"), "", taken("gpu"), "", `${bytes(total("memory") - free.memory)} taken`, ""]} /><//>
    ${actors ? html`<${Table} id="actors" title="Ray actors" labels=${["Actor", "Node", "Process"]}>${actors.map((actor) => html`<${Cells} name=${actor.name} labels=${["Actor", "Node", "Process"]} values=${[nameOf(actor.node), actor.pid]} />`)}<//>`
      : html`<p class="sub card">This cluster runs no API server of Ray, so its actors are not listed.</p>`}`;
}

function Gpus({ gpus }) {
  const labels = ["GPU", "Busy", "Busy on average", "Memory at most", "Power"];
  return gpus.length > 0 && html`<${Table} id="gpus" title="GPUs" labels=${labels}>${gpus.map((gpu) => html`<${Cells} name="GPU ${gpu.gpu}" labels=${labels}
    values=${[percent(gpu.busy_now), percent(gpu.busy), `${bytes(gpu.memory_bytes)} of ${bytes(gpu.total_bytes)}`, gpu.power_w === null ? "–" : `${Math.round(gpu.power_w)} W`]} />`)}<//>`;
}

// Counters whose names begin with the same "name: " stand together under it.
function Counters({ counters }) {
  const groups = new Map();
  for (const [name, value] of counters) {
    const end = name.lastIndexOf(": "), group = name.slice(0, Math.max(end, 0));
    groups.set(group, [...(groups.get(group) ?? []), [end < 0 ? name : name.slice(end + 2), value]]);
  }
  return html`<section class="card" aria-labelledby="counters-title"><h2 id="counters-title">Counters</h2>
    ${[...groups].map(([group, values]) => html`${group && html`<h3>${group}</h3>`}<dl class="pairs">${values.map(([name, value]) => html`<dt>${name}</dt><dd>${plain(value)}</dd>`)}</dl>`)}</section>`;
}

// --- what went wrong, and what happened ---

function Errors({ query, isOff }) {
  const { errors, error_kinds: kinds = [] } = query, hidden = query.num_failed - errors.length, isWhole = chosen("errors") === "all";
  const numOther = query.num_failed - kinds.reduce((sum, kind) => sum + kind.count, 0);
  return html`<section class="card" aria-labelledby="errors-title"><h2 id="errors-title">Errors <small>${query.num_failed ? `${counted(query.num_failed)} failed` : ""}</small></h2>
    ${kinds.length > 0 && html`<ul id="error-kinds" class="kinds">${kinds.map((kind) => html`<li key=${kind.kind}>
      <strong>${count(kind.count)} ×</strong> <span><span class="kind">${kind.error_type}</span> ${shortened(kind.message, 160)} <span class="where">${kind.operator}</span></span>
      ${!isOff && html`<a href=${address({ view: "rows", status: "failed", error: kind.kind }, true)} onClick=${follow} aria-label="Show all with ${kind.error_type}: ${shortened(kind.message, 60)}">show</a>`}</li>`)}
      ${numOther > 0 && html`<li><strong>${count(numOther)} ×</strong> <span>other errors, or errors of tasks that ${isOver(query) ? "were stopped" : "still run"}</span></li>`}</ul>`}
    <div id="errors">
      ${!errors.length && (query.state === "failed" ? html`<p>The run ended with this error, and no other row had failed:</p><pre>${query.error}</pre>`
        : html`<p class="empty">${query.num_failed ? (isOver(query) ? "The tasks of these rows were stopped, so their errors are not known." : "The errors of these rows come when their tasks end.") : "No row has failed."}</p>`)}
      ${errors.map((error, index) => html`<details key=${error.row === null ? index : `${error.operator} ${error.row} ${error.source}`}>
        <summary><span class="kind">${error.error_type}</span>${shortened(error.message, 200)}<span class="where">${error.row === null ? error.operator : `${error.operator}, ${placeText(error)}`}</span></summary>
        <pre>${error.input}</pre><pre>${error.traceback || error.message}</pre></details>`)}
      ${hidden > 0 && isWhole && errors.length > 0 && html`<p class="empty">and ${count(hidden)} more</p>`}
    </div>
    ${hidden > 0 && !isWhole && html`<button type="button" onClick=${() => go(address({ errors: "all" }))}>Show more</button>`}
  </section>`;
}

const Log = ({ lines, output }) => (lines.length > 0 || output) && html`<section class="card" aria-labelledby="log-title"><h2 id="log-title">Log</h2>
  <ol id="log" class="log">${lines.map(([at, text]) => html`<li><span class="where">${seconds(at)}</span> ${text}</li>`)}</ol>
  ${output && html`<h3>Output of the command</h3><pre>${output}</pre>`}</section>`;
