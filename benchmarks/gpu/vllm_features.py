"""Features of vLLM in the process that need the real engine: chat templates, JSON schemas, images, LoRA, replicas.

The models are small and have random weights; what they say is nonsense, but it must have the right form:

    python -m benchmarks.gpu.vllm_features
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pydantic

import penstock as ps
from penstock import llm
from penstock.ai.local.serving.prompter import EnginePrompter
from penstock.ai.local.serving.provider import PrefixCachingProvider, VllmProvider
from penstock.ai.local.serving.shared_engine import SharedEngine
from penstock.ai.provider import Prompting
from penstock.functions import prompt
from tests.seeds.tiny_models import _byte_tokenizer

SHAPE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
CHAT_TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
IMAGE_TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}<assistant>"
)
SETTINGS = {"enforce_eager": True, "gpu_memory_utilization": 0.1, "max_model_len": 1024}


class Review(pydantic.BaseModel):
    mood: Literal["good", "bad"]
    stars: int = pydantic.Field(ge=1, le=5)


# --- models -----------------------------------------------------------------------------------------------------------


def text_config(vocabulary: int, end: int) -> dict[str, Any]:
    return SHAPE | {
        "vocab_size": vocabulary, "num_key_value_heads": 2, "max_position_embeddings": 1024, "initializer_range": 0.2,
        "bos_token_id": end, "eos_token_id": end,
    }  # fmt: skip


def save_llama(folder: Path) -> str:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    tokenizer = _byte_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE
    config = LlamaConfig(**text_config(len(tokenizer), tokenizer.eos_token_id))
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def save_qwen2_vl(folder: Path) -> str:
    """Write a model of the Qwen2-VL family: a small vision tower in front of a small decoder."""
    import torch
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen2VLImageProcessor, Qwen2VLProcessor
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

    torch.manual_seed(0)
    tokenizer = _byte_tokenizer()
    special = {"vision_start": "<|vision_start|>", "vision_end": "<|vision_end|>"}
    special |= {"image": "<|image_pad|>", "video": "<|video_pad|>"}
    tokenizer.add_special_tokens({"additional_special_tokens": list(special.values())})
    ids = {f"{name}_token_id": tokenizer.convert_tokens_to_ids(token) for name, token in special.items()}
    text = text_config(len(tokenizer), tokenizer.eos_token_id)
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [8, 12, 12]}
    vision = {"depth": 2, "embed_dim": 64, "num_heads": 2, "mlp_ratio": 2, "hidden_size": SHAPE["hidden_size"]}
    config = Qwen2VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=False, **ids)
    Qwen2VLForConditionalGeneration(config).to(torch.bfloat16).save_pretrained(folder)
    sizes = {"min_pixels": 28 * 28, "max_pixels": 56 * 56}
    processor = Qwen2VLProcessor(
        Qwen2VLImageProcessor(**sizes), tokenizer, Qwen2VLVideoProcessor(**sizes), chat_template=IMAGE_TEMPLATE
    )
    processor.save_pretrained(folder)
    tokenizer.chat_template = IMAGE_TEMPLATE
    tokenizer.save_pretrained(folder)
    return str(folder)


def save_adapter(folder: Path, seed: int) -> str:
    """Write a LoRA adapter with random weights, large enough to change every answer."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    torch.manual_seed(seed)
    rank, width = 8, SHAPE["hidden_size"]
    weights = {}
    for layer in range(SHAPE["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        weights[f"{name}.lora_A.weight"] = torch.randn(rank, width)
        weights[f"{name}.lora_B.weight"] = torch.randn(width, rank)
    save_file(weights, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 16, "target_modules": ["q_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return str(folder)


# --- checks -----------------------------------------------------------------------------------------------------------

QUESTIONS = {"q": ["how was it?", "and the other one?", "how was it?"]}


def ask(df: ps.DataFrame, question: Any, model: str, settings: dict[str, Any], **options: Any) -> list[Any]:
    provider = options.pop("provider", VllmProvider)(engine_kwargs=SETTINGS | settings)
    shared: dict[str, Any] = {"max_tokens": 24, "temperature": 0.0}
    answer = prompt(question, provider=provider, model=model, **{**shared, **options})
    return df.select(answer.alias("a")).to_pydict()["a"]


def with_engine(model: str, check: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Keep the engine of a model for all queries of a check."""
    prompter = VllmProvider(engine_kwargs=SETTINGS).model(Prompting(model))
    assert isinstance(prompter, EnginePrompter)
    engine = SharedEngine.acquire(prompter.spec, 64)
    try:
        return check(model)
    finally:
        engine.release()


def check_chat(model: str) -> dict[str, Any]:
    df = ps.from_pydict(QUESTIONS)
    plain = ask(df, ps.col("q"), model, {}, usage=True)
    with_system = ask(df, ps.col("q"), model, {}, usage=True, system_message="Be brief.")
    difference = with_system[0]["input_tokens"] - plain[0]["input_tokens"]
    reviews = ask(df, ps.col("q"), model, {}, return_format=Review, max_tokens=200)
    processor = llm.build_processor(
        llm.vLLMEngineProcessorConfig(model=model, engine_kwargs=SETTINGS, batch_size=2),
        preprocess=lambda row: {
            "messages": [{"role": "user", "content": row["q"]}],
            "sampling_params": {"temperature": 0.0, "max_tokens": 24},
        },
        postprocess=lambda row: {"a": row["generated_text"]},
    )
    return {
        "repeatable": plain[0]["value"] == plain[2]["value"],
        "system message": difference == len("<system>Be brief."),
        "return_format": all(Review.model_validate(each) for each in reviews),
        "processor": processor(df).to_pydict()["a"] == [each["value"] for each in plain],
    }


def check_lora(model: str, adapters: list[str]) -> dict[str, Any]:
    rows = {"q": ["how was it?"] * 4, "adapter": [None, *adapters, None]}
    settings = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8}
    found = ask(ps.from_pydict(rows), ps.col("q"), model, settings, lora=ps.col("adapter"))
    return {"rows without one are equal": found[0] == found[3], "adapters differ": len(set(found)) == 3}


def check_images(model: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    noise, black = rng.integers(0, 256, (56, 56, 3), np.uint8), np.zeros((56, 56, 3), np.uint8)
    df = ps.from_pydict({"image": [noise, black, noise, None], "q": ["what is it?"] * 4})
    df = df.with_column("image", ps.col("image").cast("image[RGB]"))
    found = ask(df, [ps.col("image"), ps.col("q")], model, {}, usage=True)
    text_only = ask(df, ps.col("q"), model, {}, usage=True)
    num_tokens = found[0]["input_tokens"] - text_only[0]["input_tokens"]
    return {
        "tokens of an image": num_tokens,  # 2 x 2 patches of 28 pixels, and two marks
        "equal images": found[0]["value"] == found[2]["value"],
        "images differ": found[0]["value"] != found[1]["value"],
        "without an image": found[3],
    }


def check_replicas(model: str) -> dict[str, Any]:
    """Run two engines on one GPU: the devices of the replicas are named by CUDA_VISIBLE_DEVICES."""
    df = ps.from_pydict({"q": [f"{'prefix ' * 8}{n % 4} question {n}" for n in range(200)]})
    alone = ask(df, ps.col("q"), model, {})
    with devices("0,0"):
        both = ask(df, ps.col("q"), model, {}, provider=PrefixCachingProvider, concurrency=2)
    return {"answers": len(both) == 200, "equal": np.mean([a == b for a, b in zip(alone, both, strict=True)])}


@contextmanager
def devices(visible: str) -> Iterator[None]:
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = visible
    try:
        yield
    finally:
        os.environ.pop("CUDA_VISIBLE_DEVICES")
        if before is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


def main() -> None:
    ps.set_config(progress=False)
    folder = Path(tempfile.mkdtemp())
    model = save_llama(folder / "llama")
    adapters = [save_adapter(folder / f"adapter-{seed}", seed) for seed in (1, 2)]
    checks: dict[str, Callable[[], dict[str, Any]]] = {
        "chat": lambda: with_engine(model, check_chat),
        "images": lambda: with_engine(save_qwen2_vl(folder / "qwen2-vl"), check_images),
        "LoRA by row": lambda: check_lora(model, adapters),
        "two replicas": lambda: check_replicas(model),
    }
    results = {}
    for name in sys.argv[1:] or checks:
        started = time.perf_counter()
        try:
            results[name] = checks[name]()
        except Exception:
            traceback.print_exc()
            results[name] = {"ran": False}
        print(f"{name} ({time.perf_counter() - started:.1f} s): {results[name]}", flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
