"""Refusals that have nothing to do with the pace: a gateway of several servers, say, refuses some whatever one does."""

from __future__ import annotations

MOST = 0.2
"""The largest share of requests that may count as noise."""

LEAST = 0.002
NUM_CUTS = 3
FAR_BELOW = 0.8
BELOW = 0.985
ALLOWANCE = 2.0
ALARM = 6.0
DENSE = 2.0
MOST_SCATTERED = 16


class Noise:
    """Finds out whether slowing down lowers the share that is refused, and if not, which refusals are to be ignored.

    A server with a limit takes everything at a rate below what it took before. One that refuses a few there as well,
    after several cuts, refuses them for other reasons. From then on only what is refused beyond twice that share is
    blamed on the rate; so the share is small again soon if it was taken for noise by mistake.
    """

    def __init__(self) -> None:
        self.share = 0.0
        self._excess = 0.0
        self._heard_seq = 0
        self._block_seq = self._num_in_block = 0  # what is counted to correct the share
        self._taken: float | None = None  # what was accepted in a second at the last cut
        self._highest = 0.0
        self._num_useless = self._num_refused = 0  # cuts that changed nothing, and the refusals that followed them
        self._first_seq = 0

    def ignores(self, seq: int) -> bool:
        """Take a refusal; return whether it is one of those that come at any rate."""
        if not self.share:
            return False
        self._excess = max(0.0, self._excess - ALLOWANCE * self.share * max(0, seq - self._heard_seq)) + 1
        self._heard_seq = max(seq, self._heard_seq)
        self._correct(seq)
        if self._excess <= ALARM:
            return True
        self._excess = 0.0
        self._block_seq, self._num_in_block = seq, 0
        return False

    def is_scattered(self, seq: int) -> bool:
        """Take a refusal by a server that has no known limit; return whether there are only few so far, and apart."""
        self._excess = max(0.0, self._excess - MOST * max(0, seq - self._heard_seq)) + 1
        self._heard_seq = max(seq, self._heard_seq)
        self._num_refused += 1
        if self._excess <= DENSE and self._num_refused <= MOST_SCATTERED:
            return True
        self._excess, self._num_refused = 0.0, 0
        return False

    def _correct(self, seq: int) -> None:
        self._num_in_block += 1
        if (num_sent := seq - self._block_seq) * self.share < 10:
            return
        self.share += 0.25 * (min(self._num_in_block / num_sent, 1.25 * self.share, MOST) - self.share)
        self._block_seq, self._num_in_block = seq, 0
        if self.share < LEAST:
            self.share = 0.0

    def useless_cuts(self, rate: float, num_refused: int, cut_seq: int, seq: int) -> float | None:
        """Take what follows from a cut: at ``rate``, so many refusals of those sent since.

        Return the rate to go back to if this and other cuts before it were useless.
        """
        if self._taken is None or num_refused > 1 + MOST * (seq - cut_seq):
            self._num_useless = 0
        elif rate >= BELOW * self._taken:
            self._num_useless = max(0, self._num_useless - 1)
        else:
            if not self._num_useless:
                self._first_seq, self._num_refused, self._highest = cut_seq, 0, self._taken
            self._num_useless += 1
        self._num_refused += num_refused
        if self._num_useless < NUM_CUTS or rate > FAR_BELOW * self._highest:
            return None
        self._num_useless = 0
        self.share = max(self.share, min(self._num_refused / (seq - self._first_seq), MOST))
        self._excess, self._heard_seq, self._block_seq, self._num_in_block = 0.0, seq, seq, 0
        return self._highest

    def cut(self, taken: float | None, rate: float) -> float:
        """Take what was accepted in a second before a cut to ``rate``, None if that is not known; return where to cut.

        After some useless cuts the next is a large one, which shows whether cuts are of any use.
        """
        self._taken = taken
        return min(rate, FAR_BELOW * self._highest) if self._num_useless == NUM_CUTS - 1 else rate
