"""Run models of transformers over texts that lie end to end in one row, so that no time goes into padding.

transformers lets a program register its own attention function. This one keeps attention within each text. Together
with positions that start again at each text, that makes one row of a model's usual code equal to a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.ai.local.checkpoint import Checkpoint
from penstock.ai.local.compiled import CompiledLater
from penstock.ai.local.tokens import PackedTokens, first_position
from penstock.ai.local.weights import has_gpu

Tensor = Any
ATTENTION = "penstock_packed"

PACKED_TYPES = (
    *("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "ernie", "xlm-roberta-xl"),
    *("modernbert", "eurobert", "nomic_bert"),
    *("llama", "mistral", "qwen2", "qwen3", "gemma3_text"),
)
"""Types of models whose attention is a registered function alone. Relative biases, as of MPNet and T5, are no part."""


def can_pack(checkpoint: Checkpoint, config: Mapping[str, Any]) -> bool:
    """Return whether a model with this configuration runs packed, on a device that has the kernel for it."""
    return (
        config.get("model_type") in PACKED_TYPES
        and checkpoint.attn_implementation is None
        and not (checkpoint.trust_remote_code and "auto_map" in config)
        and config.get("position_embedding_type") in (None, "absolute")
        and has_kernel(checkpoint, config)
    )


def load_packed(checkpoint: Checkpoint, auto_class: str, subfolder: str = "") -> PackedModel | None:
    """Return a model of a class of transformers with packed attention, None if the model cannot run packed."""
    if not can_pack(checkpoint, checkpoint.config(subfolder)):
        return None
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, packed_attention)
    model = checkpoint.load(auto_class, subfolder, attention=ATTENTION)
    model.config.use_cache = False
    wants_compiler = checkpoint.torch_device().type == "cuda" if checkpoint.compile is None else checkpoint.compile
    return PackedModel(model, compiles=wants_compiler)


def has_kernel(checkpoint: Checkpoint, config: Mapping[str, Any]) -> bool:
    """Return whether the device attends within texts: NVIDIA GPUs in 16 bits, and CPUs. Loads nothing."""
    kind = checkpoint.device or ("cuda" if has_gpu() else "cpu")
    has_16_bits = checkpoint.dtype_name(config) in (None, "bfloat16", "float16")
    return kind == "cpu" or (kind.startswith("cuda") and has_16_bits)


def batches_of(checkpoint: Checkpoint, subfolder: str = "") -> str:
    """Return the kind of batches in which a text model runs, for ``explain``."""
    return "packed batches" if can_pack(checkpoint, checkpoint.config(subfolder)) else "padded batches"


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    cu_seq_lens_q: Tensor,
    max_length_q: int,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend within each text of one row. The arguments have the names and shapes that transformers passes."""
    is_causal = module.is_causal if is_causal is None else is_causal
    query, key, value = (part[0].transpose(0, 1) for part in (query, key, value))
    found = attend(
        *(query, key, value, cu_seq_lens_q, max_length_q), scale=scaling, window=sliding_window, is_causal=is_causal
    )
    return found.unsqueeze(0), None


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    stops: Tensor,
    longest: int,
    *,
    scale: float | None = None,
    window: int | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Attend within each text. The parts have the shape (tokens, heads, width); ``stops`` are as in `PackedTokens`.

    A token sees its neighbours at a distance below ``window``, only those before it if ``is_causal``.
    """
    if not query.is_cuda:
        return _attend_by_length(query, key, value, stops, scale, window, is_causal)
    import torch

    reach = None if window is None else window - 1
    # ``torch.nn.attention.varlen`` calls it too, but its first call imports torch's compiler, which takes seconds.
    return torch.ops.aten._flash_attention_forward(
        *(query, key, value, stops, stops, longest, longest),
        dropout_p=0.0,
        is_causal=is_causal,
        return_debug_mask=False,
        scale=scale,
        window_size_left=reach,
        window_size_right=0 if is_causal and reach is not None else reach,
    )[0]


def _attend_by_length(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    stops: Tensor,
    scale: float | None,
    window: int | None,
    is_causal: bool,
) -> Tensor:
    """Attend in batches of neighbours with the same length."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    lengths, counts = torch.unique_consecutive(stops.diff(), return_counts=True)
    sizes = (lengths * counts).tolist()
    found = []
    for length, *batch in zip(lengths.tolist(), *(part.split(sizes) for part in (query, key, value)), strict=True):
        mask = _window_mask(length, window, is_causal) if window is not None and length > window else None
        texts = [part.unflatten(0, (-1, length)).transpose(1, 2) for part in batch]
        attended = scaled_dot_product_attention(
            *(texts[0], texts[1], texts[2]),
            attn_mask=mask,
            is_causal=is_causal and mask is None,
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        found.append(attended.transpose(1, 2).flatten(0, 1))
    return torch.cat(found)


def _window_mask(length: int, window: int, is_causal: bool) -> Tensor:
    import torch

    places = torch.arange(length)
    distances = places[:, None] - places
    return (distances < window) & (distances >= 0 if is_causal else distances > -window)


class PackedModel:
    """A model that `load_packed` returned: an encoder, or a classifier with its encoder inside."""

    def __init__(self, model: Any, *, compiles: bool) -> None:
        self._model = model
        self.config = model.config
        encoder = model.base_model
        self._first_position = first_position(encoder.config.to_dict())
        self._encode = CompiledLater(encoder) if compiles else encoder.forward
        if encoder is not model:
            encoder.forward = self._padded_output

    def hidden(self, batch: PackedTokens) -> Tensor:
        """Return a vector for each token, in padded rows as `PackedTokens.mask` tells."""
        types = {} if batch.types is None else {"token_type_ids": batch.types.unsqueeze(0)}
        output = self._encode(
            input_ids=batch.ids.unsqueeze(0),
            position_ids=(batch.positions + self._first_position).unsqueeze(0),
            cu_seq_lens_q=batch.stops,
            max_length_q=batch.longest,
            **types,
        )
        return output.last_hidden_state[0][batch.places]

    def logits(self, batch: PackedTokens, padding: int) -> Tensor:
        """Return the output of the head for each text. The head sees padded rows, as it always does."""
        ids = batch.ids[batch.places].masked_fill(~batch.mask, padding)
        return self._model(input_ids=ids, attention_mask=batch.mask.long(), packed=batch).logits

    def _padded_output(self, *_: Any, packed: PackedTokens, **__: Any) -> Any:
        """Take the place of the encoder's ``forward`` in a classifier, which passes ``packed`` on."""
        from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions

        hidden = self.hidden(packed)
        pooler = getattr(self._model.base_model, "pooler", None)
        return BaseModelOutputWithPoolingAndCrossAttentions(
            last_hidden_state=hidden, pooler_output=None if pooler is None else pooler(hidden)
        )
