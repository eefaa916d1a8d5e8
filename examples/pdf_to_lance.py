"""Turn PDFs into chunks, chunks into vectors, and keep them in a Lance dataset."""

import tempfile
from pathlib import Path

import penstock as ps
from penstock.functions import embed_text

DATA = Path(__file__).parent / "data"

df = ps.read_pdf(str(DATA / "*.pdf"))  # a row for each page
df = df.with_column("chunk", ps.col("text").chunk_text(60, overlap=15, unit="words")).explode("chunk")
df = df.select("path", "page_number", "chunk")
df = df.with_column("vector", embed_text(ps.col("chunk")))  # MiniLM, on this machine

store = f"{tempfile.mkdtemp()}/handbook.lance"
df.write_lance(store)

chunks = ps.read_lance(store)
chunks.select("page_number", "chunk", "vector").show(4)
pages = chunks.select("page_number").distinct().count_rows()
print(f"{chunks.count_rows()} chunks from {pages} pages in {Path(store).name}")
