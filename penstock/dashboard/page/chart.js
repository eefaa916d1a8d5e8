// Charts over time, with the values under the pointer. All charts of a run share one pointer.
import { html, useLayoutEffect, useRef } from "./vendor/preact.js";
import uPlot from "./vendor/uplot.js";
import { seconds } from "./text.js";

const HEIGHT = 150;
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ``lines`` are [name, points]. A short burst leaves the chart at the top, so that it does not flatten all the rest.
export function Chart({ id, title, unit, times, lines, format, theme }) {
  const holder = useRef(null), plot = useRef(null), names = lines.map(([name]) => name).join("\n");
  const latest = lines.map(([name, points]) => `${name} ${format(points.findLast((point) => point !== null) ?? 0)}`).join(", ");
  const most = usualMaximum(lines);

  useLayoutEffect(() => {
    const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const options = {
      width: Math.max(holder.current.clientWidth, 200), height: HEIGHT, padding: [8, 14, 0, 0],
      cursor: { sync: { key: "run" }, drag: { x: false, y: false }, points: { size: 6 } },
      scales: { x: { time: false }, y: { range: (self, low, high) => [0, self.most ?? (high || 1)] } },
      axes: [{ ...axis, size: 26, values: (self, values) => values.map(seconds) }, { ...axis, size: 58, values: (self, values) => values.map(format) }],
      series: [{ label: "at", value: (self, value) => (value === null ? "" : seconds(value)) },
        ...lines.map(([name], index) => ({ label: name, stroke: color(`--s${index % 8}`), width: 2, spanGaps: true, points: { show: false },
          value: (self, value) => (value === null ? "–" : format(value)) }))],
    };
    plot.current = new uPlot(options, [[0], ...lines.map(() => [0])], holder.current);
    const observer = new ResizeObserver(([{ contentRect }]) => plot.current.setSize({ width: Math.max(contentRect.width, 200), height: HEIGHT }));
    observer.observe(holder.current);
    return () => { observer.disconnect(); plot.current.destroy(); };
  }, [names, theme]);

  useLayoutEffect(() => {
    if (!times.length) return;
    plot.current.most = most;
    plot.current.setData([times, ...lines.map(([, points]) => points)]);
    const drawn = plot.current, idx = times.findLastIndex((_, index) => lines.some(([, points]) => points[index] !== null));
    if (drawn.cursor.left < 0) queueMicrotask(() => drawn.setLegend({ idx })); // after uPlot has drawn, in a microtask too
  });
  return html`<section class="card" aria-labelledby="${id}-title">
    <h2 id="${id}-title">${title} <small>${unit}</small></h2>
    <div class="chart" role="group" aria-label="${title}: ${latest || "nothing yet"}" ref=${holder}></div>
  </section>`;
}

function usualMaximum(lines) {
  const usual = lines.map(([, points]) => [...points].sort((a, b) => a - b)[Math.floor(points.length * 0.75)] ?? 0);
  const highest = Math.max(0, ...lines.flatMap(([, points]) => points)), last = Math.max(0, ...lines.map(([, points]) => points.at(-1) ?? 0));
  const shown = Math.max(3 * Math.max(0, ...usual), 1.1 * last);
  return 1.05 * (shown > 0 ? Math.min(highest, shown) : highest) || 1;
}

// What grows comes in steps, so a rate is the mean over a window.
export function rates(times, totals) {
  const window = Math.max(2, 0.04 * (times.at(-1) ?? 0));
  let before = 0;
  return totals.map((value, index) => {
    while (before < index && times[before + 1] <= times[index] - window) before += 1;
    return times[index] > times[before] ? (value - totals[before]) / (times[index] - times[before]) : 0;
  });
}
