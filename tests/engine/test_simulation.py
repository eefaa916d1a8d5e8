"""What the executor promises, shown on simulated workers: bounded memory, no deadlock, order, busy workers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from penstock.config import task_share
from penstock.engine.task_costs import Footprint, GrowthEstimate
from penstock.events.events import Event, StageFinished
from penstock.expr.udf import BatchSpec, Target
from penstock.plan.stages import AtMost, CallBatch, Evenly, Exactly, Measured, Paced, Whole
from tests.engine.simulation import Load, World

RATIOS = st.sampled_from([0.01, 0.1, 0.5, 1.0, 2.0, 7.0, 50.0])
POLICIES = st.one_of(
    st.just(Whole()),
    st.builds(Exactly, st.integers(1, 100)),
    st.builds(AtMost, st.integers(1, 50)),
    st.just(Paced()),
    st.builds(Measured, st.integers(1, 100)),
)
thorough = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def steady(duration_s: float) -> Callable[[random.Random], float]:
    return lambda rng: duration_s


def jittered(duration_s: float) -> Callable[[random.Random], float]:
    return lambda rng: duration_s * rng.uniform(0.2, 1.8)


def skewed(duration_s: float) -> Callable[[random.Random], float]:
    """One task in ten takes four times as long as the others, one in a hundred forty times."""
    weights = {1.0: 0.89, 4.0: 0.10, 40.0: 0.01}
    mean = sum(factor * weight for factor, weight in weights.items())
    return lambda rng: duration_s / mean * rng.choices([*weights], [*weights.values()])[0]


@st.composite
def loads(draw: st.DrawFn, policies: st.SearchStrategy[object] = POLICIES) -> list[Load]:
    """Return a read and one to four stages after it."""
    nbytes_per_row = draw(st.sampled_from([10, 100, 5_000]))
    drawn: list[Load] = []
    for index in range(draw(st.integers(2, 5))):
        if index:
            nbytes_per_row = max(1, round(nbytes_per_row * draw(RATIOS)))
        drawn.append(
            Load(
                capacity=draw(st.integers(1, 8)),
                nbytes_per_row=nbytes_per_row,
                duration_s=jittered(draw(st.sampled_from([0.001, 0.1, 3.0]))),
                num_outputs=draw(st.integers(1, 3)),
                inbox=draw(policies) if index else Whole(),  # type: ignore[arg-type]
                is_ordered=draw(st.booleans()),
                takes_core=draw(st.booleans()),
                footprint=Footprint(draw(st.integers(0, 2)) if index else 0, draw(st.integers(1, 3))),
            )
        )
    return drawn


EQUAL_READS = st.builds(lambda rows, num_reads: [rows] * num_reads, st.integers(1, 100), st.integers(0, 40))
ANY_READS = st.lists(st.one_of(st.integers(1, 20), st.integers(1, 300)), max_size=40)
BUDGETS = st.sampled_from([1, 1_000, 100_000, 3_000_000, 10**12])


def allowance(world: World, num_reads: int) -> int:
    """Return one bundle a stage, by the largest that there were, and one batch for each stage that puts them together.

    On top of it, each task may err by one row, as outputs are whole rows. And of a read only the average is known
    before it gives something, so as many as run at once may err. What is made is held as often as the footprint says.
    """
    read = world.pools[0]
    total = (num_reads - 1) * read.largest_output * read.load.footprint.num_outputs
    for pool in world.pools:
        footprint = pool.load.footprint
        gathered = pool.largest_input if isinstance(pool.load.inbox, Exactly) else 0
        made = pool.largest_output + pool.capacity * pool.load.nbytes_per_row
        total += footprint.num_outputs * made + footprint.num_inputs * pool.largest_input + gathered
    return total


@thorough
@given(EQUAL_READS, loads(), BUDGETS, st.integers(1, 16), st.sampled_from([0.0, 0.05]), st.integers(0, 2**16))
def test_memory_stays_within_the_budget_and_one_bundle_a_stage(
    reads: list[int], stages: list[Load], memory_bytes: int, num_cores: int, consume_s: float, seed: int
) -> None:
    world = World(reads, stages, memory_bytes=memory_bytes, num_cores=num_cores, seed=seed)
    rows = world.run(consume_s)
    assert sorted(rows) == list(range(sum(reads)))
    assert world.most_held <= memory_bytes + allowance(world, num_reads=1)
    assert world.nbytes_held == 0


@pytest.mark.parametrize("footprint", [Footprint(), Footprint(1, 2), Footprint(2, 3)], ids=str)
def test_rows_that_grow_fiftyfold_are_made_a_few_at_a_time(footprint: Footprint) -> None:
    """Sixteen megabytes are read at a time; whole, each would be most of the budget when it has grown."""
    memory_bytes, num_cores = 10**9, 4
    read = Load(capacity=num_cores, nbytes_per_row=10**6, duration_s=steady(0.01))
    grow = Load(capacity=num_cores, nbytes_per_row=50 * 10**6, duration_s=jittered(0.1), footprint=footprint)
    slow = Load(capacity=1, nbytes_per_row=8, duration_s=jittered(0.2), footprint=footprint)
    world = World([16] * 50, [read, grow, slow], memory_bytes=memory_bytes, num_cores=num_cores)
    assert world.run() == list(range(800))
    share = task_share(memory_bytes, num_cores)
    assert world.pools[1].largest_input <= max(10**6, GrowthEstimate().most_input(share))
    assert world.most_held <= 1.15 * memory_bytes


def test_tasks_fit_on_a_node_with_less_memory_than_the_others() -> None:
    read = Load(capacity=4, nbytes_per_row=10**6)
    grow = Load(capacity=4, nbytes_per_row=50 * 10**6)
    world = World([16] * 50, [read, grow], memory_bytes=10**10, num_cores=4, most_task_nbytes=10**8)
    assert world.run() == list(range(800))
    assert world.pools[1].largest_output == 10**8


@thorough
@given(ANY_READS, loads(), BUDGETS, st.integers(1, 16), st.integers(0, 2**16))
def test_reads_of_any_size(reads: list[int], stages: list[Load], memory_bytes: int, num_cores: int, seed: int) -> None:
    world = World(reads, stages, memory_bytes=memory_bytes, num_cores=num_cores, seed=seed)
    assert sorted(world.run()) == list(range(sum(reads)))
    assert world.most_held <= memory_bytes + allowance(world, num_reads=stages[0].capacity)


@thorough
@given(
    ANY_READS,
    loads(st.one_of(POLICIES, st.builds(Evenly, st.integers(1, 9)))),
    BUDGETS,
    st.integers(1, 3),
    st.integers(0, 2**16),
)
@example(  # a read that is done, and a batch that never fits the budget: something must give way
    [10] * 10,
    [Load(), Load(num_outputs=2, nbytes_per_row=10), Load(inbox=Exactly(1000))],
    1,
    1,
    0,
)
def test_rows_arrive_once_and_in_order(
    reads: list[int], stages: list[Load], memory_bytes: int, num_cores: int, seed: int
) -> None:
    ordered = [replace(load, is_ordered=True) for load in stages]
    world = World(reads, ordered, memory_bytes=memory_bytes, num_cores=num_cores, seed=seed)
    assert world.run() == list(range(sum(reads)))


@thorough
@given(ANY_READS, loads(), BUDGETS, st.integers(0, 500), st.data())
def test_a_limit_gives_the_first_rows(
    reads: list[int], stages: list[Load], memory_bytes: int, limit: int, data: st.DataObject
) -> None:
    ordered = [replace(load, is_ordered=True) for load in stages]
    after = data.draw(st.integers(0, len(stages) - 1))
    world = World(reads, ordered, memory_bytes=memory_bytes, num_cores=4, limit=limit, limit_after=after)
    assert world.run() == list(range(min(limit, sum(reads))))


def test_a_limit_stops_what_comes_before_it() -> None:
    work = Load(capacity=8, duration_s=jittered(1.0))
    world = World([10] * 10_000, [Load(capacity=4, duration_s=steady(0.01)), work], limit=500)
    assert len(world.run()) == 500
    read, worked = world.pools
    assert len(worked.started) <= 50 + 2 * 8
    assert len(read.started) <= len(worked.started) + (2 * 8 + 4) + 4


@st.composite
def selective_calls(draw: st.DrawFn) -> Load:
    """A stage of calls that keeps a share of its rows: one of many here, all of them there."""
    share, spread = draw(st.sampled_from([1.0, 0.5, 0.1, 0.01])), draw(st.integers(1, 200))
    return Load(
        capacity=draw(st.integers(1, 8)),
        duration_s=draw(st.sampled_from([steady(1.0), jittered(1.0), skewed(1.0)])),
        inbox=draw(st.sampled_from([AtMost(64), Paced(), Measured(2**20)])),
        work=CallBatch(BatchSpec("f", "map", Target(print))),
        keeps=lambda row: random.Random(row // spread * 31 + spread).random() < share,
    )


@thorough
@given(st.integers(1, 50), st.lists(selective_calls(), min_size=1, max_size=3), st.booleans(), st.integers(0, 10**6))
def test_few_more_calls_than_a_reader_of_few_rows_needs(
    num_read: int, calls: list[Load], has_limit: bool, seed: int
) -> None:
    limit = num_read if has_limit else None
    world = World([1000] * 5, [Load(capacity=4), *calls], limit=limit, is_read_gradually=not has_limit, seed=seed)
    rows = world.run(num_read=num_read)[:num_read]
    last_row = rows[-1] if len(rows) == num_read else math.inf
    for pool in world.pools[1:]:
        num_needed = sum(row <= last_row for row in pool.rows_taken)
        assert len(pool.rows_taken) <= 4 * num_needed + 16


def test_a_reader_of_all_rows_soon_gets_them_at_full_speed() -> None:
    def duration_s(is_read_gradually: bool) -> float:
        calls = Load(capacity=10, inbox=AtMost(64), work=CallBatch(BatchSpec("f", "map", Target(print))))
        world = World([20_000], [Load(), calls], is_read_gradually=is_read_gradually)
        assert len(world.run()) == 20_000
        return world.clock.now_s

    assert duration_s(True) <= duration_s(False) + 5  # calls of one second


def test_a_limit_leaves_its_memory_and_cores_to_what_comes_after() -> None:
    """What is cancelled before the limit must not count against the stages behind it."""
    durations = iter([0.1] + [1_000.0] * 4)  # after the first, four that would never end
    read = Load(capacity=4, nbytes_per_row=10, duration_s=steady(0.01), takes_core=True)
    before = Load(capacity=8, duration_s=lambda rng: next(durations, 0.1), is_ordered=False, takes_core=True)
    world = World([10] * 100, [read, before, Load(takes_core=True)], num_cores=16, limit=400, limit_after=1)
    bundles = world.executor.run()
    stages = world.executor._stages
    next(bundle for bundle in bundles if stages[1].is_done)
    assert all(pool.is_closed for pool in world.pools[:2])
    assert [stage.nbytes_held for stage in stages[:2]] == [0, 0]
    assert world.executor._resources.cores.num_free == 16 - stages[-1].num_running
    bundles.close()


def test_a_slow_stage_is_not_waited_for_until_a_batch_is_full() -> None:
    """A row a second, then a function that takes no time: each row goes on soon after it has come."""
    slow = Load(inbox=Exactly(1), duration_s=steady(1.0))
    world = World([1] * 20, [Load(duration_s=steady(0.0)), slow, Load(inbox=Measured(1000), duration_s=steady(0.01))])
    assert world.run() == list(range(20))
    assert [first_row for _, first_row in world.pools[2].started] == list(range(20))


@pytest.mark.parametrize(("num_rows", "told"), [(20, None), (200, 16)])
def test_the_size_found_is_told_when_a_stage_ends(num_rows: int, told: int | None) -> None:
    class Ends:
        def __init__(self) -> None:
            self.batch_rows: list[int | None] = []

        def on_event(self, event: Event) -> None:
            if isinstance(event, StageFinished):
                self.batch_rows.append(event.batch_rows)

    ends = Ends()
    World([num_rows], [Load(), Load(inbox=Measured(16))], subscribers=[ends]).run()
    assert ends.batch_rows == [None, told]


def test_rows_that_come_quickly_are_gathered() -> None:
    """Small bundles, a hundred a second, for a function that takes a tenth: most of its calls are full ones."""
    quick = Load(inbox=Exactly(1), duration_s=steady(0.01))
    world = World([1] * 400, [Load(duration_s=steady(0.0)), quick, Load(inbox=Measured(1000), duration_s=steady(0.1))])
    assert world.run() == list(range(400))
    assert len(world.pools[2].started) < 400 / 6


def test_a_small_budget_makes_small_batches() -> None:
    """A quarter of the budget holds two rows and the copy that joins them, and the first batches would have eight."""
    read = Load(nbytes_per_row=100, duration_s=steady(0.01))
    measured = Load(inbox=Measured(1000), nbytes_per_row=1, duration_s=steady(1.0))
    world = World([1] * 40, [read, measured], memory_bytes=2_000)
    assert world.run() == list(range(40))
    assert world.pools[1].largest_input == 200
    assert world.most_held <= 2_000


def test_the_most_downstream_stage_goes_first() -> None:
    """With one core, each bundle is taken to the end before another is read."""
    one_core = [Load(capacity=4, takes_core=True) for _ in range(3)]
    world = World([1] * 5, one_core, num_cores=1)
    world.run()
    begun = sorted((start, stage) for stage, pool in enumerate(world.pools) for start, _ in pool.started)
    assert [stage for _, stage in begun] == [0, 1, 2] * 5
    assert world.most_held == 2  # the input and the output of the one task that runs


def test_tasks_are_carried_on_oldest_first() -> None:
    """Under a tight budget the task that the others wait for goes on, so that memory is freed."""
    world = World(
        [12] * 6,
        [Load(capacity=6, nbytes_per_row=10, num_outputs=12, duration_s=jittered(1.0)), Load(nbytes_per_row=10)],
        memory_bytes=200,
    )
    assert world.run() == list(range(72))
    assert world.most_held <= 200 + allowance(world, num_reads=1)


def test_an_unknown_inflation_is_tried_on_one_task() -> None:
    """Fifty-fold growth is found out with one bundle, not with one for each of eight workers."""
    world = World(
        [10] * 40, [Load(capacity=4, nbytes_per_row=10), Load(capacity=8, nbytes_per_row=500)], memory_bytes=6_000
    )
    world.run()
    assert [start for start, _ in world.pools[1].started[:2]] == [1.0, 2.0]
    assert world.most_held <= 6_000


def test_a_slow_task_does_not_idle_the_workers_behind_it() -> None:
    """Outputs wait for the sake of order; workers do not."""
    durations = iter([50.0])
    work = Load(capacity=4, duration_s=lambda rng: next(durations, 1.0))
    world = World([1] * 150, [Load(capacity=4, duration_s=steady(0.01)), work])
    assert world.run() == list(range(150))
    assert world.clock.now_s < 52


PIPELINES = st.tuples(
    st.integers(1, 4),  # where the bottleneck is
    st.lists(st.tuples(st.integers(1, 12), st.sampled_from([1.0, 4.0])), min_size=5, max_size=5),
    st.booleans(),
)


@settings(max_examples=12, deadline=None)
@given(PIPELINES, st.integers(0, 2**16))
def test_the_bottleneck_is_busy(pipeline: tuple[int, list[tuple[int, float]], bool], seed: int) -> None:
    """Whatever is slowest works more than nine tenths of the time, from its first full load to its last task."""
    bottleneck, stages, is_ordered = pipeline
    pace_s = 1.0  # of the bottleneck, per bundle; the others are at least half as fast again
    world = World(
        [10] * 200,
        [
            Load(
                capacity=capacity,
                duration_s=jittered(capacity * (pace_s if index == bottleneck else pace_s / 1.5 / faster)),
                is_ordered=is_ordered,
            )
            for index, (capacity, faster) in enumerate(stages)
        ],
        seed=seed,
    )
    world.run()
    pool = world.pools[bottleneck]
    starts = [start for start, _ in pool.started]
    assert pool.busy_share(starts[2 * pool.capacity], starts[-1]) > 0.9


@pytest.mark.parametrize(
    ("durations", "is_ordered"),
    [(steady(1.0), False), (jittered(1.0), True), (skewed(1.0), True)],
    ids=["steady, any order", "jittered, in order", "skewed, in order"],
)
def test_a_thousand_workers_are_kept_busy(durations: Callable[[random.Random], float], is_ordered: bool) -> None:
    """One-second tasks on a thousand workers: more than nine tenths of their time is spent on tasks."""
    read = Load(capacity=100, nbytes_per_row=1_000_000, duration_s=jittered(0.05), is_ordered=is_ordered)
    work = Load(capacity=1_000, nbytes_per_row=10_000, duration_s=durations, is_ordered=is_ordered)
    world = World([1] * 6_000, [read, work], memory_bytes=64 * 10**9)
    assert len(world.run()) == 6_000
    starts = [start for start, _ in world.pools[1].started]
    assert world.pools[1].busy_share(starts[1_000], starts[-1]) > 0.9
    assert world.most_held <= 64 * 10**9
