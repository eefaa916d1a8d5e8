// The data of the page, and its address: everything that a person chooses is in the address.

// --- the token: from the URL's fragment into this tab's storage, out of sight ---

const fragment = location.hash.slice(1);
if (fragment && fragment !== "main") {
  sessionStorage.setItem("penstock-token", fragment);
  history.replaceState(null, "", location.pathname + location.search);
}

export const token = () => sessionStorage.getItem("penstock-token") ?? "";
export const isGone = (error) => error instanceof TypeError; // the server did not answer

export async function fetched(path, body, known) {
  const headers = { Authorization: `Bearer ${token()}`, ...(known && { "If-None-Match": known }) };
  const options = body === undefined ? { headers } : { headers, method: "POST", body: JSON.stringify(body) };
  const response = await fetch(path, options);
  if (response.status === 401) throw new Error("This page needs its token. Open the whole URL that Penstock printed.");
  if (!response.ok && response.status !== 304) throw new Error((await response.json().catch(() => ({}))).error ?? response.statusText);
  return response;
}

export const ask = async (path, body) => (await fetched(path, body)).json();

// The answer to a question that the page repeats. While it stays the same, it is the same object, and the server sends none.
const latest = {};
export async function news(path, query = {}) {
  const known = latest[path], response = await fetched(`${path}?${new URLSearchParams(query)}`, undefined, known?.tag);
  if (response.status === 304) { await response.text(); return known.answer; } // read, so that the browser ends the request
  const answer = await response.json();
  latest[path] = { tag: response.headers.get("ETag"), answer };
  return answer;
}

// --- the address ---

export const chosen = (name) => new URLSearchParams(location.search).get(name) ?? "";
export const chosenOf = (names) => Object.fromEntries(names.map((name) => [name, chosen(name)]).filter(([, value]) => value !== ""));

// What names the run: the job, another one to compare it with, or a query of the process.
export const RUN = ["job", "other", "query"];

export function address(changes, isNew = false) {
  const values = new URLSearchParams(isNew ? chosenOf(RUN) : location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "" || value === false || value === undefined) values.delete(name);
    else values.set(name, value === true ? "1" : value);
  }
  return values.size ? `?${values}` : location.pathname;
}

let onAddress = () => {};
export const whenAddressChanges = (act) => { onAddress = act; addEventListener("popstate", act); };

// Typing replaces the address, so that back does not go letter by letter.
export function go(href, isTyped = false) {
  history[isTyped ? "replaceState" : "pushState"](null, "", href);
  onAddress();
}

export function follow(event) {
  if (event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  go(event.currentTarget.getAttribute("href"));
}
