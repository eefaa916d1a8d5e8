"""Memo: results that are put in one turn of an event loop go to the ledger together."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.cache.ledger import key_of, open_ledger
from penstock.cache.memo import Codec, Memo
from penstock.errors import InvalidArgumentError, LedgerError

TEXT = Codec(str.encode, bytes.decode)
KEYS = [key_of(b"%d" % number) for number in range(3)]


def test_a_result_is_found_at_once_and_in_the_ledger_after_the_turn(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    memo = Memo(ledger, TEXT)

    async def put() -> None:
        for number, key in enumerate(KEYS):
            memo.put_soon(key, f"result {number}")
        assert memo.get(KEYS[:1]) == {KEYS[0]: "result 0"}
        assert not ledger.get(KEYS)
        await asyncio.sleep(0)
        assert ledger.get(KEYS) == {key: b"result %d" % number for number, key in enumerate(KEYS)}

    asyncio.run(put())
    memo.close()


def test_closing_stores_the_results_of_an_unfinished_turn(tmp_path: Path) -> None:
    async def put_and_close() -> None:
        memo = Memo(open_ledger(tmp_path), TEXT)
        memo.put_soon(KEYS[0], "last")
        memo.close()

    asyncio.run(put_and_close())
    ledger = open_ledger(tmp_path)
    assert ledger.get(KEYS) == {KEYS[0]: b"last"}
    ledger.close()


def test_a_failed_write_is_raised_by_the_next_call(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    memo = Memo(ledger, TEXT)
    ledger.close()

    async def put() -> None:
        memo.put_soon(KEYS[0], "lost")
        await asyncio.sleep(0)
        with pytest.raises(LedgerError, match="is closed"):
            memo.put_soon(KEYS[1], "not computed")

    asyncio.run(put())


def test_writes_are_tried_again_after_an_error(tmp_path: Path) -> None:
    """One value that a ledger refuses is an error once, and the others of its turn are stored."""
    ledger = open_ledger(tmp_path)
    memo = Memo(ledger, TEXT)

    async def put() -> None:
        memo.put_soon(KEYS[0], "first")
        memo.put_soon(b"short key", "refused")
        await asyncio.sleep(0)
        with pytest.raises(InvalidArgumentError, match="keys of"):
            memo.put_soon(KEYS[1], "second")
        await asyncio.sleep(0)
        memo.put_soon(KEYS[2], "third")

    asyncio.run(put())
    memo.close()
    ledger = open_ledger(tmp_path)
    assert ledger.get(KEYS) == dict(zip(KEYS, [b"first", b"second", b"third"], strict=True))
    ledger.close()
