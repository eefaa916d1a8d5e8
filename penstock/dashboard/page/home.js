// The jobs and running queries of the machine or of a folder.
import { html, useEffect, useState } from "./vendor/preact.js";
import { address, chosen, follow, go, isGone, news } from "./server.js";
import { age, baseName, count, dollars, isOver, percent, roughly, seconds } from "./text.js";

const POLL_MS = 2000, HIDDEN_POLL_MS = 10_000, AGE_MS = 30_000;

export function Home() {
  const [home, setHome] = useState(null), [problem, setProblem] = useState(""), [picked, setPicked] = useState([]);
  const setNow = useState(0)[1]; // the ages of the jobs
  useEffect(() => {
    let timer = 0, isOpen = true;
    const look = async () => {
      setNow(Math.floor(Date.now() / AGE_MS));
      try { setHome(await news("api/home")); setProblem(""); } catch (error) { setProblem(isGone(error) ? "The dashboard has ended or cannot be reached." : error.message); }
      if (isOpen) timer = setTimeout(look, document.hidden ? HIDDEN_POLL_MS : POLL_MS);
    };
    look();
    return () => { isOpen = false; clearTimeout(timer); };
  }, []);
  useEffect(() => { document.title = "Jobs · Penstock"; }, []);
  if (home === null) return html`<p class="empty">${problem || "Reading …"}</p>`;
  const search = chosen("find").toLowerCase(), isFound = (line) => JSON.stringify([line.root ?? [line.name, line.program], line.models, line.state]).toLowerCase().includes(search);
  const jobs = (home.jobs ?? []).filter(isFound), queries = home.queries.filter(isFound);
  const toggle = (root) => setPicked(picked.includes(root) ? picked.filter((each) => each !== root) : [...picked, root].slice(-2));
  return html`<section id="home" aria-label="Jobs and queries">
    <div class="headline"><h1>${home.folder ? `Jobs in ${home.folder}` : "Jobs and queries"}</h1>
      <div class="actions">
        <label>Find <input type="search" id="find" value=${chosen("find")} onInput=${(event) => go(address({ find: event.target.value }), true)} /></label>
        <button type="button" disabled=${picked.length !== 2} onClick=${() => go(`?${new URLSearchParams({ job: picked[0], other: picked[1], view: "rows" })}`)}>Compare two</button>
      </div></div>
    ${problem && html`<p class="notice" role="status">${problem}</p>`}
    ${queries.length > 0 && html`<${Lines} id="queries" title="Queries of processes" lines=${queries} />`}
    ${jobs.length > 0 ? html`<${Lines} id="jobs" title="Jobs" lines=${jobs} picked=${picked} toggle=${toggle} />`
      : html`<div class="card waiting"><p><strong>${search ? "No job has this name." : "There is no job here yet."}</strong></p>
        <p>A write with --resume, or resume=True in Python, is a job. A query of a process that runs with dashboard=True is listed too.</p></div>`}
  </section>`;
}

function Lines({ id, title, lines, picked, toggle }) {
  return html`<section class="card" aria-labelledby="${id}-title"><h2 id="${id}-title">${title}</h2>
    <div class="scroll" role="group" aria-label=${title} tabindex="0"><table id=${id} class="stacked">
      <thead><tr><th scope="col">Name</th><th scope="col">State</th><th scope="col">Started</th><th scope="col" class="n">Took</th>
        <th scope="col">Model</th><th scope="col" class="n">Rows</th><th scope="col" class="n">Failed</th><th scope="col" class="n">Cost</th></tr></thead>
      <tbody>${lines.map((line) => html`<${Line} key=${line.root ?? line.link ?? line.id} line=${line} picked=${picked} toggle=${toggle} />`)}</tbody>
    </table></div></section>`;
}

function Line({ line, picked, toggle }) {
  const href = line.link ?? (line.root ? `?${new URLSearchParams({ job: line.root })}` : address({ query: line.id, view: null }));
  const open = line.link ? {} : { onClick: follow };
  const took = line.elapsed_s ? seconds(line.elapsed_s) + (line.left_s ? `, ${roughly(line.left_s)} left` : "") : "–";
  return html`<tr>
    <th scope="row">
      ${toggle && html`<input type="checkbox" aria-label="Compare ${line.root}" checked=${picked.includes(line.root)} onChange=${() => toggle(line.root)} /> `}
      <a href=${href} ...${open}>${line.root ? baseName(line.root) : line.name}</a>
      <span class="calls">${line.root ?? line.program}</span>
      ${line.error && html`<span class="calls bad-text">${line.error.slice(0, 300)}</span>`}
      ${line.command && line.state !== "finished" && isOver(line) && html`<span class="calls">continue: <code>${line.command}</code></span>`}
    </th>
    <td data-label="State"><span class="badge" data-state=${line.state}>${line.state}${!isOver(line) && line.share !== null ? `, ${percent(line.share)}` : ""}</span></td>
    <td data-label="Started">${age(line.started_at)}</td>
    <td data-label="Took" class="n">${took}</td>
    <td data-label="Model">${line.models.join(", ") || "–"}</td>
    <td data-label="Rows" class="n">${count(line.num_rows)}</td>
    <td data-label="Failed" class="n ${line.num_failed ? "bad-text" : ""}">${count(line.num_failed)}</td>
    <td data-label="Cost" class="n">${line.models.length ? dollars(line.dollars) : "–"}</td>
  </tr>`;
}
