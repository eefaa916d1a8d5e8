"""A ledger of a ``cache_dir`` keeps itself within the limits that were set."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import penstock as ps
from penstock.cache.ledger import key_of, open_ledger
from penstock.cache.ledger.maintenance import CHECK_EVERY_S, prune_if_due, stats
from penstock.cache.ledger.open_ledgers import cache_ledger
from penstock.errors import InvalidArgumentError

VALUE = bytes(range(256)) * 4


def filled(cache_dir: Path, count: int, first: int = 0) -> None:
    """Keep values in the ledger of a ``cache_dir``, as a query does."""
    ledger = cache_ledger(cache_dir)
    for number in range(first, first + count):
        ledger.put({key_of(b"%d" % number): os.urandom(1000)})
    ledger.close()


def forget_the_look(cache_dir: Path) -> None:
    """Have the last look at the limits be more than an hour ago."""
    mark = cache_dir / "ledger" / "limits-checked"
    then = time.time() - CHECK_EVERY_S - 1
    os.utime(mark, (then, then))


def test_a_file_goes_when_the_ledger_is_too_large(tmp_path: Path) -> None:
    with ps.config(cache_max_size="100kB"):
        filled(tmp_path, 300)
    assert stats(tmp_path / "ledger").num_records == 0


def test_nothing_goes_within_the_limits(tmp_path: Path) -> None:
    with ps.config(cache_max_size="10MB", cache_max_age="1d"):
        filled(tmp_path, 300)
    assert stats(tmp_path / "ledger").num_records == 300


def test_no_limits_are_no_limits(tmp_path: Path) -> None:
    filled(tmp_path, 300)
    assert stats(tmp_path / "ledger").num_records == 300
    assert not (tmp_path / "ledger" / "limits-checked").exists()


def test_the_look_is_taken_once_an_hour(tmp_path: Path) -> None:
    with ps.config(cache_max_size="100kB"):
        filled(tmp_path, 50)
        filled(tmp_path, 300, first=50)
        assert stats(tmp_path / "ledger").num_records == 350
        forget_the_look(tmp_path)
        filled(tmp_path, 1, first=350)
        assert stats(tmp_path / "ledger").num_records == 0


def test_what_was_not_used_for_long_goes(tmp_path: Path) -> None:
    filled(tmp_path, 20)
    (path,) = (tmp_path / "ledger").glob("*.log")
    for days, num_left in ((29, 20), (31, 0)):
        then = time.time() - days * 86_400
        os.utime(path, (then, then))
        with ps.config(cache_max_age="30d"):
            filled(tmp_path, 0)
        assert stats(tmp_path / "ledger").num_records == num_left
        forget_the_look(tmp_path)


def test_files_that_somebody_writes_stay(tmp_path: Path) -> None:
    other = open_ledger(tmp_path / "ledger")
    for number in range(200):
        other.put({key_of(b"other %d" % number): VALUE})
    other.flush()
    with ps.config(cache_max_size="10kB"):
        filled(tmp_path, 100)
    assert all(other.get([key_of(b"other %d" % number)]) for number in range(200))
    other.close()


def test_what_goes_wrong_is_logged_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prune_if_due(tmp_path / "nowhere", 1, None)
    assert "could not be kept within its limits" in caplog.text


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"cache_max_size": "much"}, "'much' is not a size"),
        ({"cache_max_size": -1}, "cache_max_size cannot be negative"),
        ({"cache_max_age": "soon"}, "'soon' is not an age"),
        ({"cache_max_age": -1}, "-1 is not an age"),
        ({"cache_max_age": True}, "True is not an age"),
    ],
    ids=str,
)
def test_what_is_no_limit_is_refused(settings: dict[str, object], match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match), ps.config(**settings):
        pass


def test_a_cache_dir_may_begin_with_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    cache_ledger("~/cache").close()
    assert (tmp_path / "cache" / "ledger").is_dir()
