"""Answer questions over documents: find the nearest chunks by meaning, then ask a model with them as context."""

from pathlib import Path

from offline import connect

import penstock as ps
from penstock.functions import embed_text, list_join

DATA = Path(__file__).parent / "data"
QUESTIONS = [
    "How long is the guarantee of the grinder?",
    "How often should I clean the burrs?",
    "Which coffee setting suits espresso?",
]

connect()
chunks = ps.read_pdf(str(DATA / "handbook.pdf"))
chunks = chunks.with_column("chunk", ps.col("text").chunk_text(60, overlap=15, unit="words")).explode("chunk")
chunks = chunks.select("page_number", "chunk", embed_text(ps.col("chunk")).alias("vector"))

asked = ps.from_pydict({"question": QUESTIONS}).with_column("vector", embed_text("{question}"))
found = chunks.nearest(asked, on="vector", k=2)
found = found.group_by("question").agg(
    ps.col("chunk").list_agg().alias("chunks"), ps.col("page_number").list_agg().alias("pages")
)
found = found.with_column("context", list_join(ps.col("chunks"), "\n"))
found = found.with_column(
    "answer", ps.prompt("Answer from the context.\n\nContext:\n{context}\n\nQuestion: {question}", model="gpt-5-mini")
)
for row in found.sort("question").to_pylist():
    print(f"{row['question']}\n  {row['answer']}  (pages {sorted(set(row['pages']))})")
