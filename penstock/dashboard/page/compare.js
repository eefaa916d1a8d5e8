// Two runs in a few words, and their prompts side by side.
import { html, useEffect, useState } from "./vendor/preact.js";
import { own } from "./cells.js";
import { ask, chosen, chosenOf, RUN } from "./server.js";
import { baseName, count, counted, latency } from "./text.js";
import { Differences } from "./words.js";

const POLL_MS = 1000;

export function Compare({ runs, compared }) {
  const [found, setFound] = useState(null), key = chosen("key");
  useEffect(() => {
    let isWanted = true;
    const look = async () => {
      const asked = { ...chosenOf(RUN), different: 1, key };
      const told = await ask(`api/rows?${new URLSearchParams({ ...asked, count: 1 })}`).catch(() => null);
      if (!isWanted || !told) return;
      setFound(told);
      if (!told.is_counted) setTimeout(look, POLL_MS);
    };
    look();
    return () => { isWanted = false; };
  }, [key]);
  const [first, second] = compared, names = [...new Set([...Object.keys(first.prompts), ...Object.keys(second.prompts)])];
  const changed = names.filter((name) => own(first.prompts, name) !== own(second.prompts, name));
  const parts = [found?.is_counted && differences(found, runs.map(baseName)),
    change(first.dollars, second.dollars, "cheaper", "dearer", (value) => `${Math.round(100 * value / first.dollars)} %`),
    change(first.latency_s, second.latency_s, "faster", "slower", latency)].filter(Boolean);
  return html`<section id="compare" class="card" aria-label="The second run beside the first">
    <p><strong>${baseName(runs[1])}</strong> ${second.models.join(", ")} beside <strong>${baseName(runs[0])}</strong> ${first.models.join(", ")}: <span id="compare-summary">${parts.join(", ") || "counting …"}</span></p>
    ${changed.length > 0 && html`<details><summary>What differs in the prompts</summary>${changed.map((name) => html`<h2>${name}</h2>
      <${Differences} before=${own(first.prompts, name) ?? ""} after=${own(second.prompts, name) ?? ""} />`)}</details>`}
  </section>`;
}

// A row that only one run has is no different answer.
function differences({ num_found: numFound, num_rows: numRows, num_only_here: here = 0, num_only_there: there = 0 }, names) {
  const parts = [`${count(numFound - here)} of ${count(numRows - here)} ${here || there ? "common " : ""}rows differ`];
  [here, there].forEach((number, index) => { if (number) parts.push(`${counted(number)} only in ${names[index]}`); });
  return parts.join(", ");
}

function change(before, after, less, more, text) {
  if (before === null || after === null || before === after || !before) return "";
  return `${text(Math.abs(after - before))} ${after < before ? less : more} a call`;
}
