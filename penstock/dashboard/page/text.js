// Numbers and names as people read them.

const numbers = new Intl.NumberFormat("en-US");
export const plain = (value) => numbers.format(value);
export const count = (value) => plain(Math.round(value));
export const counted = (number, thing = "row") => `${count(number)} ${thing}${number === 1 ? "" : "s"}`;
export const rate = (value) => (value >= 10 ? count(value) : value ? value.toFixed(1) : "0");
export const shortened = (text, length) => (text.length > length ? `${text.slice(0, Math.max(length - 1, 1))}…` : text);
export const baseName = (path) => path.replace(/\/+$/, "").split("/").pop() || path;
export const percent = (share) => `${Math.floor(share * 100)} %`;

export function compact(value) {
  if (value < 10) return String(Number(value.toFixed(1)));
  return value < 10_000 ? count(value) : value < 1e6 ? `${Math.round(value / 1e3)}k` : `${(value / 1e6).toFixed(1)}M`;
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit && value < 99.5 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function seconds(value) {
  if (value < 59.5) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  const total = Math.round(value), minutes = Math.floor(total / 60);
  if (minutes < 60) return `${minutes} min ${total % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// A forecast, as exactly as it can be known.
export const roughly = (value) => (value < 90 ? `${Math.max(Math.round(value), 1)} s` : seconds(60 * Math.round(value / 60)).replace(" 0 s", ""));

export function age(startedAt) {
  const passed = Date.now() / 1000 - startedAt;
  if (!startedAt) return "";
  return passed < 60 ? "just now" : passed < 86400 ? `${seconds(passed).replace(/ \d+ s$/, "")} ago` : new Date(startedAt * 1000).toLocaleDateString();
}

export const latency = (value) => (value < 1 ? `${Math.round(1000 * value)} ms` : seconds(value));

export function dollars(value) {
  if (value === null || value === undefined) return "unknown";
  return `$${value.toFixed(value < 0.1 && value > 0 ? 4 : 2)}`;
}

// --- a query or job ---

export const isOver = (query) => Boolean(query) && !["running", "pausing", "paused"].includes(query.state);
export const isPaused = (query) => ["pausing", "paused"].includes(query.state);
export const shareDone = (stage) => (stage?.total ? Math.min(stage.num_done / stage.total, 1) : null);
export const inFlight = (calls) => (calls?.num_in_flight ? `${count(calls.num_in_flight)} in flight` : "");

export function stateText(query) {
  if (query.state !== "pausing") return query.state;
  const { calls, tasks } = query.under_way, parts = ["pausing"];
  if (calls) parts.push(`${counted(calls, "call")} in flight`);
  if (tasks) parts.push(`${counted(tasks, "task")} running`);
  return parts.join(", ");
}

export function progressText(stage) {
  const { calls } = stage;
  if (!calls) return `${count(stage.num_rows)} rows`; // a job of an older version has noted none
  return `${count(calls.num_answered)}${calls.total === null ? "" : ` of ${count(calls.total)}`} answered`;
}

export function callsText(stage) {
  const { calls } = stage, failed = calls?.num_failed ? `${count(calls.num_failed)} failed` : "";
  return calls ? [progressText(stage), inFlight(calls), failed].filter(Boolean).join(", ") : "";
}

// --- rows: a row has one number everywhere, that of the row in its input, counted from 0 ---

export const placeText = (place) => (place.row !== null ? `row ${place.row} of ${baseName(place.source ?? "the input")}` : place.number === undefined ? "a row" : `row ${place.number} of the output`);
export const placeTitle = (place) => (place.row === null ? "Its number in the input is not known." : `row ${place.row} of ${place.source ?? "the input"}`);

export function usageText(usage) {
  const parts = [`${count(usage.input_tokens)} + ${count(usage.output_tokens)} tokens`];
  if (usage.cost !== undefined) parts.push(`$${usage.cost.toPrecision(2)}`);
  if (usage.latency_s !== undefined) parts.push(latency(usage.latency_s));
  return parts.join(", ");
}
