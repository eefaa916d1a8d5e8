"""Three questions about each row, answered by one decoder with random weights: `decide`, and `prompt` with JSON.

    python -m benchmarks.gpu.decide            # the shape of Qwen2.5-0.5B, on the GPU
    python -m benchmarks.gpu.decide --tiny     # 1M parameters, on the CPU

`decide` computes the scores of one token for each question; `prompt` writes an object of three fields, whose grammar
leaves no other answer. Texts have the lengths of reviews. A rate is that of all rows, from Parquet to Parquet, less the
time of a query of one row, which loads the model. The two take turns, and each query loads the model again.

`differences` compares the probabilities of 64 rows with those of a plain forward pass of each prompt in float32: of
`decide`, and of such passes in the type that `decide` computes in.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from benchmarks.gpu.embed_text import made_up_texts, made_up_words
from benchmarks.gpu.generate import QWEN, TINY as TINY_BYTES
from benchmarks.gpu.measure import Place

TINY = TINY_BYTES | {"vocab_size": 8_192}

REFUND, TOPIC, ANGER = (
    "Does the customer ask for a refund?",
    "What is it about?",
    "How angry is the customer?",
)


class Topic(StrEnum):
    billing = "billing"
    bug = "bug"
    other = "other"


class Anger(StrEnum):
    calm = "calm"
    cross = "cross"
    furious = "furious"


class Review(BaseModel):
    model_config = ConfigDict(extra="forbid")

    refund: bool
    topic: Topic
    anger: Anger


def save_model(folder: Path, config: dict[str, Any], texts: list[str], device: str) -> None:
    """Write a decoder with random weights, and a tokenizer trained on the texts and on answers, as real ones are."""
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    backend = ByteLevelBPETokenizer(add_prefix_space=False)
    end = "<|endoftext|>"
    learned = [*texts, *2_000 * [json.dumps({"refund": True, "topic": "billing", "anger": "furious"})]]
    learned += 2_000 * [REFUND, TOPIC, ANGER]
    backend.train_from_iterator(learned, vocab_size=config["vocab_size"], special_tokens=[end], show_progress=False)
    fast = PreTrainedTokenizerFast(tokenizer_object=backend._tokenizer, eos_token=end)
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen2ForCausalLM(
            Qwen2Config(**config, bos_token_id=fast.eos_token_id, eos_token_id=fast.eos_token_id)
        ).to(torch.bfloat16)
    model.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=fast.eos_token_id, pad_token_id=fast.eos_token_id
    )
    model.save_pretrained(folder)


def questions() -> dict[str, Any]:
    from penstock.functions import choice, score, yes_no

    return {
        "refund": yes_no(REFUND),
        "topic": choice(TOPIC, [each.value for each in Topic]),
        "anger": score(ANGER, [each.value for each in Anger]),
    }


def decided(model: str, device: str) -> Any:
    from penstock.functions import decide

    return decide("{text}", questions(), provider="transformers", model=model, device=device)


def prompted(model: str, device: str) -> Any:
    from penstock.functions import prompt

    template = f"{{text}}\n\nrefund: {REFUND} topic: {TOPIC} anger: {ANGER}"
    return prompt(
        template, provider="transformers", model=model, device=device, temperature=0, max_output_tokens=64,
        return_format=Review,
    )  # fmt: skip


def differences(model: str, device: str, texts: list[str]) -> dict[str, float]:
    """Return the largest differences of probabilities from those in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import penstock as ps
    from penstock.ai.decisions.labels import question_text
    from penstock.ai.decisions.transformers_judge import label_tokens

    tokenizer = AutoTokenizer.from_pretrained(model)

    def one_by_one(dtype: torch.dtype) -> Any:
        network = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).to(device).eval()
        rows = []
        for text in texts:
            row: list[float] = []
            for question in questions().values():
                ids = tokenizer(f"{text}\n\n{question_text(question)}", return_tensors="pt")["input_ids"].to(device)
                with torch.inference_mode():
                    logits = network(ids).logits[0, -1].double()
                firsts = label_tokens(question, lambda label: tokenizer.encode(label, add_special_tokens=False))
                row += torch.stack([logits[list(own)].logsumexp(0) for own in firsts]).softmax(0).tolist()
            rows.append(row)
        return np.array(rows)

    df = ps.from_pydict({"text": texts}).select(answer=decided(model, device))
    found = [
        [share for name in questions() for share in answer[name]["probabilities"].values()]
        for answer in df.to_pydict()["answer"]
    ]
    exact = one_by_one(torch.float32)
    plain = one_by_one(torch.bfloat16 if device == "cuda" else torch.float32)
    return {"decide": float(np.abs(found - exact).max()), "one by one": float(np.abs(plain - exact).max())}


def seconds(column: Callable[[], Any], source: Path, target: Path) -> float:
    import penstock as ps

    started = time.perf_counter()
    df = ps.read_parquet(str(source)).with_column("answer", column())
    df.write_parquet(str(target), mode="overwrite")
    answers = pq.read_table(target, columns=["answer"])["answer"]
    if answers.null_count:
        raise RuntimeError(f"{answers.null_count} rows have no answer")
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="a tiny model on the CPU")
    parser.add_argument("--rows", type=int, help="(16,384; 64 with --tiny)")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    import penstock as ps

    ps.set_config(progress=False)
    device = "cpu" if given.tiny else "cuda"
    num_rows = given.rows or (64 if given.tiny else 16_384)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as temp:
        folder = Path(temp)
        texts = list(made_up_texts(rng, made_up_words(rng), Place(folder, num_rows, "reviews")))
        save_model(folder / "model", TINY if given.tiny else QWEN, texts[:5_000], device)
        table = pa.table({"id": range(num_rows), "text": texts})
        pq.write_table(table.slice(0, 1), folder / "first.parquet")
        pq.write_table(table, folder / "all.parquet", row_group_size=4_096)
        print("differences", differences(str(folder / "model"), device, texts[:64]), flush=True)
        rates: dict[str, list[float]] = {"decide": [], "prompt": []}
        for _ in range(given.runs):
            for name, column in (("decide", decided), ("prompt", prompted)):
                column_of = lambda column=column: column(str(folder / "model"), device)  # noqa: E731
                start_s = seconds(column_of, folder / "first.parquet", folder / "first")
                total_s = seconds(column_of, folder / "all.parquet", folder / "out")
                rates[name].append(num_rows / max(total_s - start_s, 1e-9))
                print(f"{name:8} {rates[name][-1]:10,.0f} rows/s, start {start_s:.1f} s", flush=True)
    ratios = [one / other for one, other in zip(rates["decide"], rates["prompt"], strict=True)]
    print(json.dumps({"rows": num_rows, **rates, "ratios": ratios}))


if __name__ == "__main__":
    main()
