// Differences of two texts by words, and Markdown as elements: text from data never becomes markup.
import { html } from "./vendor/preact.js";

const MAX_WORDS = 600;

// Return [text, kind] pieces of both texts together: kind is "same", "gone" or "new".
export function wordDifferences(before, after) {
  const a = before.match(/\s+|[^\s]+/g) ?? [], b = after.match(/\s+|[^\s]+/g) ?? [];
  if (a.length > MAX_WORDS || b.length > MAX_WORDS) return [[before, "gone"], [after, "new"]];
  const longest = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) longest[i][j] = a[i] === b[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
  }
  const pieces = [], add = (text, kind) => { if (pieces.at(-1)?.[1] === kind) pieces.at(-1)[0] += text; else pieces.push([text, kind]); };
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { add(a[i], "same"); i += 1; j += 1; }
    else if (j >= b.length || (i < a.length && longest[i + 1][j] >= longest[i][j + 1])) { add(a[i], "gone"); i += 1; }
    else { add(b[j], "new"); j += 1; }
  }
  return pieces;
}

export const Differences = ({ before, after }) => html`<pre class="words">${wordDifferences(before, after).map(([text, kind]) =>
  (kind === "same" ? text : kind === "gone" ? html`<del>${text}</del>` : html`<ins>${text}</ins>`))}</pre>`;

// Headings, lists, code, bold and emphasis; links stay text.
export function Markdown({ text }) {
  const blocks = [];
  text.split(/^```.*$/m).forEach((part, index) => {
    if (index % 2) return blocks.push(html`<pre>${part.replace(/^\n|\n$/g, "")}</pre>`);
    return part.split(/\n\s*\n/).filter((block) => block.trim()).forEach((block) => blocks.push(markdownBlock(block.trim())));
  });
  return html`<div class="markdown">${blocks}</div>`;
}

function markdownBlock(block) {
  const heading = block.match(/^(#{1,6})\s+(.*)$/);
  if (heading) return html`<p class="heading">${inline(heading[2])}</p>`;
  const lines = block.split("\n");
  if (lines.every((line) => /^\s*([-*+]|\d+[.)])\s/.test(line))) {
    const items = lines.map((line) => html`<li>${inline(line.replace(/^\s*([-*+]|\d+[.)])\s+/, ""))}</li>`);
    return /^\s*\d/.test(block) ? html`<ol>${items}</ol>` : html`<ul>${items}</ul>`;
  }
  return html`<p>${inline(block)}</p>`;
}

const inline = (text) => text.split(/(\*\*[^*]+\*\*|`[^`]+`|\*[^*\s][^*]*\*)/).map((part) => {
  if (/^\*\*.+\*\*$/.test(part)) return html`<strong>${part.slice(2, -2)}</strong>`;
  if (/^`.+`$/.test(part)) return html`<code>${part.slice(1, -1)}</code>`;
  return /^\*.+\*$/.test(part) ? html`<em>${part.slice(1, -1)}</em>` : part;
});
