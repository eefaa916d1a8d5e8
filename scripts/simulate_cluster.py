"""Run the real executor against a simulated cluster and a virtual clock; print the utilisation and the driver's time.

    python scripts/simulate_cluster.py --nodes 1000 --gpus 8 --seconds 60 --plot docs/internals/simulated_cluster.svg

A bundle takes a GPU about a second. One worker in a hundred is five times slower. One task in a thousand kills its
worker, which is replaced after five seconds. Nodes leave at random and are replaced after ten seconds; tasks of a
worker that is gone run again. A tenth of the nodes joins late.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

from penstock.contracts import Emit, Report, Task
from penstock.engine.workers import PoolChoice
from penstock.plan.stages import Stage, Work
from tests.engine.simulation import Load, SimulatedPool, World

SLOW_SHARE, SLOWNESS = 0.01, 5.0
DEADLY_SHARE, RESTART_S = 0.001, 5.0
NODES_LOST_EACH_SECOND, NODE_RESTART_S = 0.0005, 10.0  # of all nodes
LATE_SHARE, LATE_S = 0.1, 5.0
STEP_S = 1.0


class Cluster(SimulatedPool):
    """Workers with a GPU each, on nodes that come and go. A task whose worker is gone waits for another one."""

    def __init__(self, load: Load, world: World, emit: Emit, num_nodes: int, num_gpus: int, seconds: float) -> None:
        super().__init__(load, world, emit)
        self._num_gpus = num_gpus
        self._free: list[int] = []
        self._working: dict[int, Task] = {}
        self._waiting: deque[Task] = deque()
        self._gone: set[int] = set()  # nodes
        self._is_slow = [world.rng.random() < SLOW_SHARE for _ in range(num_nodes * num_gpus)]
        self.samples: list[tuple[float, int, int]] = []  # time, busy workers, workers
        self.capacity = 0
        for node in range(num_nodes):
            world.clock.after(LATE_S if node < LATE_SHARE * num_nodes else 0.0, partial(self._join, node))
        for _ in range(int(num_nodes * NODES_LOST_EACH_SECOND * seconds)):
            node = world.rng.randrange(num_nodes)
            world.clock.after(LATE_S + world.rng.random() * seconds, partial(self._leave, node))
        world.clock.after(0.0, self._sample)

    def submit(self, task: Task) -> None:
        self._left.setdefault(task, deque(self._outputs_of(task)))
        self._waiting.append(task)
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and self._free:
            worker, task = self._free.pop(), self._waiting.popleft()
            self._working[worker] = task
            rng = self._world.rng
            duration_s = rng.uniform(0.8, 1.2) * (SLOWNESS if self._is_slow[worker] else 1.0)
            if rng.random() < DEADLY_SHARE:
                self._world.clock.after(duration_s / 2, partial(self._die, worker, task))
            else:
                self._world.clock.after(duration_s, partial(self._done, worker, task, duration_s))

    def _done(self, worker: int, task: Task, busy_s: float) -> None:
        if self._working.get(worker) is not task or self.is_closed:
            return  # its node is gone, or the query
        del self._working[worker]
        self._free.append(worker)
        (output,) = self._left.pop(task)
        self._emit(Report(task, output, True, busy_s))
        self._start_waiting()

    def _die(self, worker: int, task: Task) -> None:
        if self._working.get(worker) is task:
            del self._working[worker]
            self._waiting.appendleft(task)
            self._world.clock.after(RESTART_S, partial(self._restart, worker))
            self._start_waiting()

    def _restart(self, worker: int) -> None:
        if worker // self._num_gpus not in self._gone:
            self._free.append(worker)
            self._start_waiting()

    def _join(self, node: int) -> None:
        self._gone.discard(node)
        self.capacity += self._num_gpus
        self._free += range(node * self._num_gpus, (node + 1) * self._num_gpus)
        self._start_waiting()
        self._emit(Report(None, None, is_done=False))

    def _leave(self, node: int) -> None:
        if node in self._gone:
            return
        self._gone.add(node)
        self.capacity -= self._num_gpus
        self._free = [worker for worker in self._free if worker // self._num_gpus != node]
        for worker in range(node * self._num_gpus, (node + 1) * self._num_gpus):
            if (task := self._working.pop(worker, None)) is not None:
                self._waiting.appendleft(task)
        self._world.clock.after(NODE_RESTART_S, partial(self._join, node))
        self._emit(Report(None, None, is_done=False))

    def _sample(self) -> None:
        if not self.is_closed:
            self.samples.append((self._world.clock.now_s, len(self._working), self.capacity))
            self._world.clock.after(STEP_S, self._sample)


class ClusterWorld(World):
    """A query on the cluster: CPU nodes read, and GPU workers take a bundle each."""

    def __init__(self, num_nodes: int, num_gpus: int, seconds: float, seed: int) -> None:
        self._shape = num_nodes, num_gpus, seconds
        num_bundles = int(num_nodes * num_gpus * seconds)
        reads = Load(capacity=num_nodes * num_gpus // 4, duration_s=lambda rng: rng.uniform(0.1, 0.2), is_ordered=False)
        super().__init__([1] * num_bundles, [reads, Load(is_ordered=False)], seed=seed)

    def _make_pool(self, stage: Stage, work: Work, emit: Emit) -> PoolChoice:
        if stage.name == "0":
            return super()._make_pool(stage, work, emit)
        pool = Cluster(self._loads[1], self, emit, *self._shape)
        self.pools.append(pool)
        return PoolChoice(pool, takes_core=False)


def plot(samples: list[tuple[float, float]], title: str) -> str:
    """Return an SVG of the share of busy workers over time."""
    width, height, end_s = 720, 160, samples[-1][0]
    points = " ".join(f"{40 + at_s / end_s * width:.0f},{20 + (1 - share) * height:.1f}" for at_s, share in samples)
    marks = "".join(
        f'<text x="34" y="{24 + (1 - share) * height:.0f}" text-anchor="end">{share:.0%}</text>'
        f'<path d="M40 {20 + (1 - share) * height:.0f}h{width}" stroke="#ddd"/>'
        for share in (0, 0.5, 0.95)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 60}" height="{height + 50}" font-family="sans-serif" '
        f'font-size="11"><text x="40" y="12">{title}</text>{marks}'
        f'<polyline points="{points}" fill="none" stroke="#0969da" stroke-width="1.5"/>'
        f'<text x="{40 + width}" y="{height + 38}" text-anchor="end">{end_s:.0f} s</text></svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--gpus", type=int, default=8, help="of each node")
    parser.add_argument("--seconds", type=float, default=60.0, help="of work for all workers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    world = ClusterWorld(options.nodes, options.gpus, options.seconds, options.seed)
    started_s = time.process_time()
    rows = world.run()
    driver_s = time.process_time() - started_s
    assert sorted(rows) == list(range(len(rows)))
    assert len(rows) == int(options.nodes * options.gpus * options.seconds)
    cluster: Any = world.pools[1]
    # Without the first second, and the end, when there is no more work for all.
    steady = [each for each in cluster.samples if 1.0 < each[0] < options.seconds]
    busy = sum(busy for _, busy, _ in steady) / sum(workers for _, _, workers in steady)
    title = f"{options.nodes} nodes x {options.gpus} GPUs: {busy:.1%} of the workers busy"
    cost = f"{driver_s / len(rows) * 1e6:.0f} microseconds of CPU, with the simulation's own, for each bundle"
    print(f"{title}; {len(rows):,} bundles; {cost}")
    if options.plot:
        shares = [(at_s, busy / workers) for at_s, busy, workers in cluster.samples if workers]
        options.plot.write_text(plot(shares, title))


if __name__ == "__main__":
    main()
