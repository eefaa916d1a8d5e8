"""Encoders of the BERT family with products of 8-bit numbers, by OpenVINO on a CPU.

The weights are rounded once, with a scale for each output. The inputs of a product are rounded when they arrive, with a
scale for each token, so the other texts of a batch do not change the result. OpenVINO can choose such scales itself,
but its products then take nearly twice as long, which is more than choosing them here.
"""

from __future__ import annotations

import threading
from typing import Any, Literal

import numpy as np

from penstock.ai.local.bert import BertEncoder, Layer
from penstock.ai.local.tokens import DeviceTokens
from penstock.config import available_cpus
from penstock.errors import require_extra

NDArray = np.ndarray[Any, Any]
Node = Any

NUM_PARTS = 2
"""The wide middle of a layer is rounded in parts with scales of their own: exact enough, and as fast as in one part."""

GELU_FLOOR = 0.17
"""No output of GELU is below ``-GELU_FLOOR``. With this added, it needs no sign, and its steps are half as large."""

TINY = 1e-9


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


class Matrix:
    """The weights of a product in 8 bits, with a scale for each output."""

    def __init__(self, weights: NDArray) -> None:
        self.scales = np.maximum(np.abs(weights).max(1, keepdims=True), TINY) / 127
        self.rounded = np.round(weights / self.scales).astype(np.int8)


def graph_of(encoder: BertEncoder) -> Any:
    """Return the model as OpenVINO describes it; its inputs are the ids and a mask of shape (texts, 1, 1, tokens)."""
    import openvino
    from openvino import opset13 as ops

    config = encoder.config

    def constant(values: Any) -> Node:
        return ops.constant(np.asarray(values))

    def number(value: float) -> Node:
        return constant(np.float32(value))

    def rounded(values: Node, lowest: Literal[-1, 0]) -> tuple[Node, Node]:
        """Return values between ``lowest`` and 1 in 8 bits, and the scale of each token."""
        sizes = ops.abs(values) if lowest else values
        scales = ops.maximum(ops.reduce_max(sizes, constant([-1]), True), number(TINY))
        limits = number(lowest), number(1)
        return ops.fake_quantize(ops.divide(values, scales), *limits, *limits, 255 if lowest else 256), scales

    def product(inputs: tuple[Node, Node], matrix: Matrix, bias: NDArray) -> Node:
        values, scales = inputs
        weights = ops.multiply(ops.convert(constant(matrix.rounded), np.float32), constant(matrix.scales))
        return ops.add(ops.multiply(ops.matmul(values, weights, False, True), scales), constant(bias))

    def normalized(values: Node, weights: tuple[Any, Any]) -> Node:
        gain, bias = map(constant, arrays(weights))
        even = ops.mvn(values, constant([-1]), True, config["layer_norm_eps"], "inside_sqrt")
        return ops.add(ops.multiply(even, gain), bias)

    def heads(values: Node) -> Node:
        split = constant([0, 0, config["num_attention_heads"], -1])
        return ops.transpose(ops.reshape(values, split, True), constant([0, 2, 1, 3]))

    def attended(found: Node, layer: Layer, norm: tuple[Any, Any]) -> Node:
        matrices, biases = (np.split(part, 3) for part in arrays(layer.attention))
        merge, merge_bias = arrays(layer.merge)
        factors = even_factors(matrices[2], biases[2], merge, norm)
        matrices[2], biases[2] = matrices[2] * factors[:, None], biases[2] * factors
        inputs = rounded(found, -1)
        # Three products are faster than one and its split.
        parts = [product(inputs, Matrix(matrix), bias) for matrix, bias in zip(matrices, biases, strict=True)]
        values = ops.scaled_dot_product_attention(*map(heads, parts), mask)
        joined = ops.reshape(ops.transpose(values, constant([0, 2, 1, 3])), constant([0, 0, -1]), True)
        return product(rounded(joined, -1), Matrix(merge / factors), merge_bias)

    ids, mask = ops.parameter([-1, -1], np.int64), ops.parameter([-1, 1, 1, -1], np.bool_)
    num_tokens = ops.gather(ops.shape_of(ids), constant([1]), constant(0))
    positions = ops.slice(constant(encoder.positions.float().numpy()), constant([0]), num_tokens, constant([1]))
    words = ops.gather(constant(encoder.words.float().numpy()), ids, constant(0))
    norm = encoder.norm
    found = normalized(ops.add(words, positions), norm)
    for layer in encoder.layers:
        found = normalized(ops.add(attended(found, layer, norm), found), layer.merge_norm)
        inputs = rounded(found, -1)
        down, bias = arrays(layer.down)
        for up, up_bias, part in zip(
            *(np.array_split(each, NUM_PARTS) for each in arrays(layer.up)),
            np.array_split(down, NUM_PARTS, axis=1),
            strict=True,
        ):
            wide = ops.add(ops.gelu(product(inputs, Matrix(up), up_bias), "erf"), number(GELU_FLOOR))
            matrix = Matrix(part)
            added = GELU_FLOOR * (matrix.rounded * matrix.scales).sum(1)
            found = ops.add(product(rounded(wide, 0), matrix, bias / NUM_PARTS - added), found)
        norm = layer.down_norm
        found = normalized(found, norm)
    return openvino.Model([ops.result(found)], [ids, mask], "encoder")


def arrays(weights: tuple[Any, Any]) -> tuple[NDArray, NDArray]:
    matrix, bias = weights
    return matrix.float().numpy(), bias.float().numpy()


def even_factors(values: NDArray, bias: NDArray, merge: NDArray, norm: tuple[Any, Any]) -> NDArray:
    """Return factors for the values of attention that make them about equally large, so that few bits are lost.

    The matrix behind attention is divided by them. Half of the difference goes to that matrix, since its numbers are
    rounded too. The values of a normalized token stay within three standard deviations.
    """
    gain, shift = arrays(norm)
    sizes = np.abs(values @ shift + bias) + 3 * np.sqrt(values**2 @ gain**2)
    factors: NDArray = np.sqrt(np.maximum(np.abs(merge).max(0), TINY) / np.maximum(sizes, TINY))
    return factors.astype(np.float32)
