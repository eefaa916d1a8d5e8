// The plan of a query as a graph.
import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { callsText, compact, inFlight, progressText, rate, shareDone, shortened } from "./text.js";

const GAP = 58, HEIGHT = 76;

export function Plan({ query }) {
  const holder = useRef(null), [width, setWidth] = useState(0), stages = query.stages;
  useEffect(() => {
    const observer = new ResizeObserver(([{ contentRect }]) => setWidth(Math.max(contentRect.width, 280)));
    observer.observe(holder.current);
    return () => observer.disconnect();
  }, []);
  return html`<div id="plan" class="plan" role="group" aria-label="Graph of the plan" tabindex="0" ref=${holder}>
    ${width > 0 && stages.length > 0 && html`<${Graph} query=${query} width=${width} />`}
  </div>`;
}

function Graph({ query, width }) {
  const { stages } = query, depth = [], levels = [], place = {};
  stages.forEach((stage) => { depth[stage.index] = Math.max(-1, ...stage.inputs.map((input) => depth[input])) + 1; });
  stages.forEach((stage) => (levels[depth[stage.index]] ??= []).push(stage));
  const widest = Math.max(1, ...levels.map((level) => level.length)), fitting = (width - (levels.length - 1) * GAP) / levels.length;
  const isWide = fitting >= 132, nodeWidth = isWide ? Math.min(fitting, 236) : Math.min((width - (widest - 1) * 16) / widest, 320);
  levels.forEach((level, row) => level.forEach((stage, lane) => {
    place[stage.index] = isWide ? { x: row * (nodeWidth + GAP), y: lane * (HEIGHT + 18) + 12 } : { x: lane * (nodeWidth + 16), y: row * (HEIGHT + 42) + 12 };
  }));
  const fullWidth = isWide ? levels.length * (nodeWidth + GAP) - GAP : width;
  const fullHeight = (isWide ? widest * (HEIGHT + 18) - 18 : levels.length * (HEIGHT + 42) - 42) + 16;
  const text = stages.map((stage) => `${stage.name}: ${stage.state}, ${callsText(stage) || progressText(stage)}${stage.index === query.bottleneck ? ", the bottleneck" : ""}`);
  return html`<svg viewBox="-2 0 ${fullWidth + 4} ${fullHeight}" width=${fullWidth + 4} height=${fullHeight} role="img" aria-label=${text.join("; ")}>
    ${stages.flatMap((stage) => stage.inputs.map((input) => html`<${Edge} from=${place[input]} to=${place[stage.index]} width=${nodeWidth} isWide=${isWide} stage=${stage} />`))}
    ${stages.map((stage) => html`<${Node} stage=${stage} at=${place[stage.index]} width=${nodeWidth} isSlow=${stage.index === query.bottleneck} />`)}
  </svg>`;
}

function Edge({ from, to, width, isWide, stage }) {
  const [x1, y1] = isWide ? [from.x + width, from.y + HEIGHT / 2] : [from.x + width / 2, from.y + HEIGHT];
  const [x2, y2] = isWide ? [to.x - 7, to.y + HEIGHT / 2] : [to.x + width / 2, to.y - 7];
  const path = isWide ? `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}` : `M${x1} ${y1}C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}`;
  const at = isWide ? { x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 6, "text-anchor": "middle" } : { x: (x1 + x2) / 2 + 8, y: (y1 + y2) / 2 + 6 };
  return html`<path class="edge" d=${path} />
    <path class="arrow" d=${isWide ? `M${x2 + 7} ${y2}l-8 -4.5v9z` : `M${x2} ${y2 + 7}l-4.5 -8h9z`} />
    ${stage.num_rows_queued > 0 && html`<text class="edge-label" ...${at}>${compact(stage.num_rows_queued)}</text>`}`;
}

function Node({ stage, at, width, isSlow }) {
  const share = shareDone(stage);
  return html`<g class="node${isSlow ? " bottleneck" : ""}" data-state=${stage.state} transform="translate(${at.x} ${at.y})">
    <rect width=${width} height=${HEIGHT} rx="10" />
    <text class="name" x="12" y="24">${shortened(stage.name, Math.floor((width - 22) / 7.4))}</text>
    <text class="figure" x="12" y="44">${progressText(stage)}</text>
    <text class="figure" x="12" y="61">${stage.state === "running" ? [`${rate(stage.rate)}/s`, inFlight(stage.calls)].filter(Boolean).join(", ") : stage.state}</text>
    <title>${stage.name}</title>
    ${isSlow && html`<text class="flag" x=${width - 10} y="-3" text-anchor="end">bottleneck</text>`}
    ${share !== null && html`<path class="bar" d="M13 ${HEIGHT - 8}h${((width - 26) * share).toFixed(1)}" />`}
  </g>`;
}
