"""Tiny models with random weights in the file formats of large ones, made on the spot, loaded by the real loaders."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch

from tests.seeds.tiny_models import _byte_tokenizer, _word_tokenizer

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


def save_bert(folder: Path, *, num_positions: int = 64, width: int = 16) -> str:
    """Write a plain BERT encoder with the words of ``TEXTS``."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    tokenizer = _word_tokenizer(TEXTS)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=num_positions, initializer_range=0.5,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
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


def save_in_cache(cache: Path, name: str, folder: str) -> None:
    """Put a folder where the hub's client keeps what it downloaded."""
    root = cache / f"models--{name.replace('/', '--')}"
    commit = hashlib.sha1(name.encode()).hexdigest()
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(commit)
    (root / "snapshots").mkdir()
    Path(folder).rename(root / "snapshots" / commit)


__all__ = ["TEXTS", "_byte_tokenizer", "save_bert", "save_in_cache", "save_sentence_model"]
