"""See on a machine with a GPU what CI cannot: `python scripts/check_gpu.py` prints a line for each check.

Placement on a real device, two methods of one model on it, CUDA out-of-memory halved and remembered, what a measured
batch size gives against fixed ones, and how fast texts are embedded.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

import penstock as ps
from penstock import DataType, Series, col

WIDTH = 4096


@ps.cls(gpus=1)
class Encoder:
    """Three wide layers in half precision: enough work to make a batch size matter."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers = [layer for _ in range(3) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
        self.model = torch.nn.Sequential(*layers).half().cuda().eval()
        self.pid = os.getpid()

    @ps.method.batch(return_dtype=DataType.float32())
    def score(self, seed: Series) -> Any:
        with torch.inference_mode():
            return self.model(inputs(seed)).float().mean(1).cpu().numpy()

    @ps.method.batch(return_dtype=DataType.string())
    def where(self, seed: Series) -> list[str]:
        return [f"{os.environ['CUDA_VISIBLE_DEVICES']} {torch.cuda.device_count()} {self.pid}"] * len(seed)


def inputs(seed: Series) -> torch.Tensor:
    rows = torch.from_numpy(np.array(seed.to_numpy())).cuda().half()
    return (rows[:, None] / 1000 + torch.arange(WIDTH, device="cuda").half() / WIDTH).sin()


def check_placement() -> str:
    model = Encoder()
    df = ps.range(1000).select(model.where(col("id")).alias("where"), model.score(col("id")).alias("score"))
    seen = set(df.to_pydict()["where"])
    assert len(seen) == 1, seen
    devices, num_devices, pid = seen.pop().split()
    assert num_devices == "1"
    assert pid != str(os.getpid())
    return f"two methods of one model in one process, on device {devices}"


def check_out_of_memory() -> str:
    """A model whose memory grows with the rows until the card is full."""

    class Hungry:
        def __init__(self) -> None:
            self.sizes: list[int] = []
            total = torch.cuda.get_device_properties(0).total_memory
            self.row_nbytes = total // 300  # so that about 300 rows are too many

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            num_rows = len(batch["id"])
            held = torch.ones((num_rows, self.row_nbytes), dtype=torch.uint8, device="cuda")
            return {"id": batch["id"], "size": np.full(num_rows, num_rows), "ok": held[:, 0].cpu().numpy()}

    rows = ps.range(4096).map_batches(Hungry, batch_size=1024, num_gpus=1, concurrency=1).to_pydict()
    assert sorted(rows["id"]) == list(range(4096))
    assert set(rows["ok"]) == {1}
    sizes = [size for size, _ in runs(rows["size"])]
    assert max(sizes) < 300
    return f"batches of 1024 rows that do not fit went through as {sizes[:4]}... after {len(sizes)} calls"


def runs(values: list[int]) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(values):
        yield values[start], start
        start += values[start]


def check_batch_size() -> str:
    """The measured size against fixed ones, on the same rows."""

    def timed(batch_size: Any) -> float:
        @ps.cls(gpus=1)
        class Sized(Encoder._wrapped):  # type: ignore[misc, name-defined]
            @ps.method.batch(return_dtype=DataType.float32(), batch_size=batch_size)
            def rate(self, seed: Series) -> Any:
                return self.score(seed)

        with stopwatch() as seconds:
            total = ps.range(400_000).select(Sized().rate(col("id")).alias("score")).to_arrow()
        assert total.num_rows == 400_000
        return seconds[0]

    times = {size: timed(size) for size in (32, 256, 2048, 16384, "auto")}
    best = min(seconds for size, seconds in times.items() if size != "auto")
    shown = ", ".join(f"{size}: {seconds:.2f} s" for size, seconds in times.items())
    return f"{shown}; auto takes {times['auto'] / best:.2f}x of the best fixed size"


def check_embeddings() -> str:
    """Texts of 5 to 120 words by an encoder of MiniLM's shape, against sentence-transformers in half precision."""
    from sentence_transformers import SentenceTransformer

    rng = np.random.default_rng(0)
    words = [f"word{number}" for number in range(5000)]
    texts = [" ".join(rng.choice(words, length)) for length in rng.integers(5, 120, 60_000)]
    with tempfile.TemporaryDirectory() as folder:
        model = save_encoder(folder, words)

        def embedded(texts: list[str]) -> Any:
            return ps.from_pydict({"t": texts}).select(ps.embed_text(col("t"), model=model)).to_arrow()

        with stopwatch() as took:
            ours = np.stack(Series(embedded(texts)["t"]).to_pylist())
        with stopwatch() as took_more:
            embedded(texts * 7)
        peer = SentenceTransformer(model, device="cuda", model_kwargs={"dtype": torch.float16})
        peer.encode(texts[:64])
        with stopwatch() as peer_took:
            theirs = peer.encode(texts, batch_size=512, convert_to_numpy=True).astype(np.float32)
    likeness = (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    assert likeness.min() > 0.99, likeness.min()
    rate = 6 * len(texts) / (took_more[0] - took[0])  # without the start of a process and the loading of the model
    return (
        f"{rate:,.0f} texts a second, {rate * peer_took[0] / len(texts):.1f}x as fast as sentence-transformers at "
        f"batch 512 in fp16; {took[0]:.0f} s for {len(texts):,} with start-up; least cosine {likeness.min():.4f}"
    )


def save_encoder(folder: str, words: list[str]) -> str:
    """Write a BERT of MiniLM's shape with random weights."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]
    tokenizer = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=256,
    )  # fmt: skip
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(names), hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    BertModel(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


@contextmanager
def stopwatch() -> Iterator[list[float]]:
    seconds = [0.0]
    started = time.perf_counter()
    yield seconds
    seconds[0] = time.perf_counter() - started


if __name__ == "__main__":
    print(torch.cuda.get_device_name(0), "torch", torch.__version__)
    for check in (check_placement, check_out_of_memory, check_batch_size, check_embeddings):
        print(f"{check.__name__}: {check()}", flush=True)
