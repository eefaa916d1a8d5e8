"""Text embedding on one GPU, Parquet to Parquet: a MiniLM-shaped encoder with random weights.

The texts have 5 to 250 words: with the lengths of reviews, or with `--variant uniform`, which makes them three times as
long.

`python -m benchmarks.gpu.embed_text` compares

penstock     `read_parquet`, `embed_text`, `write_parquet`; without a GPU also with `precision="int8"`
hand-tuned   a loop that tokenizes ahead on threads, sorts by length, bounds batches by tokens and uses bfloat16
gpu alone    the same batches, already tokenized and on the device; nothing is read or written
daft         the same query by Daft, which calls sentence-transformers
tokens       tokens per second of Penstock's query in the first minute, and after it
busy         the share of the time in which a kernel runs, from two seconds after the first output

`--shape qwen3-0.6b` and `--shape modernbert` have the real shapes of these models; they run the last part alone. The
model is compiled while it runs, so the rate grows after some seconds. The lines on stderr show it every five seconds.

Without a GPU the CPU computes. `--part` and `--folder` run parts in environments of their own on the same data.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.measure import (
    Figures,
    Place,
    RowTimes,
    device,
    difference_figures,
    main,
    penstock_figures,
    seconds_of,
    start_seconds,
    synchronize,
)

NUM_ROWS = 200_000
MIN_WORDS, MAX_WORDS, MAX_TOKENS = 5, 250, 256
NUM_WORDS = 24_000
SMALL_ROWS = 16
WINDOW_ROWS = 4_096
BATCH_TOKENS = 131_072
COMPILED_AFTER = 0.75
"""The share of the rows after which a model surely is compiled, if that pays."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"


SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "minilm": (
        "bert",
        {
            "vocab_size": 30_522,
            "hidden_size": 384,
            "num_hidden_layers": 6,
            "num_attention_heads": 12,
            "intermediate_size": 1_536,
        },
    ),
    "qwen3-0.6b": (
        "qwen3",
        {
            "vocab_size": 151_669,
            "hidden_size": 1_024,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 3_072,
            "max_position_embeddings": 32_768,
        },
    ),
    "modernbert": ("modernbert", {"pad_token_id": 0}),
}
"""The types of models and their sizes. ModernBERT-base has the sizes of its type's defaults."""


def prepare(place: Place) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    words = made_up_words(rng)
    # The last fifth of the words is not in the vocabulary, so that they take two or three tokens, as rare words do.
    texts = list(made_up_texts(rng, [*words, *(a + b for a, b in zip(words[::5], words[1::5], strict=True))], place))
    save_model(Path(place.model), place.shape, words, texts)
    table = pa.table({"id": np.arange(len(texts)), "text": texts})
    pq.write_table(table, place.input, row_group_size=16_384)
    pq.write_table(table.slice(0, SMALL_ROWS), place.small_input)


def made_up_words(rng: np.random.Generator) -> list[str]:
    lengths = rng.integers(2, 10, NUM_WORDS)
    return list(dict.fromkeys("".join(LETTERS[i] for i in rng.integers(0, 26, length)) for length in lengths))[
        : 5 * 4_000
    ]


def made_up_texts(rng: np.random.Generator, words: list[str], place: Place) -> Iterator[str]:
    chosen = np.array(words, object)
    for count in num_words(rng, place):
        yield " ".join(chosen[(len(words) * rng.random(count) ** 2).astype(int)])


def num_words(rng: np.random.Generator, place: Place) -> np.ndarray:
    """Return the lengths of the texts: all equally frequent, or as in reviews, where half have at most 25 words."""
    if place.variant == "uniform":
        return rng.integers(MIN_WORDS, MAX_WORDS + 1, place.num_rows)
    return np.clip(rng.lognormal(np.log(25), 0.9, place.num_rows), MIN_WORDS, MAX_WORDS).astype(int)


def save_model(folder: Path, shape: str, words: list[str], texts: list[str]) -> None:
    """Write a model with random weights and its tokenizer, in the layout of sentence-transformers."""
    import torch
    from transformers import AutoConfig, AutoModel

    folder.mkdir(parents=True)
    save_tokenizer = save_word_pieces if shape == "minilm" else save_byte_pairs
    save_tokenizer(folder, words, texts)
    torch.manual_seed(0)
    family, sizes = SHAPES[shape]
    config = AutoConfig.for_model(family, **sizes)
    with torch.device(device()):
        AutoModel.from_config(config, dtype=torch.float32 if shape == "minilm" else torch.bfloat16).save_pretrained(
            folder
        )
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    mode = "lasttoken" if family == "qwen3" else "mean_tokens"
    pooling = {"word_embedding_dimension": config.hidden_size, f"pooling_mode_{mode}": True}
    (folder / "1_Pooling").mkdir()
    (folder / "2_Normalize").mkdir()
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": MAX_TOKENS}))


def save_word_pieces(folder: Path, words: list[str], texts: list[str]) -> None:
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*LETTERS, *(f"##{letter}" for letter in LETTERS), *(f"##{word}" for word in words if len(word) < 5)]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys([*special, *pieces, *words]))}
    backend = BertWordPieceTokenizer(vocabulary, lowercase=True)
    BertTokenizerFast(tokenizer_object=backend._tokenizer, model_max_length=MAX_TOKENS).save_pretrained(folder)


def save_byte_pairs(folder: Path, words: list[str], texts: list[str]) -> None:
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    backend = ByteLevelBPETokenizer(add_prefix_space=True)
    backend.train_from_iterator(texts[:5_000], vocab_size=16_000, special_tokens=["<pad>"], show_progress=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend._tokenizer, model_max_length=MAX_TOKENS, pad_token="<pad>"
    )
    tokenizer.save_pretrained(folder)


# --- the parts ---


def penstock(place: Place, **options: Any) -> Figures:
    import penstock as ps

    ps.set_config(progress=False)

    def run(sources: list[str], target: str, provider: Any = "transformers") -> None:
        vector = ps.col("text").embed_text(provider=provider, model=place.model, **options)
        ps.read_parquet(sources).select("id", vector.alias("vector")).write_parquet(target, mode="overwrite")

    return penstock_figures(place, run)


def penstock_int8(place: Place) -> Figures:
    return {} if device() == "cuda" else penstock(place, precision="int8")


def tokens(place: Place) -> Figures:
    import penstock as ps

    ps.set_config(progress=False)

    def run(sources: list[str], target: str) -> None:
        vector = ps.col("text").embed_text(provider="transformers", model=place.model)
        ps.read_parquet(sources).select("id", vector.alias("vector")).write_parquet(target, mode="overwrite")

    per_row = tokens_per_row(place)
    times = RowTimes()
    ps.attach_subscriber(times)
    starts = start_seconds(place, run)
    total_s = seconds_of(run, [place.input], place.output("out"))
    for number, rate in enumerate(times.rates(5.0)):
        print(f"{5 * number:>4} to {5 * number + 5} s: {per_row * rate:>12,.0f} tokens/s", file=sys.stderr)
    first_minute = times.rates(60.0)[0] if times.outputs[-1][0] - times.outputs[0][0] > 60 else times.rate_after(0.0)
    return {
        "first start s": starts[0],
        "start s": starts[1],
        "total s": total_s,
        "tokens/row": per_row,
        "tokens/s 1st minute": per_row * first_minute,
        "tokens/s at end": per_row * times.rate_after(COMPILED_AFTER),
    }


def busy(place: Place) -> Figures:
    import penstock as ps
    from benchmarks.gpu.kernel_times import ProfiledTransformers, busy_percent

    ps.set_config(progress=False)
    times = RowTimes()
    ps.attach_subscriber(times)
    kernels = place.output("kernels.json")
    vector = ps.col("text").embed_text(provider=ProfiledTransformers(path=kernels), model=place.model)
    df = ps.read_parquet(place.input).select("id", vector.alias("vector"))
    df.write_parquet(place.output("out"), mode="overwrite")
    (first_s, _), (end_s, _) = times.outputs[0], times.outputs[-1]
    found = json.loads(Path(kernels).read_text())
    edges = [first_s, first_s + min(2.0, (end_s - first_s) / 2), end_s]
    return {
        "GPU busy %": busy_percent(found, edges[0], edges[2]),
        "after 2 s": busy_percent(found, edges[1], edges[2]),
        "last quarter": busy_percent(found, end_s - (end_s - first_s) / 4, end_s),
    }


def tokens_per_row(place: Place) -> float:
    import pyarrow.parquet as pq
    from transformers import AutoTokenizer

    backend = AutoTokenizer.from_pretrained(place.model).backend_tokenizer
    backend.enable_truncation(MAX_TOKENS)
    texts = pq.read_table(place.input)["text"].to_pylist()[:20_000]
    return float(np.mean([len(encoding.ids) for encoding in backend.encode_batch_fast(texts)]))


def daft(place: Place) -> Figures:
    import daft
    from daft.functions import embed_text

    def run(sources: list[str], target: str) -> None:
        vector = embed_text(daft.col("text"), provider="transformers", model=place.model)
        daft.read_parquet(sources).select("id", vector.alias("vector")).write_parquet(target, write_mode="overwrite")

    return difference_figures(place, run)


def sentence_transformers(place: Place) -> Figures:
    import pyarrow.parquet as pq
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(place.model, device=device())
    texts = pq.read_table(place.input)["text"].to_pylist()[:20_000]
    began = time.perf_counter()
    model.encode(texts, show_progress_bar=False)
    return {"rows/s after start": len(texts) / (time.perf_counter() - began)}


class Encoder:
    """The model and tokenizer of the hand-tuned loop."""

    def __init__(self, place: Place) -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer

        self.device = device()
        dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        self.model = AutoModel.from_pretrained(place.model, dtype=dtype).to(self.device).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(place.model).backend_tokenizer
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_TOKENS)

    def batches(self, texts: list[str]) -> list[tuple[np.ndarray, Any, Any]]:
        """Return the rows, padded ids and mask of each batch of a window, in pinned memory."""
        import torch

        ids = [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts)]
        lengths = np.array([len(each) for each in ids])
        order = np.argsort(-lengths, kind="stable")
        found, start = [], 0
        while start < len(order):
            longest = int(lengths[order[start]])
            rows = order[start : start + max(1, BATCH_TOKENS // longest)]
            padded = np.zeros((len(rows), longest), np.int64)
            for line, row in enumerate(rows):
                padded[line, : lengths[row]] = ids[row]
            tensors = torch.from_numpy(padded), torch.from_numpy(np.arange(longest) < lengths[rows][:, None])
            found.append((rows, *(t.pin_memory() if self.device == "cuda" else t for t in tensors)))
            start += len(rows)
        return found

    def vectors(self, ids: Any, mask: Any) -> Any:
        import torch

        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        weights = mask.unsqueeze(2).float()
        return torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=1)


def hand_tuned(place: Place) -> Figures:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    encoder = Encoder(place)
    for _, ids, mask in encoder.batches(pq.read_table(place.small_input)["text"].to_pylist()):
        encoder.vectors(ids.to(encoder.device), mask.to(encoder.device))
    synchronize()
    began = time.perf_counter()
    table = pq.read_table(place.input)
    texts = table["text"].to_pylist()
    windows = [texts[start : start + WINDOW_ROWS] for start in range(0, len(texts), WINDOW_ROWS)]
    out = torch.empty((len(texts), 384), device=encoder.device)
    with torch.inference_mode(), ThreadPoolExecutor(4) as ahead:
        for number, batches in enumerate(ahead.map(encoder.batches, windows)):
            for rows, ids, mask in batches:
                ids, mask = (tensor.to(encoder.device, non_blocking=True) for tensor in (ids, mask))
                where = torch.from_numpy(rows + number * WINDOW_ROWS).to(encoder.device, non_blocking=True)
                out[where] = encoder.vectors(ids, mask)
    flat = pa.array(out.cpu().numpy().ravel())
    vectors = pa.FixedSizeListArray.from_arrays(flat, 384)
    pq.write_table(pa.table({"id": table["id"], "vector": vectors}), place.output("hand-tuned.parquet"))
    return {"rows/s after start": len(texts) / (time.perf_counter() - began)}


def gpu_alone(place: Place) -> Figures:
    import pyarrow.parquet as pq
    import torch

    encoder = Encoder(place)
    texts = pq.read_table(place.input)["text"].to_pylist()[: 8 * WINDOW_ROWS]
    batches = [
        (ids.to(encoder.device), mask.to(encoder.device))
        for start in range(0, len(texts), WINDOW_ROWS)
        for _, ids, mask in encoder.batches(texts[start : start + WINDOW_ROWS])
    ]
    with torch.inference_mode():
        for _ in range(2):  # the first round warms up
            synchronize()
            began = time.perf_counter()
            for ids, mask in batches:
                encoder.vectors(ids, mask)
            synchronize()
    return {"rows/s after start": len(texts) / (time.perf_counter() - began)}


if __name__ == "__main__":
    parts = {
        "penstock": penstock,
        "penstock int8": penstock_int8,
        "hand-tuned": hand_tuned,
        "gpu alone": gpu_alone,
        "sentence-transformers": sentence_transformers,
        "daft": daft,
        "tokens": tokens,
        "busy": busy,
    }
    variants = ("reviews", "uniform")
    main(
        "benchmarks.gpu.embed_text",
        NUM_ROWS,
        prepare,
        parts,
        variants=variants,
        shapes=tuple(SHAPES),
        shape_part="tokens",
    )
