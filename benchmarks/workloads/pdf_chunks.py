"""PDFs: 200 files of 8 pages to text, cut into overlapping chunks, to Parquet."""

TARGETS = [("work_s", 0.9, "daft"), ("work_s", 1.2, "plain")]
DATASET = "pdfs"
NUM_ROWS = 200
PAGES = 8
SIZE, OVERLAP = 800, 200


def make_file(rng, folder, number):
    """Write a PDF whose pages have 40 lines of about 60 letters."""
    letters = rng.integers(97, 123, (200, 7), dtype="uint8")
    words = [row.tobytes().decode()[: 2 + number % 6] for number, row in enumerate(letters)]
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    for page in range(PAGES):
        lines = [" ".join(words[i] for i in rng.integers(0, len(words), 11)) for _ in range(40)]
        lines[0] = f"Document {number}, page {page + 1}."
        content = "BT /F1 10 Tf 50 750 Td 14 TL " + " ".join(f"({line}) Tj T*" for line in lines) + " ET"
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {len(objects) + 2} 0 R >>"
        )
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    kids = " ".join(f"{4 + 2 * page} 0 R" for page in range(PAGES))
    objects[1] = f"<< /Type /Pages /Kids [{kids}] /Count {PAGES} >>"
    body, offsets = "%PDF-1.4\n", []
    for i, text in enumerate(objects, start=1):
        offsets.append(len(body))
        body += f"{i} 0 obj\n{text}\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    end = f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    text = f"{body}xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{end}"
    (folder / f"{number:04d}.pdf").write_bytes(text.encode())


def pages_of(path):
    """Return the pages of a PDF as a user would write it."""
    import pypdfium2

    document = pypdfium2.PdfDocument(path)
    pages = []
    for number in range(len(document)):
        page = document[number]
        text_page = page.get_textpage()
        pages.append({"page_number": number + 1, "text": text_page.get_text_range().replace("\r\n", "\n")})
        text_page.close()
        page.close()
    document.close()
    return pages


def chunks_of(text):
    step = SIZE - OVERLAP
    return [text[start : start + SIZE] for start in range(0, max(len(text) - OVERLAP, 1), step)]


def rows_of(path):
    """Return a row for each chunk of a PDF."""
    pages = pages_of(path)
    return [{"page_number": page["page_number"], "chunk": c} for page in pages for c in chunks_of(page["text"])]


def penstock(run):
    import penstock as ps
    from penstock.functions import chunk_text

    with run.working():
        df = ps.read_pdf(run.input)
        df = df.select("page_number", chunk_text(ps.col("text"), SIZE, OVERLAP).explode().alias("chunk"))
        df.write_parquet(run.output, mode="overwrite", compression="snappy")


def daft(run):
    import daft

    page = daft.DataType.struct({"page_number": daft.DataType.int64(), "text": daft.DataType.string()})

    # In a process, because PDFium must not be used by two threads at a time.
    @daft.func(return_dtype=daft.DataType.list(page), use_process=True)
    def pages(path: str):
        return pages_of(path.removeprefix("file://"))

    @daft.func(return_dtype=daft.DataType.list(daft.DataType.string()))
    def chunks(text: str):
        return chunks_of(text)

    with run.working():
        df = daft.from_glob_path(f"{run.input}/*.pdf").select(pages(daft.col("path")).alias("page")).explode("page")
        df = df.select(daft.col("page")["page_number"], chunks(daft.col("page")["text"]).alias("chunk"))
        df.explode("chunk").write_parquet(run.output, write_mode="overwrite", compression="snappy")


def ray_data(run):
    from pathlib import Path

    import ray

    from benchmarks.ray_cluster import start

    start()
    with run.working():
        paths = [{"path": str(path)} for path in sorted(Path(run.input).glob("*.pdf"))]
        chunks = ray.data.from_items(paths).flat_map(lambda row: rows_of(row["path"]))
        chunks.write_parquet(run.output, compression="snappy")


def plain(run):
    import os
    from concurrent.futures import ProcessPoolExecutor
    from pathlib import Path

    import pandas  # noqa: F401  (pyarrow imports it at the first conversion; here it is not charged to the work)
    import pyarrow as pa
    import pyarrow.parquet as pq

    with run.working():
        paths = sorted(map(str, Path(run.input).glob("*.pdf")))
        schema = pa.schema({"page_number": pa.int64(), "chunk": pa.string()})
        with (
            ProcessPoolExecutor(os.cpu_count()) as processes,
            pq.ParquetWriter(f"{run.output}/part-0.parquet", schema, compression="snappy") as writer,
        ):
            for rows in processes.map(rows_of, paths, chunksize=4):
                writer.write_batch(pa.RecordBatch.from_pylist(rows, schema))
