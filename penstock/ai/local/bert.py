"""Encoders of the BERT family in a few lines of torch, read from their files.

Most models for text embedding are of this family. transformers would take seconds to import, and compute the padding of
each batch. Here a batch is packed, as in ``packed.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.ai.local.checkpoint import Checkpoint
from penstock.ai.local.packed import attend, has_kernel
from penstock.ai.local.tokens import NO_LIMIT, DeviceTokens, first_position

NDArray = np.ndarray[Any, Any]
Tensor = Any
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Takes the queries, keys and values of all tokens, each of shape (tokens, heads, width)."""

FAMILIES = {"bert": "bert.", "roberta": "roberta.", "xlm-roberta": "roberta.", "camembert": "roberta."}
"""The types of models, and the prefix of their weights if a head was saved with them."""


DEFAULTS = {
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
}


@dataclass(frozen=True, slots=True)
class FileTokenizer:
    """A tokenizer as its files describe it, with the attributes that one of transformers has."""

    backend_tokenizer: Any
    model_max_length: int
    pad_token_id: int
    truncation_side: str
    is_fast: bool = True
    model_input_names: tuple[str, ...] = ("input_ids",)


class BertEncoder:
    """The weights of a model on a device."""

    takes_plain_mask = True

    def __init__(self, config: Mapping[str, Any], weights: Mapping[str, Tensor], tokenizer: FileTokenizer) -> None:
        import torch

        self.config = config
        self.tokenizer = tokenizer
        self._eps = config["layer_norm_eps"]
        self._num_heads = config["num_attention_heads"]
        self.words = weights["embeddings.word_embeddings.weight"]
        # All texts belong to the first segment, so its vector is added to the vector of each position.
        positions = weights["embeddings.position_embeddings.weight"][first_position(config) :]
        self.positions = positions + weights["embeddings.token_type_embeddings.weight"][0]
        self.norm = pair(weights, "embeddings.LayerNorm")
        self.layers = [layer_of(weights, number) for number in range(config["num_hidden_layers"])]
        self._has_small_matrices = self.layers[0].up[0].dtype != self.words.dtype
        self._casting: Any = torch.autocast("cpu", torch.bfloat16) if self._has_small_matrices else nullcontext()

    def hidden(self, tokens: DeviceTokens, rows: NDArray) -> tuple[Tensor, Tensor]:
        """Return a vector for each token of some rows, in padded batches, and the mask: True for tokens."""
        import torch

        batch = tokens.packed(rows)

        def attend_within_texts(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            if not self._has_small_matrices:
                return attend(query, key, value, batch.stops, batch.longest)
            with torch.autocast("cpu", enabled=False):
                found = attend(query.float(), key.float(), value.float(), batch.stops, batch.longest)
            return found.to(query.dtype)

        return self._forward(batch.ids, batch.positions, attend_within_texts)[batch.places], batch.mask

    def _forward(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        from torch.nn.functional import embedding, gelu, layer_norm, linear

        width = self.words.shape[1]

        def normalized(values: Tensor, weights: tuple[Tensor, Tensor]) -> Tensor:
            return layer_norm(values, (width,), *weights, self._eps)

        found = embedding(ids, self.words) + embedding(positions, self.positions)
        found = normalized(found, self.norm)
        with self._casting:
            for layer in self.layers:
                parts = linear(found, *layer.attention).view(len(found), 3, self._num_heads, -1).unbind(1)
                found = normalized(found + linear(attend(*parts).flatten(1), *layer.merge), layer.merge_norm)
                found = normalized(found + linear(gelu(linear(found, *layer.up)), *layer.down), layer.down_norm)
        return found


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights and biases of a layer. ``attention`` makes queries, keys and values in one product."""

    attention: tuple[Tensor, Tensor]
    merge: tuple[Tensor, Tensor]
    merge_norm: tuple[Tensor, Tensor]
    up: tuple[Tensor, Tensor]
    down: tuple[Tensor, Tensor]
    down_norm: tuple[Tensor, Tensor]


def layer_of(weights: Mapping[str, Tensor], number: int) -> Layer:
    import torch

    prefix = f"encoder.layer.{number}"
    parts = [pair(weights, f"{prefix}.attention.self.{name}") for name in ("query", "key", "value")]
    return Layer(
        (torch.cat([weight for weight, _ in parts]), torch.cat([bias for _, bias in parts])),
        pair(weights, f"{prefix}.attention.output.dense"),
        pair(weights, f"{prefix}.attention.output.LayerNorm"),
        pair(weights, f"{prefix}.intermediate.dense"),
        pair(weights, f"{prefix}.output.dense"),
        pair(weights, f"{prefix}.output.LayerNorm"),
    )


def pair(weights: Mapping[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


def load_bert(checkpoint: Checkpoint, subfolder: str) -> BertEncoder | None:
    """Return the encoder in a folder of a checkpoint, None if transformers is needed for it."""
    folder = checkpoint.folder() / subfolder
    config = DEFAULTS | checkpoint.config(subfolder)
    if not can_load(checkpoint, config, folder) or (tokenizer := read_tokenizer(config, folder)) is None:
        return None
    return BertEncoder(config, read_weights(checkpoint, config, folder), tokenizer)


def can_load(checkpoint: Checkpoint, config: Mapping[str, Any], folder: Path) -> bool:
    """Return whether a folder has one file for each part, and this module knows every setting of its configuration."""
    return (
        config.get("model_type") in FAMILIES
        and config["hidden_act"] == "gelu"
        and config["position_embedding_type"] == "absolute"
        and not config.get("is_decoder")
        and not (checkpoint.trust_remote_code and "auto_map" in config)
        and checkpoint.attn_implementation is None
        and has_kernel(checkpoint, config)
        and all((folder / name).is_file() for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"))
    )


def read_tokenizer(config: Mapping[str, Any], folder: Path) -> FileTokenizer | None:
    """Return the tokenizer, None if its two files disagree on lower case; transformers follows the settings then."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    wanted = settings.get("do_lower_case")
    if wanted is not None and getattr(backend.normalizer, "lowercase", wanted) != wanted:
        return None
    max_length = min(settings.get("model_max_length") or NO_LIMIT, NO_LIMIT)
    return FileTokenizer(backend, max_length, config["pad_token_id"], settings.get("truncation_side", "right"))


def read_weights(checkpoint: Checkpoint, config: Mapping[str, Any], folder: Path) -> dict[str, Tensor]:
    """Return the weights by their names in a model without a head, on the device."""
    import torch
    from safetensors.torch import load_file

    device, name = checkpoint.torch_device(), checkpoint.dtype_name(config)
    dtype = checkpoint.torch_dtype() if name is None else getattr(torch, name)
    prefix = FAMILIES[config["model_type"]]
    found = {}
    for name, weight in load_file(folder / "model.safetensors", device=str(device)).items():
        name = name.removeprefix(prefix).replace(".gamma", ".weight").replace(".beta", ".bias")
        is_product = name.startswith("encoder.") and "LayerNorm" not in name
        kind = torch.bfloat16 if checkpoint.has_small_matrices and is_product else dtype
        found[name] = weight.to(kind) if weight.is_floating_point() else weight
    return found
