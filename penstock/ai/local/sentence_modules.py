"""The steps by which a model turns a text into a vector, read from its small files.

``modules.json`` of sentence-transformers lists a transformer, pooling, dense layers and normalization. The files are
read here because importing sentence-transformers takes as long as importing torch. A model without ``modules.json`` is
an encoder as saved by transformers; its vector is the mean over the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.ai.local.checkpoint import Checkpoint
from penstock.errors import InvalidArgumentError, RequestRefusedError, did_you_mean

_OLD_POOLING_NAMES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class DenseLayer:
    """A linear layer with its weights in the folder ``path``, and an activation, a class of torch.nn."""

    path: str
    activation: str


@dataclass(frozen=True)
class SentenceModules:
    """The modules of a model; ``path`` is the folder of its transformer, ``width`` the length of its vectors."""

    width: int
    path: str = ""
    pooling: tuple[str, ...] = ("mean",)
    layers: tuple[DenseLayer, ...] = ()
    is_normalized: bool = False
    max_length: int | None = None
    is_lowercase: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    pools_prompt: bool = True

    def prompt(self, name: str | None) -> str:
        """Return the text before each input: the named prompt, or the model's default."""
        name = name if name is not None else self.default_prompt
        if name is None:
            return ""
        if name not in self.prompts:
            known = f"its prompts are {', '.join(self.prompts)}" if self.prompts else "give the text itself as prompt="
            raise InvalidArgumentError(
                f"embed_text: the model has no prompt_name {name!r}; {known}.{did_you_mean(name, self.prompts)}"
            )
        return self.prompts[name]


def read_modules(checkpoint: Checkpoint) -> SentenceModules:
    """Return the modules of a model without loading its weights."""
    modules = checkpoint.read_json("modules.json")
    if modules is None:
        return SentenceModules(text_width(checkpoint.config(), checkpoint.name))
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    paths = [str(module["path"]) for module in modules]
    last = [kind for kind in kinds[2:] if kind not in ("Dense", "Dropout")]  # Dropout acts in training only
    if kinds[:2] != ["Transformer", "Pooling"] or last not in ([], ["Normalize"]) or "Normalize" in kinds[2:-1]:
        raise RequestRefusedError(
            f"Model {checkpoint.name!r} has the modules {', '.join(kinds)}; embed_text supports a Transformer with "
            "Pooling, then Dense, then Normalize. Use sentence-transformers in a @ps.cls for others."
        )
    transformer = checkpoint.read_json(f"{paths[0]}/sentence_bert_config.json".lstrip("/")) or {}
    pooling = checkpoint.config(paths[1])
    modes = pooling.get("pooling_mode") or [name for key, name in _OLD_POOLING_NAMES.items() if pooling.get(key)]
    modes = (modes,) if isinstance(modes, str) else tuple(modes or ["mean"])
    dense = {path: checkpoint.config(path) for kind, path in zip(kinds, paths, strict=True) if kind == "Dense"}
    width = len(modes) * int(pooling.get("embedding_dimension") or pooling["word_embedding_dimension"])
    for config in dense.values():
        width = int(config["out_features"])
    settings = checkpoint.read_json("config_sentence_transformers.json") or {}
    return SentenceModules(
        width,
        paths[0],
        modes,
        tuple(
            DenseLayer(path, str(config.get("activation_function", "Tanh")).rpartition(".")[2])
            for path, config in dense.items()
        ),
        is_normalized=bool(last),
        max_length=transformer.get("max_seq_length"),
        is_lowercase=bool(transformer.get("do_lower_case", False)),
        prompts={name: text for name, text in (settings.get("prompts") or {}).items() if text},
        default_prompt=settings.get("default_prompt_name"),
        pools_prompt=bool(pooling.get("include_prompt", True)),
    )


def text_width(config: Mapping[str, Any], name: str) -> int:
    """Return the length of a token's vector, which model families name differently.

    >>> text_width({"model_type": "distilbert", "dim": 768}, "distilbert")
    768
    """
    for part in (config, config.get("text_config") or {}):
        for key in ("hidden_size", "d_model", "dim", "n_embd"):
            if isinstance(width := part.get(key), int):
                return width
    raise RequestRefusedError(f"The configuration of model {name!r} does not state the length of its vectors.")
