"""Tiny models with random weights in the file formats of large ones, made on the spot, loaded by the real loaders."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.seeds.tiny_models import _byte_tokenizer, _word_tokenizer

torch.set_num_threads(1)  # tests run side by side, and the models are tiny

TEXTS = [
    "the kettle boils quickly and the handle stays cool",
    "it broke",
    "the delivery was late but the book is a joy to read from the first page to the last",
    "",
    "words that nobody knows: xylograph, zyzzyva",
    "a joy",
    "the handle broke and the kettle is late",
]
"""Of different lengths, one of them empty."""


def save_bert(folder: Path, *, num_positions: int = 64, width: int = 16, family: str = "bert") -> str:
    """Write a plain encoder of the BERT family with the words of ``TEXTS``."""
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(0)
    tokenizer = _word_tokenizer(TEXTS)
    config = AutoConfig.for_model(
        family,
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=num_positions, initializer_range=0.5,
    )  # fmt: skip
    AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def save_sentence_model(folder: Path, *steps: Any, pooling: Any = "mean", max_length: int | None = None) -> str:
    """Write a BERT with pooling and further modules, as sentence-transformers saves it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    words = Transformer(save_bert(folder / "bert"), max_seq_length=max_length)
    model = SentenceTransformer(modules=[words, Pooling(16, pooling), *steps], device="cpu")
    model.save(str(folder / "sentences"))
    return str(folder / "sentences")


def save_entailment(folder: Path) -> str:
    """Write a BERT for natural language inference, with segments for the two texts."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    tokenizer = _word_tokenizer([*TEXTS, "this example is about boiling joy."])
    names = {0: "contradiction", 1: "neutral", 2: "entailment"}
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=32, initializer_range=0.5, id2label=names, label2id={v: k for k, v in names.items()},
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def save_reranker(folder: Path, family: str = "bert", **settings: Any) -> str:
    """Write a cross-encoder with the words of ``TEXTS``; ``settings`` are of its configuration."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    torch.manual_seed(0)
    tokenizer = _word_tokenizer(TEXTS)
    config = AutoConfig.for_model(
        family,
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=32, initializer_range=0.5, num_labels=1, pad_token_id=tokenizer.pad_token_id,
        num_key_value_heads=2, type_vocab_size=2, **settings,
    )  # fmt: skip
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


CHAT_TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
NO_SYSTEM_TEMPLATE = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHAT_TEMPLATE
)


def save_llama(folder: Path, *, chat_template: str | None = None, num_positions: int = 256) -> str:
    """Write a Llama over bytes; whatever it says is nonsense, but always the same nonsense."""
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    tokenizer = _byte_tokenizer()
    tokenizer.chat_template = chat_template
    end = tokenizer.eos_token_id
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=num_positions, initializer_range=0.4,
        bos_token_id=end, eos_token_id=end,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=False, bos_token_id=end, eos_token_id=end)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


# --- images ---

SEEING_TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}"
    "{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endfor %}<assistant>"
)

COLOURS = {"red": (220, 30, 30), "green": (30, 220, 30), "blue": (30, 30, 220), "white": (250, 250, 250)}
_SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
_PIXELS = {"image_size": 16, "patch_size": 4}


def images() -> list[np.ndarray]:
    """Return one noisy image a colour, of different sizes."""
    rng = np.random.default_rng(0)
    return [
        (np.full((20 + 4 * i, 30 - i, 3), colour) + rng.integers(-20, 5, (20 + 4 * i, 30 - i, 3)))
        .clip(0, 255)
        .astype("u1")
        for i, colour in enumerate(COLOURS.values())
    ]


def save_clip(folder: Path, *, is_siglip: bool = False) -> str:
    """Write a CLIP or a SigLIP that knows the names of colours."""
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, SiglipConfig, SiglipModel

    torch.manual_seed(3)
    tokenizer = _word_tokenizer(["this is a photo of .", *COLOURS])
    text = _SMALL | {"vocab_size": len(tokenizer), "max_position_embeddings": 12, "eos_token_id": 3}
    if is_siglip:
        SiglipModel(SiglipConfig(text_config=text, vision_config=_SMALL | _PIXELS)).save_pretrained(folder)
    else:
        config = CLIPConfig(text_config=text, vision_config=_SMALL | _PIXELS, projection_dim=10)
        CLIPModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}).save_pretrained(folder)
    return str(folder)


def save_llava(folder: Path) -> str:
    """Write a LLaVA: a Llama over bytes that sees images of four patches."""
    from transformers import (
        CLIPImageProcessor,
        GenerationConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )

    torch.manual_seed(0)
    tokenizer = _byte_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    end, image = tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<image>"])
    text = _SMALL | {
        "model_type": "llama", "vocab_size": len(tokenizer), "num_key_value_heads": 2, "max_position_embeddings": 128,
        "bos_token_id": end, "eos_token_id": end, "initializer_range": 0.4,
    }  # fmt: skip
    vision = _SMALL | {"model_type": "clip_vision_model", "image_size": 16, "patch_size": 8, "num_hidden_layers": 2}
    model = LlavaForConditionalGeneration(
        LlavaConfig(vision_config=vision, text_config=text, image_token_index=image, image_token_id=image)
    )
    model.generation_config = GenerationConfig(do_sample=False, bos_token_id=end, eos_token_id=end)
    model.save_pretrained(folder)
    pixels = CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    LlavaProcessor(
        pixels, tokenizer, patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=SEEING_TEMPLATE,
    ).save_pretrained(folder)  # fmt: skip
    return str(folder)


def save_vit(folder: Path, *, has_head: bool = False) -> str:
    """Write a vision transformer: a backbone, or a classifier of colours."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor, ViTModel

    torch.manual_seed(0)
    config = ViTConfig(**_SMALL, **_PIXELS, id2label=dict(enumerate(["crimson, red", "green", "blue", "white"])))
    (ViTForImageClassification(config) if has_head else ViTModel(config)).save_pretrained(folder)
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(folder)
    return str(folder)


def save_dino(folder: Path) -> str:
    from transformers import BitImageProcessor, Dinov2Config, Dinov2Model

    torch.manual_seed(0)
    Dinov2Model(Dinov2Config(**_SMALL, **_PIXELS)).save_pretrained(folder)
    BitImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}).save_pretrained(folder)
    return str(folder)


def save_resnet(folder: Path) -> str:
    from transformers import ResNetConfig, ResNetModel, ViTImageProcessor

    torch.manual_seed(0)
    ResNetModel(ResNetConfig(embedding_size=4, hidden_sizes=[4, 6], depths=[1, 1], layer_type="basic")).save_pretrained(
        folder
    )
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(folder)
    return str(folder)


def save_in_cache(cache: Path, name: str, folder: str) -> None:
    """Put a folder where the hub's client keeps what it downloaded."""
    root = cache / f"models--{name.replace('/', '--')}"
    commit = hashlib.sha1(name.encode()).hexdigest()
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(commit)
    (root / "snapshots").mkdir()
    Path(folder).rename(root / "snapshots" / commit)
