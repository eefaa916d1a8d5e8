"""The command ``penstock``, as a shell runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cache.ledger import key_of, open_ledger
from penstock.cli import main
from penstock.config import config


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    ledger = open_ledger(tmp_path / "ledger")
    for number in range(50):
        ledger.put(key_of({"n": number}), bytes([number]) * 500)
    ledger.close()
    return tmp_path


def test_stats_for_people_and_for_programs(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "stats", "--dir", str(cache_dir)]) == 0
    shown = capsys.readouterr().out
    assert "records" in shown
    assert "50" in shown
    assert "kB" in shown
    assert main(["cache", "stats", "--dir", str(cache_dir / "ledger"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_records"] == 50


def test_prune_by_size_of_the_configured_cache(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with config(cache_dir=str(cache_dir)):
        assert main(["cache", "prune", "--max-size", "10kB", "--older-than", "30d", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["num_kept"] + result["num_removed"] == 50
    assert result["nbytes_after"] <= 10_000


def test_clear_wants_to_be_sure(cache_dir: Path) -> None:
    command = [sys.executable, "-m", "penstock", "cache", "clear", "--dir", str(cache_dir)]
    asked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert asked.returncode == 2
    assert "would remove 50 finished calls" in asked.stderr
    assert "--yes" in asked.stderr
    assert subprocess.run([*command, "--yes"], capture_output=True).returncode == 0
    assert list((cache_dir / "ledger").iterdir()) == []


@pytest.mark.parametrize(
    ("args", "message", "status"),
    [
        (["stats"], "give --dir DIR, or set PENSTOCK_CACHE_DIR", 2),
        (["stats", "--dir", "nowhere"], "There is no ledger at 'nowhere/ledger'", 1),
        (["prune", "--dir", "nowhere"], "needs --max-size, --older-than or both", 2),
        (["prune", "--dir", "nowhere", "--older-than", "soon"], "'soon' is not an age", 2),
        (["prune", "--dir", "nowhere", "--max-size", "big"], "'big' is not a size", 2),
    ],
)
def test_mistakes_are_explained(args: list[str], message: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    with config(cache_dir=""):
        assert main(["cache", *args]) == status
    assert message in capsys.readouterr().err
