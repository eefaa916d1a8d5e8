"""Settings: for the process, for a block, from the environment."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.config import available_cpus, machine_memory, parse_bytes
from penstock.errors import InvalidArgumentError


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = ps.get_config()
    yield
    ps.set_config(**{name: getattr(before, name) for name in before.__slots__})


def test_defaults_are_taken_from_the_machine() -> None:
    ps.set_config(memory_limit=0, num_threads=0)
    assert ps.get_config().thread_count == available_cpus() >= 1
    assert ps.get_config().memory_bytes == machine_memory() // 4 > 0


def test_set_config_changes_what_is_named_and_keeps_the_rest() -> None:
    ps.set_config(num_threads=3, temp_dir="/tmp")
    ps.set_config(memory_limit="2GB")
    config = ps.get_config()
    assert (config.thread_count, config.temp_dir, config.memory_bytes) == (3, "/tmp", 2_000_000_000)


def test_none_leaves_a_setting_as_it_is() -> None:
    ps.set_config(num_threads=3)
    ps.set_config(num_threads=None, progress=False)
    assert ps.get_config().num_threads == 3


def test_a_block_has_its_own_settings_also_when_it_fails() -> None:
    before = ps.get_config()
    with ps.config(num_threads=1) as inside:
        assert inside.thread_count == ps.get_config().thread_count == 1
        with ps.config(memory_limit=1000):
            assert (ps.get_config().num_threads, ps.get_config().memory_limit) == (1, 1000)
    assert ps.get_config() == before
    with pytest.raises(RuntimeError), ps.config(num_threads=1):
        raise RuntimeError
    assert ps.get_config() == before


def test_a_block_in_one_thread_does_not_reach_another() -> None:
    seen: list[int] = []
    with ps.config(num_threads=7):
        thread = threading.Thread(target=lambda: seen.append(ps.get_config().num_threads))
        thread.start()
        thread.join()
    assert seen == [ps.get_config().num_threads]


def test_a_query_runs_with_the_settings_where_it_is_run() -> None:
    """A task may move to another thread, so count the calls that run at once instead of the threads."""
    running, overlaps, settings = threading.Lock(), list[bool](), set[int]()

    def note(row: dict[str, Any]) -> dict[str, Any]:
        settings.add(ps.get_config().num_threads)
        is_alone = running.acquire(blocking=False)
        overlaps.append(not is_alone)
        time.sleep(0.001)
        if is_alone:
            running.release()
        return row

    df = ps.range(50).into_batches(1).map(note)
    with ps.config(num_threads=1):
        assert df.to_arrow().num_rows == 50
    assert settings == {1}
    assert not any(overlaps)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_thread": 1}, "Setting 'num_thread' is not known. Did you mean 'num_threads'"),
        ({"num_threads": 1.5}, "num_threads=1.5 is not a whole number"),
        ({"num_threads": True}, "num_threads=True is not a whole number"),
        ({"num_threads": "many"}, "num_threads='many' is not a whole number"),
        ({"num_threads": -1}, "cannot be negative; use 0 for the default"),
        ({"memory_limit": "-1GB"}, "cannot be negative"),
        ({"memory_limit": "1 elephant"}, "'1 elephant' is not a size; give bytes, or a number with one of b, kb"),
        ({"memory_limit": []}, "is not a size"),
        ({"progress": "maybe"}, "progress='maybe' is neither on nor off"),
        ({"runner": "spark"}, "runner='spark' is not known; use 'local' or 'ray'"),
        ({"temp_dir": 3}, "temp_dir=3 is not a path"),
    ],
)
def test_bad_settings_are_refused_and_change_nothing(settings: dict[str, Any], message: str) -> None:
    before = ps.get_config()
    with pytest.raises(InvalidArgumentError, match=message):
        ps.set_config(**settings)
    with pytest.raises(InvalidArgumentError, match=message), ps.config(**settings):
        pass
    assert ps.get_config() == before


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("512", 512), (512, 512), ("1kb", 1000), ("1 KiB", 1024), ("1.5MB", 1_500_000), ("2GiB", 2**31), ("1tb", 10**12)],
)
def test_sizes(text: int | str, nbytes: int) -> None:
    assert parse_bytes(text) == nbytes


def test_paths_may_be_path_objects(tmp_path: Path) -> None:
    with ps.config(temp_dir=tmp_path, cache_dir=str(tmp_path)) as config:
        assert config.temp_dir == config.cache_dir == str(tmp_path)


def run_with(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    code = "import penstock as ps; c = ps.get_config(); print(c.num_threads, c.memory_limit, c.progress, c.temp_dir)"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True)


def test_every_setting_has_an_environment_variable() -> None:
    done = run_with(
        {
            "PENSTOCK_NUM_THREADS": "3",
            "PENSTOCK_MEMORY_LIMIT": "1GiB",
            "PENSTOCK_PROGRESS": "off",
            "PENSTOCK_TEMP_DIR": "/somewhere",
        }
    )
    assert done.stdout.split() == ["3", str(2**30), "False", "/somewhere"], done.stderr


def test_an_empty_variable_counts_as_not_set() -> None:
    done = run_with({"PENSTOCK_NUM_THREADS": "", "PENSTOCK_MEMORY_LIMIT": ""})
    assert done.stdout.split() == ["0", "0", "True"], done.stderr


def test_a_file_of_prices_is_looked_at_when_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    with pytest.raises(InvalidArgumentError, match=r"prices='.*prices\.json' cannot be read: .*No such file"):
        ps.set_config(prices=path)
    path.write_text('{"openai": {}}')
    with pytest.raises(InvalidArgumentError, match=r"is not a file of prices .* write"), ps.config(prices=path):
        pass
    path.write_text('{"dollars_per_million_tokens": {"openai": {"mine": null}}}')
    with pytest.raises(InvalidArgumentError, match=r"prices\.json', openai, mine: price=\{\} is not a price"):
        ps.set_config(prices=str(path))
    done = run_with({"PENSTOCK_PRICES": str(path)})
    assert done.returncode != 0
    assert "Environment variable PENSTOCK_PRICES: prices=" in done.stderr


def test_a_bad_variable_is_named() -> None:
    done = run_with({"PENSTOCK_NUM_THREADS": "many"})
    assert done.returncode != 0
    assert "Environment variable PENSTOCK_NUM_THREADS: num_threads='many' is not a whole number" in done.stderr
