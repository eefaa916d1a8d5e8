"""Answers of a decoder with transformers: Penstock, prompts one at a time, batches, and continuous batching.

    python -m benchmarks.gpu.generate            # 0.5B parameters, on the GPU
    python -m benchmarks.gpu.generate --tiny     # 1M parameters, on the CPU, single-threaded

The decoder has the shape of Qwen2.5-0.5B and random weights. Prompts have 20 to 400 tokens, answers 8 to 256, most few.
Continuous batching takes one limit for all prompts of a call. The rate of Penstock is that of all rows, from Parquet to
Parquet, less the time of a query of one row, which loads the model.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

QWEN = {
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "vocab_size": 151_936, "max_position_embeddings": 4096, "tie_word_embeddings": True,
}  # fmt: skip
TINY = QWEN | {
    "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 512,
}  # fmt: skip


def save_model(folder: Path, config: dict[str, Any], device: str) -> None:
    """Write a decoder with random weights, and a tokenizer that makes a token of each byte."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *(f"w{number}" for number in range(len(alphabet), config["vocab_size"] - 1))]
    tokenizer = Tokenizer(models.BPE(vocab={word: number for number, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    end = fast.eos_token_id
    with torch.device(device):
        model = Qwen2ForCausalLM(Qwen2Config(**config, bos_token_id=end, eos_token_id=end)).to(torch.bfloat16)
    model.generation_config = GenerationConfig(do_sample=False, eos_token_id=end, pad_token_id=end)
    model.save_pretrained(folder)


def make_rows(num_rows: int, max_new: int) -> pa.Table:
    rng = np.random.default_rng(0)
    lengths = np.exp(rng.uniform(np.log(20), np.log(400), num_rows)).astype(int)
    choices = np.geomspace(8, max_new, 6).astype(int)  # most answers are short; few different limits
    limits = choices[rng.integers(0, len(choices), num_rows)]
    texts = ["".join(map(chr, rng.integers(97, 123, length))) for length in lengths]
    return pa.table({"id": range(num_rows), "text": texts, "limit": limits})


class Loop:
    """``generate`` as in the examples of transformers."""

    def __init__(self, folder: Path, device: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self._tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self._tokenizer.pad_token = self._tokenizer.eos_token
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
        self._device = device

    def rate(self, rows: Sequence[dict[str, Any]], batch_size: int) -> float:
        """Return tokens per second. A batch runs until its longest answer is complete."""
        import torch

        start = time.perf_counter()
        ordered = sorted(rows, key=lambda row: row["limit"])
        for first in range(0, len(ordered), batch_size):
            batch = ordered[first : first + batch_size]
            inputs = self._tokenizer([row["text"] for row in batch], return_tensors="pt", padding=True)
            inputs = {name: inputs[name].to(self._device) for name in ("input_ids", "attention_mask")}
            limit = max(row["limit"] for row in batch)
            with torch.inference_mode():
                self._model.generate(**inputs, max_new_tokens=limit, min_new_tokens=limit, do_sample=False)
        return sum(row["limit"] for row in rows) / (time.perf_counter() - start)

    def continuous_rate(self, rows: Sequence[dict[str, Any]]) -> float:
        """Return tokens per second of continuous batching, where a new prompt takes the place of a finished answer.

        All prompts of a call share one generation config, so rows are grouped by their limits.
        """
        from transformers import GenerationConfig

        limits = sorted({row["limit"] for row in rows})
        start = time.perf_counter()
        for limit in limits:
            prompts = [self._tokenizer.encode(row["text"]) for row in rows if row["limit"] == limit]
            config = GenerationConfig(max_new_tokens=limit, eos_token_id=-1, pad_token_id=0, do_sample=False)
            self._model.generate_batch(prompts, generation_config=config)
        return sum(row["limit"] for row in rows) / (time.perf_counter() - start)


def run_penstock(source: Path, target: Path, folder: Path, device: str) -> tuple[float, int, str]:
    """Return the seconds, the tokens of all answers, and the statistics of the query."""
    import penstock as ps
    from penstock.functions import prompt

    start = time.perf_counter()
    answer = prompt(
        ps.col("text"), provider="transformers", model=str(folder), device=device, temperature=0, usage=True,
        max_output_tokens=ps.col("limit"),
    )  # fmt: skip
    df = ps.read_parquet(str(source)).with_column("answer", answer)
    df.write_parquet(str(target))
    seconds = time.perf_counter() - start
    usage = pa.compute.struct_field(pq.read_table(target, columns=["answer"])["answer"], "output_tokens")
    return seconds, pa.compute.sum(usage).as_py(), str(df.stats())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="a tiny model on the CPU")
    parser.add_argument("--rows", type=int, help="rows for Penstock (2,048; 96 with --tiny)")
    args = parser.parse_args()
    import torch

    device = "cpu" if args.tiny else "cuda"
    if args.tiny:
        torch.set_num_threads(1)
    num_rows = args.rows or (96 if args.tiny else 2048)
    num_single, batch_size = (6, 16) if args.tiny else (8, 256)
    table = make_rows(num_rows, 64 if args.tiny else 256)
    rows = table.to_pylist()
    with tempfile.TemporaryDirectory() as temp:
        folder, work = Path(temp, "model"), Path(temp)
        started = time.perf_counter()
        save_model(folder, TINY if args.tiny else QWEN, device)
        print(f"model and data: {time.perf_counter() - started:.1f} s", flush=True)
        loop = Loop(folder, device)
        loop.rate(rows[:1], 1)  # warm-up
        one = loop.rate(rows[:num_single], 1)
        print(f"one prompt at a time          {one:10,.0f} tokens/s", flush=True)
        batched = loop.rate(rows, batch_size)
        print(f"generate, batches of {batch_size:<8} {batched:10,.0f} tokens/s", flush=True)
        continuous = 0.0
        if device == "cuda":
            continuous = loop.continuous_rate(rows)
            print(f"continuous batching           {continuous:10,.0f} tokens/s", flush=True)
        del loop
        if device == "cuda":
            torch.cuda.empty_cache()
        pq.write_table(table.slice(0, 1), work / "first.parquet")
        pq.write_table(table, work / "all.parquet", row_group_size=256)
        startup_s, _, _ = run_penstock(work / "first.parquet", work / "first", folder, device)
        print(f"penstock, one row             {startup_s:10.1f} s", flush=True)
        all_s, num_tokens, stats = run_penstock(work / "all.parquet", work / "out", folder, device)
    rate = num_tokens / max(all_s - startup_s, 1e-9)
    print(f"penstock, {num_rows:,} rows          {rate:10,.0f} tokens/s, {all_s:.1f} s in all", flush=True)
    print(stats)
    figures = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "one_tokens_per_s": round(one, 1),
        "batches_tokens_per_s": round(batched, 1),
        "continuous_tokens_per_s": round(continuous, 1),
        "penstock_tokens_per_s": round(rate, 1),
        "penstock_start_s": round(startup_s, 2),
        "penstock_all_s": round(all_s, 2),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
