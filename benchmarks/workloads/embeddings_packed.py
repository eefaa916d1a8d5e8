"""Embeddings: 5,000 texts to vectors of 1,536 numbers, 50 ms a request, Parquet to Parquet.

Every engine sends 256 texts a request, which is Penstock's default. Vectors arrive as base64 in all three.
"""

from benchmarks.model_server import (
    API_KEY,
    EMBEDDING_MODEL,
    PlainClient,
    fresh_api,
    load_penstock,
    make_prompts,
    serving_models,
)

TARGETS = [("work_s", 1.0, "daft"), ("work_s", 1.3, "plain")]
DATASET = "prompts"
NUM_ROWS = 5_000
LATENCY_S = 0.05
DIMENSIONS = 1536
PACKED = 256

make_batch = make_prompts


def serving(num_rows):
    return serving_models(latency=LATENCY_S, keep_requests=0)


def penstock(run):
    import penstock as ps

    load_penstock()
    ps.set_provider("openai", base_url=fresh_api(), api_key=API_KEY)
    with run.working():
        vector = ps.col("prompt").embed_text(provider="openai", model=EMBEDDING_MODEL)
        df = ps.read_parquet(run.input).select("id", vector.alias("vector"))
        df.write_parquet(run.output, mode="overwrite", compression="snappy")


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
    import pandas  # noqa: F401  (pyarrow imports it at the first conversion; here it is not charged to the work)
    import pyarrow as pa
    import pyarrow.parquet as pq

    def vectors(body):
        return [np.frombuffer(base64.b64decode(item["embedding"]), np.float32) for item in body["data"]]

    client = PlainClient(fresh_api() + "/embeddings")
    with run.working():
        table = pq.read_table(run.input)
        texts = table["prompt"].to_pylist()
        packs = [texts[i : i + PACKED] for i in range(0, len(texts), PACKED)]
        bodies = [{"model": EMBEDDING_MODEL, "input": pack, "encoding_format": "base64"} for pack in packs]
        found = client.ask_all(bodies, vectors)
        numbers = np.concatenate([vector for pack in found for vector in pack])
        column = pa.FixedSizeListArray.from_arrays(pa.array(numbers), DIMENSIONS)
        result = pa.table({"id": table["id"], "vector": column})
        pq.write_table(result, f"{run.output}/part-0.parquet", compression="snappy", use_dictionary=False)
