"""Nodes of a real cluster that are killed, come late, or drain. The queries run in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.runners.ray import changing_cluster
from tests.runners.ray.changing_cluster import NUM_ROWS

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("changing") / "seen.json"
    subprocess.run([sys.executable, "-m", changing_cluster.__name__, str(path)], check=True)
    return json.loads(path.read_text())


def test_the_batches_of_a_node_that_is_killed_are_made_again(seen: Any) -> None:
    assert seen["lost"]["is_exact"]
    assert seen["lost"]["is_on_gpu_nodes"]
    assert NUM_ROWS < seen["lost"]["num_calls"] < 2 * NUM_ROWS


@pytest.mark.parametrize("relation", ["groups", "ranges"])
def test_the_pieces_of_a_node_that_is_lost_are_made_again(seen: Any, relation: str) -> None:
    assert seen[relation]["is_exact"]
    assert seen[relation]["warnings"]  # that groups of rows are divided again


def test_rows_that_grow_fiftyfold_stay_out_of_the_heaps_of_workers(seen: Any) -> None:
    assert seen["inflated"]["is_exact"]
    assert seen["inflated"]["nbytes"] < 600_000_000  # of 1 GB, and each copy of it, with a worker that is started


def test_a_stage_uses_nodes_with_different_numbers_of_gpus(seen: Any) -> None:
    assert seen["kinds"]["is_exact"]
    assert (seen["kinds"]["num_on_large"], seen["kinds"]["num_elsewhere"]) == (2, 1)


def test_the_replicas_of_an_engine_are_on_several_nodes_with_a_gpu_each(seen: Any) -> None:
    assert seen["kinds"]["engines_on_large"] == 2
    assert seen["kinds"]["engine_gpus"] == ["1", "1", "1"]


def test_ray_options_choose_the_node_and_the_environment(seen: Any) -> None:
    assert seen["kinds"]["is_on_large"]
    assert seen["kinds"]["placed"] == ["7", "accelerator_type:A100"]


def test_a_small_node_runs_only_as_many_tasks_as_it_has_memory_for(seen: Any) -> None:
    assert seen["small"]["is_exact"]
    assert (seen["small"]["most_on_small"], seen["small"]["most_on_large"]) == (1, 2)


def test_a_placement_strategy_chooses_the_nodes(seen: Any) -> None:
    assert seen["small"]["num_elsewhere"] == 0


def test_a_class_uses_the_nodes_that_come_while_it_runs(seen: Any) -> None:
    assert seen["grown"] == {"is_exact": True, "is_late_used": True}


def test_a_draining_node_gets_no_more_rows(seen: Any) -> None:
    assert seen["drained"] == {"is_used_before": True, "is_exact": True}


def test_a_query_goes_on_after_a_restart_of_the_gcs(seen: Any) -> None:
    assert seen["restarted"] == {"is_exact": True}
