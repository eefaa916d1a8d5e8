"""Keys say what determines an answer, and nothing else."""

from __future__ import annotations

import subprocess
import sys

from penstock.cache.ledger import key_of

PARTS = {"model": "m", "temperature": 0.0, "messages": [{"role": "user", "content": "hi"}]}


def test_order_does_not_matter_and_values_do() -> None:
    assert key_of(PARTS) == key_of(dict(reversed(PARTS.items())))
    others = [{**PARTS, "model": "n"}, {**PARTS, "temperature": 0.5}, {**PARTS, "ordinal": 1}, {}, b"", b"{}", b"j{}"]
    assert len({key_of(each) for each in (PARTS, *others)}) == len(others) + 1


def test_a_key_is_the_same_in_every_process_and_version() -> None:
    assert key_of({"a": 1}).hex() == "1ee5b3637ffd3c6af09738648c888139"
    code = "from penstock.cache.ledger import key_of; print(key_of({'b': [1, None], 'a': 'x'}).hex())"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.strip() == key_of({"a": "x", "b": [1, None]}).hex()
