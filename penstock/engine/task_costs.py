"""The memory and the time that the tasks of a stage take, learned from finished tasks."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.contracts import Bundle, Task

RECENT = 0.9  # the weight of a task, relative to the next one
FIRST_GROWTH = 50  # assumed output bytes per input byte before the first output; a decoded JPEG grows about as much
FIRST_READ_NBYTES = 16 * 2**20  # assumed output of a read before the first one


@dataclass(frozen=True, slots=True)
class Footprint:
    """The copies of its input (besides the bundles) and of its output that a task holds while it runs.

    A function gets a copy of its input that it may change, and returns objects that are then copied into Arrow memory.
    Memory that user code allocates for itself is unknown and not counted.
    """

    num_inputs: int = 0
    num_outputs: int = 1


LEAST_FOOTPRINT = Footprint()


class GrowthEstimate:
    """The ratio of output to input bytes of one stage, learned from its tasks."""

    def __init__(self, first_growth: int = FIRST_GROWTH) -> None:
        self._first_growth = first_growth
        self._total_in = self._total_out = self._num_outputs = 0
        self._recent = 0.0  # output bytes for each input byte of the largest recent output

    def add_output(self, nbytes_in: int, nbytes_out: int) -> None:
        self._recent = max(nbytes_out / max(nbytes_in, 1), RECENT * self._recent)
        self._total_in += nbytes_in
        self._total_out += nbytes_out
        self._num_outputs += 1

    def add_task(self, nbytes_in: int) -> None:
        """Record that a task ended. A task without output counts as zero bytes."""
        if not self._num_outputs:
            self._total_in += nbytes_in

    def output_of(self, nbytes_in: int) -> int:
        """Estimate the output for ``nbytes_in`` bytes of input from the totals of the stage so far.

        Before the first output the estimate is pessimistic. With much memory that makes no difference; with little, one
        task runs alone and shows what the others need.
        """
        if not self._total_in:
            return nbytes_in * self._first_growth
        return -(-nbytes_in * self._total_out // self._total_in)

    def output_of_read(self) -> int:
        return self._total_out // self._num_outputs if self._num_outputs else FIRST_READ_NBYTES

    def most_input(self, share: int) -> int:
        """Return the largest input for which neither the input nor the output of a task exceeds ``share``.

        A large output counts for some time: the next rows may give as much.

        >>> growth = GrowthEstimate()
        >>> growth.most_input(10**9)
        20000000
        >>> growth.add_output(10, 40)
        >>> growth.most_input(10**9)
        250000000
        """
        growth = FIRST_GROWTH if not self._total_in else max(1.0, self._recent, self._total_out / self._total_in)
        return max(1, int(share / growth))


class TaskCosts:
    """The costs of one stage's tasks: ``footprint`` is what a task holds besides its input and its next output."""

    def __init__(self, footprint: Footprint, first_growth: int) -> None:
        self.footprint = footprint
        self.usual_s: float | None = None  # decaying mean of the durations of the tasks
        self.growth = GrowthEstimate(first_growth)

    def nbytes_of_output(self, nbytes_in: int | None) -> int:
        """Return the bytes that a task of ``nbytes_in`` is expected to hold while it makes its next output; None means
        a read.
        """
        nbytes = self.growth.output_of_read() if nbytes_in is None else self.growth.output_of(nbytes_in)
        return nbytes * self.footprint.num_outputs

    def learn_output(self, task: Task, output: Bundle) -> None:
        self.growth.add_output(task.nbytes, output.nbytes)
        task.nbytes_out = max(task.nbytes_out, output.nbytes)

    def learn(self, task: Task) -> None:
        """Learn from a finished task that had rows."""
        self.growth.add_task(task.nbytes)
        self.usual_s = task.busy_s if self.usual_s is None else RECENT * self.usual_s + (1 - RECENT) * task.busy_s
