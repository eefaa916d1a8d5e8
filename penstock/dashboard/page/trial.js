// A prompt that a person edits, asked about a few rows: the new answers stand beside the answers of the run.
import { html, useEffect, useState } from "./vendor/preact.js";
import { WholeCell } from "./cells.js";
import { address, ask, chosen, chosenOf, go, RUN } from "./server.js";
import { count, counted, dollars, placeText, usageText } from "./text.js";
import { Differences } from "./words.js";

const FIRST_ROWS = 10, LEAST_DOLLARS = 0.05, FIRST_DOLLARS = 1, MARGIN = 5;

export const picked = () => { try { return JSON.parse(chosen("pick") || "[]"); } catch { return []; } };
export const togglePick = (number) => go(address({ pick: JSON.stringify(picked().includes(number) ? picked().filter((each) => each !== number) : [...picked(), number]) }), true);

export function Trial({ page, confirm, isOff }) {
  const [found, setFound] = useState(null), [texts, setTexts] = useState({}), [result, setResult] = useState(null), [problem, setProblem] = useState(""), [isAsking, setAsking] = useState(false);
  useEffect(() => {
    let isWanted = true;
    ask(`api/prompts?${new URLSearchParams(chosenOf(RUN))}`).then((told) => { if (isWanted) setFound(told); }, (error) => { if (isWanted) setProblem(error.message); });
    return () => { isWanted = false; };
  }, []);
  const prompts = found?.prompts ?? [], prompt = prompts.find((each) => each.column === chosen("prompt")) ?? prompts[0];
  const head = html`<div class="row-head"><h2 id="trial-title">Try a prompt</h2><div class="actions">
    ${prompts.length > 1 && html`<label>Prompt for <select value=${prompt.column} onChange=${(event) => { setResult(null); go(address({ prompt: event.target.value })); }}>${prompts.map((each) => html`<option>${each.column}</option>`)}</select></label>`}
    <button type="button" class="quiet" onClick=${() => go(address({ try: null, pick: null, prompt: null }))}>Close</button></div></div>`;
  const card = (content) => html`<section id="trial" class="card trial" aria-labelledby="trial-title">${head}${content}</section>`;
  if (!found) return card(html`<p class="empty">${problem || "Reading …"}</p>`);
  if (!prompt || prompt.problem) return card(html`<p class="empty">${prompt?.problem ?? "The rows have no prompt that is known here: a function of yours made it, or its columns were dropped or changed after the call."}</p>`);

  const { system, parts } = texts[prompt.column] ?? prompt, edit = (changes) => setTexts({ ...texts, [prompt.column]: { system, parts, ...changes } });
  const isInput = found.has_input && chosen("try") === "input", ticked = picked();
  const numbers = (ticked.length ? ticked : (page?.rows ?? []).slice(0, FIRST_ROWS).map((row) => row.number)).slice(0, prompt.max_rows);
  const num = isInput ? prompt.max_rows : numbers.length, known = prompt.dollars_per_call !== null, about = num * prompt.dollars_per_call;
  const send = async (most) => {
    setAsking(true); setProblem("");
    try {
      const asked = { column: prompt.column, system, parts, numbers: isInput ? null : numbers, max_dollars: most ?? null };
      setResult({ column: prompt.column, ...await ask("api/try", { ...chosenOf(RUN), ...asked }) });
    } catch (error) { setProblem(error.message); }
    setAsking(false);
  };
  const question = () => confirm({
    text: [`Ask ${prompt.model} of ${prompt.provider}, at ${prompt.base_url}, about ${counted(num)}?`,
      known ? `That costs about ${dollars(about)}, if calls cost as much as in the run.` : "What a call costs is not known yet: the run has noted none.",
      prompt.has_price ? "At most, in dollars:" : "Penstock knows no price of this model, so it cannot limit the cost."].join(" "),
    no: "No", yes: "Ask", value: !prompt.has_price ? undefined : known ? Math.max(LEAST_DOLLARS, Math.ceil(100 * MARGIN * about) / 100) : FIRST_DOLLARS, act: send,
  });
  const columns = (page?.columns ?? []).map(({ name }) => `{${name}}`).join(", "), computed = Object.entries(prompt.computed);
  return card(html`<form onSubmit=${(event) => { event.preventDefault(); question(); }}>
    <label>System message <textarea id="trial-system" rows=${rowsOf(system)} value=${system} onInput=${(event) => edit({ system: event.target.value })}></textarea></label>
    ${parts.map((part, index) => html`<label>${parts.length > 1 ? `Part ${index + 1} of the prompt` : "Prompt"} <textarea class="trial-part" rows=${rowsOf(part)} value=${part}
      onInput=${(event) => edit({ parts: parts.map((each, place) => (place === index ? event.target.value : each)) })}></textarea></label>`)}
    <p class="sub">${columns && `Columns: ${columns}. `}${computed.map(([name, text]) => html`<code>{${name}}</code> is <code>${text}</code>. `)}A brace is {{ or }}.</p>
    <div class="actions">
      <label>Rows <select id="trial-rows" value=${isInput ? "input" : "rows"} onChange=${(event) => go(address({ try: event.target.value }))}>
        <option value="rows">${ticked.length ? `the ${count(numbers.length)} ticked below` : `the first ${count(numbers.length)} below`}</option>
        ${found.has_input && html`<option value="input">the first ${prompt.max_rows} of the input</option>`}</select></label>
      <button type="submit" disabled=${isOff || isAsking || !num}>${isAsking ? "Asking …" : `Ask about ${counted(num)}`}</button>
    </div></form>
    <p id="trial-said" class=${problem ? "failure" : "sub"} role="status">${problem || (result && `${resultText(result)} The run and its rows are as they were.`)}</p>
    ${result?.column === prompt.column && html`<${Results} rows=${result.rows} />`}`);
}

const rowsOf = (text) => Math.min(Math.max(text.split("\n").length, Math.ceil(text.length / 90)), 14);
const isChanged = (row) => row.before?.text !== row.after?.text;
// A call that failed gave no answer, so it is neither changed nor equal.
function resultText({ rows, num_calls, dollars: spent }) {
  const answered = rows.filter((row) => row.before && !row.error), numFailed = rows.filter((row) => row.error).length;
  const parts = [`${counted(num_calls, "call")}, ${dollars(spent)}.`, numFailed && `${count(numFailed)} of ${counted(rows.length, "question")} failed.`,
    answered.length && `${count(answered.filter(isChanged).length)} of ${counted(answered.length, "answer")} changed.`];
  return parts.filter(Boolean).join(" ");
}

const Results = ({ rows }) => html`<div id="trial-results">${rows.map((row) => html`<section aria-label=${placeText(row)}>
  <h3>${placeText(row)}</h3>
  <div class=${row.before ? "side" : ""}>${row.before && html`<div><span class="run-name">the run</span><${WholeCell} cell=${row.before} view="" /></div>`}
    <div><span class="run-name">this prompt</span>${row.error ? html`<pre class="bad-text">${row.error}</pre>` : html`<${WholeCell} cell=${row.after && { ...row.after, usage: undefined }} view="" />`}
      ${row.after?.usage && html`<p class="usage">${usageText(row.after.usage)}</p>`}</div></div>
  ${row.before && row.after && isChanged(row) && !row.before.number && html`<details open><summary>Differences by word</summary><${Differences} before=${row.before.text} after=${row.after.text} /></details>`}
</section>`)}</div>`;
