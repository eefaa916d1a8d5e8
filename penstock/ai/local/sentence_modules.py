"""How a text becomes a vector with a given model, read from its small files: the modules of sentence-transformers.

A folder with ``modules.json`` says it: a transformer, pooling, then dense layers and normalisation in some order. A
folder without it is an encoder as transformers saves it, and the mean over its tokens is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.ai.local.checkpoint import Checkpoint, text_width
from penstock.errors import InvalidArgumentError, RequestRefusedError, did_you_mean

_OLD_NAMES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class Dense:
    """A linear layer with an activation, whose weights are in the folder ``path``."""

    path: str
    in_features: int
    out_features: int
    activation: str  # a class of torch.nn
    has_bias: bool = True
    is_residual: bool = False


@dataclass(frozen=True)
class Normalize:
    """Makes vectors of length one."""


@dataclass(frozen=True)
class SentenceModules:
    """What happens to a text: tokens, the transformer in ``path``, pooling, ``steps``."""

    path: str = ""
    pooling: tuple[str, ...] = ("mean",)
    steps: tuple[Dense | Normalize, ...] = ()
    width: int = 0  # of the vectors at the end
    max_length: int | None = None
    is_lowercase: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    pools_prompt: bool = True

    @property
    def is_normalized(self) -> bool:
        return bool(self.steps) and isinstance(self.steps[-1], Normalize)

    def prompt(self, name: str | None) -> str:
        """Return what is put before each text: the prompt of a name, or the model's own choice."""
        name = name if name is not None else self.default_prompt
        if name is None:
            return ""
        if name not in self.prompts:
            known = ", ".join(self.prompts) or "(none)"
            raise InvalidArgumentError(
                f"prompt_name {name!r} is not one of the model's: {known}.{did_you_mean(name, self.prompts)}"
            )
        return self.prompts[name]


def read_modules(checkpoint: Checkpoint) -> SentenceModules:
    """Return how a model encodes, without loading its weights."""
    modules = checkpoint.read_json("modules.json")
    if modules is None:
        return SentenceModules(width=text_width(checkpoint.config(), checkpoint.name))
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    paths = [str(module["path"]) for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"]:
        raise _unknown(checkpoint, kinds)
    words = checkpoint.read_json(f"{paths[0]}/sentence_bert_config.json".lstrip("/")) or {}
    pooling = _required(checkpoint, f"{paths[1]}/config.json")
    modes = _pooling_modes(pooling)
    width = len(modes) * int(pooling.get("embedding_dimension") or pooling["word_embedding_dimension"])
    steps: list[Dense | Normalize] = []
    for kind, path in zip(kinds[2:], paths[2:], strict=True):
        match kind:
            case "Normalize":
                steps.append(Normalize())
            case "Dense":
                dense = _dense(path, _required(checkpoint, f"{path}/config.json"))
                steps.append(dense)
                width = dense.out_features
            case "Dropout":
                pass  # only in training
            case _:
                raise _unknown(checkpoint, kinds)
    around = checkpoint.read_json("config_sentence_transformers.json") or {}
    return SentenceModules(
        path=paths[0],
        pooling=modes,
        steps=tuple(steps),
        width=width,
        max_length=words.get("max_seq_length"),
        is_lowercase=bool(words.get("do_lower_case", False)),
        prompts={name: text for name, text in (around.get("prompts") or {}).items() if text},
        default_prompt=around.get("default_prompt_name"),
        pools_prompt=bool(pooling.get("include_prompt", True)),
    )


def _pooling_modes(config: Mapping[str, Any]) -> tuple[str, ...]:
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [mode for key, mode in _OLD_NAMES.items() if config.get(key)] or ["mean"]
    return (modes,) if isinstance(modes, str) else tuple(modes)


def _dense(path: str, config: Mapping[str, Any]) -> Dense:
    return Dense(
        path,
        int(config["in_features"]),
        int(config["out_features"]),
        str(config.get("activation_function", "Tanh")).rpartition(".")[2],
        bool(config.get("bias", True)),
        bool(config.get("use_residual", False)),
    )


def _required(checkpoint: Checkpoint, path: str) -> dict[str, Any]:
    if (config := checkpoint.read_json(path)) is None:
        raise RequestRefusedError(f"Model {checkpoint.name!r} names {path} in its modules.json, but does not have it.")
    return dict(config)


def _unknown(checkpoint: Checkpoint, kinds: list[str]) -> RequestRefusedError:
    return RequestRefusedError(
        f"Model {checkpoint.name!r} has the modules {', '.join(kinds)}; embed_text knows a Transformer with Pooling, "
        "then Dense and Normalize. Use sentence-transformers in a @ps.cls for others."
    )
