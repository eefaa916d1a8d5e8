"""Embeddings: 5,000 texts to vectors of 1,536 numbers, 50 ms a request, Parquet to Parquet.

Every engine sends 256 texts a request, which is Penstock's default. Vectors arrive as base64 in all three.
"""

from benchmarks.model_server import (
    API_KEY,
    EMBEDDING_MODEL,
    fresh_api,
    make_prompts,
    run_penstock,
    run_plain,
    serving_in_50ms,
)

TARGETS = [("work_s", 1.0, "daft"), ("work_s", 1.3, "plain")]
DATASET = "prompts"
NUM_ROWS = 5_000
DIMENSIONS = 1536
PACKED = 256

make_batch = make_prompts
serving = serving_in_50ms


def penstock(run):
    import penstock as ps

    def answered(df):
        return df.select("id", vector=ps.col("prompt").embed_text(provider="openai", model=EMBEDDING_MODEL))

    run_penstock(run, answered)


def daft(run):
    import daft
    import openai  # noqa: F401  (the same)
    from daft.functions import embed_text

    daft.set_provider("openai", base_url=fresh_api(), api_key=API_KEY)
    with run.working():
        vector = embed_text(daft.col("prompt"), provider="openai", model=EMBEDDING_MODEL, batch_size=PACKED)
        df = daft.read_parquet(run.input).select("id", vector.alias("vector"))
        df.write_parquet(run.output, write_mode="overwrite", compression="snappy")


def plain(run):
    import base64

    import numpy as np
    import pyarrow as pa

    def packs(table):
        texts = table["prompt"].to_pylist()
        parts = [texts[i : i + PACKED] for i in range(0, len(texts), PACKED)]
        return [{"model": EMBEDDING_MODEL, "input": part, "encoding_format": "base64"} for part in parts]

    def vectors(body):
        return [np.frombuffer(base64.b64decode(item["embedding"]), np.float32) for item in body["data"]]

    def result(table, found):
        numbers = np.concatenate([vector for pack in found for vector in pack])
        column = pa.FixedSizeListArray.from_arrays(pa.array(numbers), DIMENSIONS)
        return pa.table({"id": table["id"], "vector": column})

    run_plain(run, "/embeddings", packs, vectors, result, compression="snappy", use_dictionary=False)
