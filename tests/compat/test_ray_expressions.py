"""Expressions of Ray Data give the values that ``scripts/record_peers.py`` recorded from Ray."""

from __future__ import annotations

import json
from pathlib import Path

import penstock.compat.ray as ray
from penstock.compat.ray.data import expressions
from tests.compat import ray_expressions


def test_expressions_give_what_ray_data_gives() -> None:
    expected = json.loads((Path(__file__).parent / "recorded" / "ray_expressions.json").read_text())
    found = ray_expressions.results(ray.data, expressions, ray.data.DataType)
    assert found == expected
