// The box above the table of functions hides the rows, and then the families, that lack the text.
document.addEventListener("input", (event) => {
  if (!event.target.matches("input.filter")) return;
  const wanted = event.target.value.trim().toLowerCase().split(/\s+/);
  for (const table of document.querySelectorAll("article table")) {
    let shown = 0;
    for (const row of table.querySelectorAll("tbody tr")) {
      const text = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    const block = table.closest(".md-typeset__scrollwrap") || table;
    block.hidden = shown === 0;
    const title = block.previousElementSibling;
    if (title && title.tagName === "H2") title.hidden = shown === 0;
  }
});
