// Distributions of the rows that are selected.
import { html, useEffect, useState } from "./vendor/preact.js";
import { ask, follow } from "./server.js";
import { compact, count, counted, shortened } from "./text.js";
import { rowsQuery, withCondition } from "./rows.js";

export function Shapes() {
  const [found, setFound] = useState(null), [problem, setProblem] = useState(""), wanted = String(rowsQuery({ first: 0 }));
  useEffect(() => {
    let isWanted = true;
    setFound(null);
    ask(`api/shape?${wanted}`).then((answer) => { if (isWanted) { setFound(answer); setProblem(""); } }, (error) => { if (isWanted) setProblem(error.message); });
    return () => { isWanted = false; };
  }, [wanted]);
  if (!found) return html`<p class="empty" id="shapes">${problem || "Counting …"}</p>`;
  return html`<section id="shapes" class="shapes" aria-label="Distributions of ${counted(found.num_rows)}">${found.shapes.map((shape) => html`<${Shape} key=${shape.facet} shape=${shape} />`)}
    ${!found.shapes.length && html`<p class="empty">These rows have nothing to count.</p>`}</section>`;
}

function Shape({ shape }) {
  const most = Math.max(...shape.bars.map(([, number]) => number)), nulls = shape.num_null ? `, ${count(shape.num_null)} null` : "";
  if (shape.is_label) {
    return html`<div class="card shape"><h2>${shape.facet}<small>${nulls}</small></h2><ul>${shape.bars.map(([label, number]) => html`<li>
      <a href=${withCondition([shape.facet, "is", label])} onClick=${follow} title="Show these rows">${shortened(label, 24) || "(empty)"}</a>
      <meter min="0" max=${most} value=${number} aria-label=${`${shape.facet} ${label}`}></meter><span class="n">${count(number)}</span></li>`)}</ul></div>`;
  }
  const step = 100 / shape.bars.length;
  return html`<div class="card shape"><h2>${shape.facet}<small>${shape.is_length ? " length" : ""}${nulls}</small></h2>
    <svg viewBox="0 0 100 36" preserveAspectRatio="none" role="img" aria-label="${shape.facet} from ${compact(shape.least)} to ${compact(shape.most)}, half below ${compact(shape.p50)}">
      ${shape.bars.map(([, number], index) => html`<rect x=${index * step + 0.4} width=${step - 0.8} y=${36 - (36 * number) / most} height=${(36 * number) / most} />`)}</svg>
    <p class="usage">${precise(shape.least)} to ${precise(shape.most)}, half below ${precise(shape.p50)},${" "}
      <a href=${withCondition([shape.facet, "over", String(shape.p95)])} onClick=${follow}>5 % above ${precise(shape.p95)}</a></p></div>`;
}

const precise = (value) => (Math.abs(value) >= 1000 ? compact(value) : String(Number(value.toPrecision(3))));
