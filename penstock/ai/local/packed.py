"""Run models of transformers over texts that lie end to end in one row, so that no time goes into padding.

transformers lets a program register its own attention function. This one keeps attention within each text. Together
with positions that start again at each text, that makes one row of a model's usual code equal to a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.ai.local.checkpoint import Checkpoint, import_transformers
from penstock.ai.local.compiled import CompiledLater
from penstock.ai.local.tokens import PackedTokens, first_position
from penstock.ai.local.weights import has_gpu

Tensor = Any
ATTENTION = "penstock_packed"

DECODER_TYPES = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text")
PACKED_TYPES = (
    *("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "ernie", "xlm-roberta-xl"),
    *("modernbert", "eurobert", "nomic_bert"),
    *DECODER_TYPES,
)
"""Types of models whose whole attention is a registered function. MPNet and T5 are not among them: they add relative
biases.
"""


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
    return PackedModel(_load(checkpoint, auto_class, subfolder), compiles=_wants_compiler(checkpoint))


def load_packed_decoder(checkpoint: Checkpoint) -> PackedDecoder | None:
    """Return a causal language model with packed attention, None if the model cannot run packed."""
    config = checkpoint.config()
    if config.get("model_type") not in DECODER_TYPES or not can_pack(checkpoint, config):
        return None
    return PackedDecoder(_load(checkpoint, "AutoModelForCausalLM"), compiles=_wants_compiler(checkpoint))


def _load(checkpoint: Checkpoint, auto_class: str, subfolder: str = "") -> Any:
    import_transformers()
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, packed_attention)
    model = checkpoint.load(auto_class, subfolder, attention=ATTENTION)
    model.config.use_cache = False
    return model


def _wants_compiler(checkpoint: Checkpoint) -> bool:
    return checkpoint.torch_device().type == "cuda" if checkpoint.compile is None else checkpoint.compile


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
    cu_seq_lens_k: Tensor | None = None,
    max_length_k: int | None = None,
    key_places: Tensor | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend within each text of one row. The arguments have the names and shapes that transformers passes.

    ``key_places`` are the ``places`` of `SharedKeys`.
    """
    is_causal = module.is_causal if is_causal is None else is_causal
    query, key, value = (part[0].transpose(0, 1) for part in (query, key, value))
    if key_places is not None:
        key, value = key[key_places], value[key_places]
    found = attend(
        *(query, key, value, cu_seq_lens_q, max_length_q),
        key_stops=cu_seq_lens_k,
        key_longest=max_length_k,
        scale=scaling,
        window=sliding_window,
        is_causal=is_causal,
    )
    return found.unsqueeze(0), None


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    stops: Tensor,
    longest: int,
    *,
    key_stops: Tensor | None = None,
    key_longest: int | None = None,
    scale: float | None = None,
    window: int | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Attend within each text. The parts have the shape (tokens, heads, width); ``stops`` are as in `PackedTokens`.

    A token sees its neighbours at a distance below ``window``, only those before it if ``is_causal``. A text may have
    more keys than tokens; its tokens are then the last of the keys.
    """
    if key_stops is None or key_longest is None:
        key_stops, key_longest = stops, longest
    if not query.is_cuda:
        return _attend_by_length(query, key, value, stops, key_stops, scale, window, is_causal)
    import torch

    reach = None if window is None else window - 1
    # ``torch.nn.attention.varlen`` calls it too, but its first call imports torch's compiler, which takes seconds.
    return torch.ops.aten._flash_attention_forward(
        *(query, key, value, stops, key_stops, longest, key_longest),
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
    key_stops: Tensor,
    scale: float | None,
    window: int | None,
    is_causal: bool,
) -> Tensor:
    """Attend in batches of neighbours with the same length."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    both = torch.stack([stops.diff(), key_stops.diff()], 1)
    lengths, counts = torch.unique_consecutive(both, return_counts=True, dim=0)
    sizes, key_sizes = (lengths * counts[:, None]).T.tolist()
    found = []
    for (length, num_keys), *batch in zip(
        lengths.tolist(), query.split(sizes), key.split(key_sizes), value.split(key_sizes), strict=True
    ):
        is_square = length == num_keys
        has_mask = (window is not None and num_keys > window) or (is_causal and not is_square)
        mask = _mask(length, num_keys, window, is_causal) if has_mask else None
        queries, *others = batch
        texts = [
            queries.unflatten(0, (-1, length)).transpose(1, 2),
            *(part.unflatten(0, (-1, num_keys)).transpose(1, 2) for part in others),
        ]
        attended = scaled_dot_product_attention(
            *(texts[0], texts[1], texts[2]),
            attn_mask=mask,
            is_causal=is_causal and mask is None,
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        found.append(attended.transpose(1, 2).flatten(0, 1))
    return torch.cat(found)


def _mask(length: int, num_keys: int, window: int | None, is_causal: bool) -> Tensor:
    """Return the keys that each token sees, where the tokens are the last of the keys."""
    import torch

    places = torch.arange(num_keys)
    distances = places[num_keys - length :, None] - places
    reach = num_keys if window is None else window
    return (distances < reach) & (distances >= 0 if is_causal else distances > -reach)


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
        output = self._encode(**_arguments(batch, self._first_position))
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


class PackedDecoder:
    """A causal language model that `load_packed_decoder` returned."""

    def __init__(self, model: Any, *, compiles: bool) -> None:
        self.model = model
        self._run = CompiledLater(model) if compiles else model.forward

    def next_logits(self, batch: PackedTokens) -> Tensor:
        """Return the logits of the token after each text. The head computes no others."""
        return self._run(**_arguments(batch), logits_to_keep=batch.stops[1:] - 1).logits[0]


def _arguments(batch: PackedTokens, first_position: int = 0) -> dict[str, Any]:
    """Return a batch as the arguments of a model, which passes those it does not know on to `packed_attention`."""
    types = {} if batch.types is None else {"token_type_ids": batch.types.unsqueeze(0)}
    keys = batch.keys and {
        "cu_seq_lens_k": batch.keys.stops, "max_length_k": batch.keys.longest, "key_places": batch.keys.places
    }  # fmt: skip
    return {
        "input_ids": batch.ids.unsqueeze(0),
        "position_ids": (batch.positions + first_position).unsqueeze(0),
        "cu_seq_lens_q": batch.stops,
        "max_length_q": batch.longest,
        **types,
        **(keys or {}),
    }
