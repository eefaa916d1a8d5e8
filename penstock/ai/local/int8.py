"""Encoders of the BERT family with products of 8-bit numbers, by OpenVINO on a CPU.

The weights are rounded once, with a scale for each output. OpenVINO rounds the inputs of a product when they arrive,
with a scale for each group of numbers in a token. So the other texts of a batch do not change the result.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from penstock.ai.local.bert import BertEncoder
from penstock.ai.local.tokens import DeviceTokens
from penstock.config import available_cpus
from penstock.errors import require_extra

NDArray = np.ndarray[Any, Any]
Node = Any

GROUP = 128
"""Inputs with a common scale. Larger groups are faster: 384 gains 5 %, and the cosine falls from 0.995 to 0.991."""


class Int8Encoder:
    """The layers of a `BertEncoder`, computed by OpenVINO in padded batches, one from each thread at a time."""

    takes_plain_mask = True

    def __init__(self, encoder: BertEncoder) -> None:
        require_extra("openvino", "int8", "embed_text with precision='int8'")
        import openvino

        self.config, self.tokenizer = encoder.config, encoder.tokenizer
        num_cpus = max(1, int(available_cpus()))
        settings = {
            "NUM_STREAMS": num_cpus,
            "INFERENCE_NUM_THREADS": num_cpus,
            "INFERENCE_PRECISION_HINT": "f32",
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": GROUP,
        }
        self._compiled = openvino.Core().compile_model(graph_of(encoder), "CPU", settings)
        self._requests = threading.local()

    def hidden(self, tokens: DeviceTokens, rows: NDArray) -> tuple[Any, Any]:
        """Return a vector for each token of some rows, in padded batches, and the mask: True for tokens."""
        import torch

        if not hasattr(self._requests, "own"):
            self._requests.own = self._compiled.create_infer_request()
        inputs, mask = tokens.batch(rows)
        found = self._requests.own.infer([inputs["input_ids"].numpy(), mask[:, None, None].numpy()])
        return torch.from_numpy(next(iter(found.values()))), mask


def graph_of(encoder: BertEncoder) -> Any:
    """Return the model as OpenVINO describes it; its inputs are the ids and a mask of shape (texts, 1, 1, tokens)."""
    import openvino
    from openvino import opset13 as ops

    config = encoder.config

    def constant(values: Any) -> Node:
        return ops.constant(np.asarray(values))

    def product(values: Node, weights: tuple[Any, Any]) -> Node:
        matrix, bias = (part.float().numpy() for part in weights)
        scales = np.maximum(np.abs(matrix).max(1, keepdims=True), 1e-12) / 127
        rounded = ops.convert(constant(np.round(matrix / scales).astype(np.int8)), np.float32)
        return ops.add(ops.matmul(values, ops.multiply(rounded, constant(scales)), False, True), constant(bias))

    def normalized(values: Node, weights: tuple[Any, Any]) -> Node:
        gain, bias = (constant(part.float().numpy()) for part in weights)
        even = ops.mvn(values, constant([-1]), True, config["layer_norm_eps"], "inside_sqrt")
        return ops.add(ops.multiply(even, gain), bias)

    def heads(values: Node) -> Node:
        split = constant([0, 0, config["num_attention_heads"], -1])
        return ops.transpose(ops.reshape(values, split, True), constant([0, 2, 1, 3]))

    ids, mask = ops.parameter([-1, -1], np.int64), ops.parameter([-1, 1, 1, -1], np.bool_)
    num_tokens = ops.gather(ops.shape_of(ids), constant([1]), constant(0))
    positions = ops.slice(constant(encoder.positions.float().numpy()), constant([0]), num_tokens, constant([1]))
    words = ops.gather(constant(encoder.words.float().numpy()), ids, constant(0))
    found = normalized(ops.add(words, positions), encoder.norm)
    for layer in encoder.layers:
        # Three products are faster than one and its split.
        parts = [
            product(found, (matrix, bias))
            for matrix, bias in zip(*(each.chunk(3) for each in layer.attention), strict=True)
        ]
        attended = ops.scaled_dot_product_attention(*map(heads, parts), mask)
        joined = ops.reshape(ops.transpose(attended, constant([0, 2, 1, 3])), constant([0, 0, -1]), True)
        found = normalized(ops.add(product(joined, layer.merge), found), layer.merge_norm)
        wide = ops.gelu(product(found, layer.up), "erf")
        found = normalized(ops.add(product(wide, layer.down), found), layer.down_norm)
    return openvino.Model([ops.result(found)], [ids, mask], "encoder")
