"""The number of threads that decode at once: fewer if they mostly wait for one another."""

from __future__ import annotations

import threading

import pytest

from penstock.media.images.decode_threads import DecodeTurns, ThreadLimit


def note_round(limit: ThreadLimit, share: float, *, has_waiting: bool = True) -> None:
    """Record a batch of each thread, which ran for a share of its time."""
    for _ in range(limit.num_threads):
        limit.note(0.1, 0.1 * share, has_waiting=has_waiting)


def share_on_16_cores(num_threads: int) -> float:
    """Return the share that was measured there, interpolated between 8, 10, 12 and 16 threads."""
    known = {8: 0.77, 10: 0.72, 12: 0.6, 16: 0.33}
    low = max(number for number in known if number <= num_threads)
    high = min(number for number in known if number >= num_threads)
    return known[low] + (known[high] - known[low]) * (num_threads - low) / max(high - low, 1)


def test_threads_that_wait_for_one_another_become_fewer_and_settle() -> None:
    limit, seen = ThreadLimit(16), []
    for _ in range(30):
        note_round(limit, share_on_16_cores(limit.num_threads))
        seen.append(limit.num_threads)
    assert seen[:3] == [15, 14, 13]
    assert set(seen[10:]) == {12}


def test_threads_that_run_stay_and_come_back() -> None:
    limit = ThreadLimit(16)
    note_round(limit, 0.95)
    assert limit.num_threads == 16
    for _ in range(20):
        note_round(limit, 0.1)
    assert limit.num_threads == 8
    note_round(limit, 0.95, has_waiting=False)
    assert limit.num_threads == 8, "more threads would have nothing to do"
    note_round(limit, 0.95)
    assert limit.num_threads == 9


@pytest.mark.parametrize("num_cores", [1, 2])
def test_two_threads_always_decode(num_cores: int) -> None:
    limit = ThreadLimit(num_cores)
    for _ in range(5):
        note_round(limit, 0.01)
    assert limit.num_threads == 2


def test_a_turn_is_waited_for_and_given_back_after_an_error() -> None:
    turns, is_inside, may_end = DecodeTurns(2), threading.Semaphore(0), threading.Event()
    num_inside: list[int] = []

    def decode() -> None:
        with turns.turn():
            num_inside.append(1)
            is_inside.release()
            may_end.wait(60)

    with pytest.raises(ZeroDivisionError), turns.turn():
        raise ZeroDivisionError
    threads = [threading.Thread(target=decode) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert is_inside.acquire(timeout=60)
    assert is_inside.acquire(timeout=60)
    assert not is_inside.acquire(timeout=0.2), "a third thread decodes"
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert len(num_inside) == 3
