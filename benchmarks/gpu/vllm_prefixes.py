"""vLLM in the process on prompts that share prefixes: random order, grouped order, and ``vllm-prefix-caching``.

4,096 prompts of 1,280 tokens over 256 prefixes of 1,024; the cache holds half of the prefixes. The model has the shape
of Qwen3-1.7B, random weights and a tokenizer of words, so nothing is downloaded. Then features of the real engine are
tried, and its process is killed in the middle of a run. It takes about four minutes:

    python -m benchmarks.gpu.vllm_prefixes            # --scale 0.25 for a trial, --no-death to leave out the last part
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.ai.local.serving.prompter import EnginePrompter
from penstock.ai.local.serving.provider import PrefixCachingProvider, VllmProvider
from penstock.ai.local.serving.shared_engine import SharedEngine
from penstock.ai.provider import ModelTask, Prompting
from penstock.functions import prompt
from penstock.types import Schema

NUM_WORDS = 151_936
OWN_WORDS = ("yes", "no", *"0123456789")
SHAPES = {
    "1.7b": {"hidden_size": 2048, "num_attention_heads": 16, "intermediate_size": 6144},
    "0.6b": {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 3072},
}
BLOCK_TOKENS = 16


@dataclass
class Work:
    num_prompts: int = 4096
    num_prefixes: int = 256
    prefix_tokens: int = 1024
    suffix_tokens: int = 256
    output_tokens: int = 64

    def prompts(self, seed: int) -> list[str]:
        """Return shuffled prompts. Another seed gives other prefixes, so that runs do not share a cache."""
        rng = random.Random(seed)

        def words(count: int) -> str:
            return " ".join(f"w{rng.randrange(NUM_WORDS - len(OWN_WORDS))}" for _ in range(count))

        prefixes = [words(self.prefix_tokens) for _ in range(self.num_prefixes)]
        found = [f"{prefixes[n % self.num_prefixes]} {words(self.suffix_tokens)}" for n in range(self.num_prompts)]
        rng.shuffle(found)
        return found

    @property
    def num_blocks(self) -> int:
        """Blocks of the cache for half of the prefixes."""
        return self.num_prefixes // 2 * self.prefix_tokens // BLOCK_TOKENS


def save_model(folder: Path, shape: str) -> str:
    """Write a configuration and a tokenizer with a token for each word."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*OWN_WORDS, *(f"w{n}" for n in range(NUM_WORDS - len(OWN_WORDS)))]
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0", eos_token="w1").save_pretrained(folder)
    config = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 28,
        "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True, "vocab_size": NUM_WORDS,
        "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "torch_dtype": "bfloat16",
        "bos_token_id": 13, "eos_token_id": 13, "hidden_act": "silu", "attention_bias": False,
        "attention_dropout": 0.0, "initializer_range": 0.02, "max_window_layers": 36, "rope_scaling": None,
        "sliding_window": None, "use_sliding_window": False, "use_cache": True, **SHAPES[shape],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


# --- a source that arrives over some seconds, and the time of the first answer ----------------------------------------


@dataclass
class Arrivals:
    """Times of one run, in seconds since its start."""

    started: float = field(default_factory=time.perf_counter)
    first_answer_s: float = 0.0
    input_end_s: float = 0.0
    num_answers: int = 0

    def note_answer(self) -> None:
        self.num_answers += 1
        self.first_answer_s = self.first_answer_s or time.perf_counter() - self.started


ARRIVALS = [Arrivals()]


@dataclass
class Chunk:
    texts: list[str]
    arrives_s: float
    num_rows: int | None = None
    nbytes: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        time.sleep(max(0.0, ARRIVALS[0].started + self.arrives_s - time.perf_counter()))
        yield pa.record_batch({"q": pa.array(self.texts)})
        ARRIVALS[0].input_end_s = time.perf_counter() - ARRIVALS[0].started


@dataclass
class Chunks:
    """Rows that arrive in chunks over ``input_s`` seconds, as from a step before."""

    texts: list[str]
    input_s: float
    chunk_rows: int = 128
    name: str = "chunks"
    can_filter: bool = False

    def schema(self) -> Schema:
        return Schema.from_arrow(pa.schema({"q": pa.string()}))

    def read_tasks(self, request: Any) -> Iterator[Chunk]:
        for start in range(0, len(self.texts), self.chunk_rows):
            stop = start + self.chunk_rows
            yield Chunk(self.texts[start:stop], self.input_s * stop / len(self.texts))


class TimedPrompter(EnginePrompter):
    async def generate(self, request: Any) -> Any:
        answers = await super().generate(request)
        ARRIVALS[0].note_answer()
        return answers


@dataclass(frozen=True)
class TimedProvider(VllmProvider):
    def model(self, task: ModelTask) -> Any:
        model = super().model(task)
        model.__class__ = TimedPrompter
        return model


@dataclass(frozen=True)
class TimedGroupingProvider(TimedProvider, PrefixCachingProvider):
    pass


# --- phases -----------------------------------------------------------------------------------------------------------


def measured(provider: VllmProvider, model: str, texts: list[str], work: Work, input_s: float) -> dict[str, Any]:
    """Ask all prompts once. Return requests per second, the share of cached tokens, and the times of the input."""
    ARRIVALS[0] = arrivals = Arrivals()
    asked = prompt(
        ps.col("q"), provider=provider, model=model, temperature=0.0, max_tokens=work.output_tokens, usage=True,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    rows = ps.read_source(Chunks(texts, input_s)).select(asked.alias("a")).to_pydict()["a"]
    seconds = time.perf_counter() - arrivals.started
    assert {row["output_tokens"] for row in rows} == {work.output_tokens}, "short answers"
    hit = sum(row["cached_tokens"] for row in rows) / sum(row["input_tokens"] for row in rows)
    return {
        "req_s": round(len(rows) / seconds, 1), "hit": round(hit, 3), "seconds": round(seconds, 1),
        "first_answer_s": round(arrivals.first_answer_s, 2), "input_read_s": round(arrivals.input_end_s, 2),
    }  # fmt: skip


def check_features(provider: VllmProvider, model: str) -> dict[str, Any]:
    """Try what an answer may be asked for, on the real engine."""
    df = ps.from_pydict({"q": ["w5 w6 w7", "w8 w9"], "t": [0.0, -1.0]})

    def ask(**options: Any) -> list[Any]:
        shared: dict[str, Any] = {"provider": provider, "model": model, "max_tokens": 6, "temperature": 0.0}
        return df.select(prompt(ps.col("q"), **{**shared, **options}).alias("a")).to_pydict()["a"]

    choice = {"structured_outputs": {"choice": ["yes", "no"]}}
    checks: dict[str, Callable[[], bool]] = {
        "text": lambda: all(ask()),
        "n": lambda: [len(each) for each in ask(n=3, temperature=1.0)] == [3, 3],
        "choice": lambda: {each.strip() for each in ask(extra_body=choice)} <= {"yes", "no"},
        "regex": lambda: all(len(each.replace(" ", "")) == 3 for each in ask(extra_body={"guided_regex": "[0-9]{3}"})),
        "logprobs": lambda: [len(each["logprobs"]) for each in ask(logprobs=True, top_logprobs=2)] == [6, 6],
        "usage": lambda: [each["input_tokens"] for each in ask(usage=True)] == [3, 2],
        "row error": lambda: [each is None for each in ask(temperature=ps.col("t"), on_error="null")] == [False, True],
        "unknown field": lambda: ask(extra_body={"no_such_field": 1}, on_error="null") == [None, None],
    }
    found = {}
    for name, check in checks.items():
        try:
            found[name] = check()
        except Exception:
            traceback.print_exc()
            found[name] = False
    return found


def check_death(provider: VllmProvider, model: str, engine: SharedEngine) -> dict[str, Any]:
    """Kill the engine's process in the middle of a run. All rows must still have answers."""
    ARRIVALS[0] = arrivals = Arrivals()
    killed: list[int] = []

    async def kill_after_an_answer() -> None:
        while arrivals.num_answers < 20:
            await asyncio.sleep(0.01)
        for process in engine_processes(engine):
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)

    killing = asyncio.run_coroutine_threadsafe(kill_after_an_answer(), engine._loop)
    asked = prompt(ps.col("q"), provider=provider, model=model, max_tokens=64, extra_body={"ignore_eos": True})
    texts = [f"w{n} w{n + 1}" for n in range(2000)]
    rows = ps.from_pydict({"q": texts}).select(asked).to_pydict()["q"]
    killing.cancel()
    return {
        "killed": len(killed),
        "answers": sum(map(bool, rows)),
        "of": len(texts),
        "seconds": round(time.perf_counter() - arrivals.started, 1),
    }


def engine_processes(engine: SharedEngine) -> list[Any]:
    (replica,) = engine._feed._replicas
    return list(replica.engine._llm.engine_core.resources.engine_manager.processes)  # type: ignore[union-attr]


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError(f"the phase took more than {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="1.7b", choices=SHAPES)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the prefixes, for a short trial")
    parser.add_argument("--input-s", type=float, default=2.0, help="seconds over which the input arrives")
    parser.add_argument("--no-death", action="store_true", help="leave out the restart of a killed engine")
    args = parser.parse_args()
    begun, results = time.perf_counter(), {}
    work = Work(num_prompts=int(4096 * args.scale), num_prefixes=int(256 * args.scale))
    model = save_model(Path(tempfile.mkdtemp()), args.shape)
    engine_kwargs = {
        "load_format": "dummy", "max_model_len": 4096, "num_gpu_blocks_override": work.num_blocks, "max_num_seqs": 1024,
        "max_num_batched_tokens": 16384, "enable_prefix_caching": True,
        "compilation_config": {"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 320, 384, 448, 512]},
    }  # fmt: skip
    plain, grouping = TimedProvider(engine_kwargs=engine_kwargs), TimedGroupingProvider(engine_kwargs=engine_kwargs)
    spec = plain.model(Prompting(model)).spec
    engine = SharedEngine.acquire(spec, 512)  # all phases share it

    def phase(name: str, seconds: int, run: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        try:
            with time_limit(seconds):
                results[name] = run()
        except BaseException:
            traceback.print_exc()
            results[name] = None
        print(f"{name} ({time.perf_counter() - started:.1f} s): {results[name]}", flush=True)
        return results[name]

    try:
        warm = Work(256, 16, 256, 256, 16)
        if phase("first prompt, with start", 180, lambda: ps.from_pydict({"q": ["w1 w2"]}).select(
            prompt(ps.col("q"), provider=plain, model=model, max_tokens=4)).to_pydict()) is None:  # fmt: skip
            sys.exit("the engine does not run")
        phase("warm-up", 60, lambda: measured(plain, model, warm.prompts(99), warm, 0.1))
        random_order = phase(
            "vllm, random order", 120, lambda: measured(plain, model, work.prompts(1), work, args.input_s)
        )
        grouped = phase(
            "vllm, grouped order", 90, lambda: measured(plain, model, sorted(work.prompts(2)), work, args.input_s)
        )
        ours = phase(
            "vllm-prefix-caching, random order",
            90,
            lambda: measured(grouping, model, work.prompts(3), work, args.input_s),
        )
        if random_order and grouped and ours:
            results["of random"] = round(ours["req_s"] / random_order["req_s"], 2)
            results["of grouped"] = round(ours["req_s"] / grouped["req_s"], 3)
        phase("features", 90, lambda: check_features(plain, model))
        if not args.no_death:
            phase("death", 150, lambda: check_death(plain, model, engine))
    finally:
        print(json.dumps(results, indent=1), flush=True)
        if out := os.environ.get("OUT"):
            (Path(out) / "vllm_prefixes.json").write_text(json.dumps(results, indent=1))
        print_table(results, time.perf_counter() - begun)
        with time_limit(60):
            engine.release()


def print_table(results: dict[str, Any], seconds: float) -> None:
    print(f"\n{'':36}{'req/s':>8}{'hit':>8}{'first answer':>14}{'input read':>12}")
    for name, found in results.items():
        if isinstance(found, dict) and "req_s" in found:
            times = f"{found['first_answer_s']:>12} s{found['input_read_s']:>10} s"
            print(f"{name:36}{found['req_s']:>8}{found['hit']:>8.0%}{times}")
    of_random, of_grouped = results.get("of random"), results.get("of grouped")
    print(f"of random order: {of_random}, of grouped order: {of_grouped}; {seconds:.0f} s in all")


if __name__ == "__main__":
    main()
