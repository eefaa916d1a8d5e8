"""The collector's thresholds are as they were once no query needs others."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from penstock.engine.pools.asyncio import RareCollections


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_they_come_back_with_the_last_user() -> None:
    gc.set_threshold(701, 11, 12)
    RareCollections.begin()
    RareCollections.begin()
    assert gc.get_threshold() == RareCollections.THRESHOLDS
    RareCollections.end()
    assert gc.get_threshold() == RareCollections.THRESHOLDS
    RareCollections.end()
    assert gc.get_threshold() == (701, 11, 12)


def test_one_that_is_off_stays_off() -> None:
    gc.set_threshold(0)
    RareCollections.begin()
    assert gc.get_threshold()[0] == 0
    RareCollections.end()
    assert gc.get_threshold()[0] == 0
