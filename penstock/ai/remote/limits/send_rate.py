"""How many requests a second a server takes, learned from what it accepts and what it refuses."""

from __future__ import annotations

import math

from penstock.ai.remote.limits.noise import Noise

BIN_S = 0.025
NUM_BINS = 640
"""16 seconds of counts: enough for a measurement at a few requests a second."""

WINDOW_S = 1.0
"""What was accepted is measured over this time, or over longer where requests are few."""

SOON_S = 0.5
"""A refusal so soon after a cut says that the cut was too small; there is nothing yet to measure by."""

HEADROOM = 0.96
"""The share of the measured rate that is used after a cut, so that a drained token bucket fills again."""

SLACK_S = 0.03
"""How far pacing may catch up after a late timer."""

SLOW_GROWTH = 0.02
FAST_GROWTH = 2.0
"""Shares a second: from a good measurement the rate creeps, ever faster; from a guess it doubles within a second."""

TEMPO_S = 1.4
"""Creeping gets twice as fast in this time."""

LONGEST_PROBE_S = 2.0


class Accepted:
    """Counts by the time of sending; a refusal takes its request back, so what is left was accepted."""

    __slots__ = ("_counts", "_stamps")

    def __init__(self) -> None:
        self._counts = [0] * NUM_BINS
        self._stamps = [-1] * NUM_BINS

    def add(self, sent_at: float) -> None:
        number = int(sent_at / BIN_S)
        place = number % NUM_BINS
        if self._stamps[place] == number:
            self._counts[place] += 1
        else:
            self._stamps[place] = number
            self._counts[place] = 1

    def take_back(self, sent_at: float) -> None:
        number = int(sent_at / BIN_S)
        place = number % NUM_BINS
        if self._stamps[place] == number:
            self._counts[place] -= 1

    def between(self, start: float, end: float) -> float:
        """Return the count of a span; of a bin that lies in it in part, that part."""
        first, last = int(start / BIN_S), int(end / BIN_S)
        total = sum(self._in_bin(number) for number in range(max(first, last - NUM_BINS + 1), last + 1))
        return total - self._in_bin(first) * (start / BIN_S - first)

    def rate(self, since: float, end: float, span: float = WINDOW_S) -> float:
        """Return requests a second up to ``end``, over ``span`` seconds, or more where they hold too few."""
        while (count := self.between(max(since, end - span), end)) < 16 and span < 15 and end - span > since:
            span *= 2
        return count / max(min(span, end - since), BIN_S)

    def _in_bin(self, number: int) -> int:
        place = number % NUM_BINS
        return self._counts[place] if self._stamps[place] == number else 0


class SendRate:
    """A pace that follows the server's. There is none until the first refusal: no server without limits is held back.

    After a refusal the rate becomes what was accepted lately, less a little, and creeps upwards until the next one. A
    server that refuses everything (the rest of its time window, or an outage) is probed ever more rarely, and once it
    takes a probe the rate is what it was. Requests have numbers: those sent before a cut say nothing against it.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        self.accepted = Accepted()
        self._noise = Noise()
        self._next_at = 0.0
        self._cut_at = -math.inf
        self._cut_seq = 0
        self._burst_sent_at: float | None = None  # after the first cut: when the burst was sent that made it
        self._num_refused = 0  # of those sent since the cut
        self._measure_from = -math.inf
        self._growth = SLOW_GROWTH
        self._fast_until = 0.0  # up to this rate growth is fast: nothing near it was refused
        self._is_measured = False  # whether the rate is what was accepted, not a guess
        self._rate_at_end: float | None = None  # the last one learned while the server still took some
        self._opened_at = -math.inf
        self._hold_until = 0.0
        self._grown_at = 0.0
        self._waited_at = -math.inf
        self._refusal_s = 0.05
        self._answer_s = 0.05
        self._closed_at: float | None = None
        self._probe_seq = 0
        self._probe_at = 0.0
        self._is_probe_refused = True

    def ready_at(self, now: float) -> float:
        """Return when the next request may be sent; not after ``now`` means at once."""
        if self.rate is None:
            return now
        if self._closed_at is not None and not self._reopen_if_silent(now):
            return self._next_at
        if now - self._grown_at > 0.01:
            self._grow(now)
        if self._next_at > now:
            self._waited_at = now
        return self._next_at

    def send(self, now: float, seq: int) -> None:
        """Count a request that is sent now."""
        self.accepted.add(now)
        if self.rate is None:
            return
        if self._closed_at is not None:
            self._probe_seq, self._probe_at, self._is_probe_refused = seq, now, False
            self._next_at = now + self._probe_gap(now)
        else:
            self._next_at = max(self._next_at, now - max(SLACK_S, 1 / self.rate)) + 1 / self.rate

    def accept(self, now: float, sent_at: float, seq: int) -> None:
        """Take an answer that is no refusal."""
        self._answer_s += 0.1 * (now - sent_at - self._answer_s)
        if self._closed_at is not None and seq > self._cut_seq:
            self._reopen(now)

    def hold(self, until: float) -> None:
        """Do not grow before ``until``."""
        self._hold_until = max(self._hold_until, until)

    def rescale(self, factor: float) -> None:
        """Be left with as much of the server's rate, as others who call it came or went.

        A smaller share holds at once. A larger one is approached fast, as those who left may have had less than theirs.
        """
        if self.rate is None:
            return
        if factor > 1:
            self._fast_until = max(self._fast_until, factor * self.rate)
            return
        self.rate *= factor
        if self._rate_at_end is not None:
            self._rate_at_end *= factor

    def refuse(self, now: float, sent_at: float, seq: int, last_seq: int, *, is_blamed: bool = True) -> None:
        """Take a refusal of request ``seq`` of ``last_seq``; if the pace is not to blame for it, only count."""
        self.accepted.take_back(sent_at)
        if self._noise.ignores(seq) and self._closed_at is None:
            if seq > self._cut_seq:
                self._num_refused += 1
            return
        if self.rate is None and self._noise.is_scattered(seq):
            return
        if seq <= self._cut_seq:
            self._refine(now)
            return
        self._burst_sent_at = None
        self._refusal_s += 0.2 * (max(now - sent_at, 0.001) - self._refusal_s)
        if self._closed_at is not None:
            self._is_probe_refused |= seq == self._probe_seq
        elif self._is_measured and sent_at < self._cut_at + min(self._answer_s, 0.2):
            self._cut_seq = seq  # a server that counts requests under way still answers those of before the cut
        elif is_blamed:
            self._num_refused += 1
            self._judge(now, sent_at, seq, last_seq)

    def _judge(self, now: float, sent_at: float, seq: int, last_seq: int) -> None:
        is_soon = self.rate is not None and now - self._cut_at < max(SOON_S, 2 * self._refusal_s)
        if is_soon and self._num_refused < 3:
            return  # the tail of a burst, or jitter: the last cut may well be right
        if is_soon and self._num_refused >= 0.9 * (seq - self._cut_seq):
            self._closed_at = now
            self._is_probe_refused = True
            self._next_at = now + self._probe_gap(now)
        back_to = None
        if self.rate is not None and self._closed_at is None:
            back_to = self._noise.useless_cuts(self.rate, self._num_refused, self._cut_seq, seq)
        if back_to is not None:
            self.rate, self._fast_until, self._measure_from, self._is_measured = back_to, math.inf, now, False
            self._noise.cut(None, back_to)
            self._start_growth(now)
        else:
            taken = None if self.rate is None or self._closed_at is not None else self._measured(sent_at)
            is_first = self.rate is None
            self._cut(now, sent_at, is_soon)
            assert self.rate is not None
            self.rate = self._noise.cut(self.rate / HEADROOM if is_first else taken, self.rate)
        self._cut_at, self._cut_seq, self._num_refused = now, last_seq, 0

    def _cut(self, now: float, sent_at: float, is_soon: bool) -> None:
        if self.rate is None:
            self._burst_sent_at = sent_at
            self.rate = self._first_rate(sent_at)
            self._next_at = self._measure_from = now
            self._fast_until = math.inf
            self._rate_at_end = self.rate
        elif self._closed_at is not None and now - self._cut_at < SOON_S and self._cut_at != self._opened_at:
            pass  # the last cut is not yet disproved: all is refused, whatever the rate
        elif is_soon or sent_at - self._measure_from < SOON_S:
            self._fast_until = 0.9 * self.rate
            self.rate *= 0.9 if self._is_measured else 0.75
            self._is_measured = False
        else:
            self.rate = max(min(self.rate, HEADROOM * self._measured(sent_at)), 0.01)
            self._fast_until = 0.0
            self._is_measured = True
            self._rate_at_end = self.rate
        self._start_growth(now)

    def _measured(self, sent_at: float) -> float:
        """Return what was accepted lately, in requests a second."""
        window_s = WINDOW_S / 4 if (self.rate or 0) < self._fast_until else WINDOW_S
        return self.accepted.rate(max(self._measure_from, sent_at - 16 * window_s), sent_at, window_s)

    def _refine(self, now: float) -> None:
        """The rest of the first burst is refused: what was taken for accepted shrinks."""
        if self._burst_sent_at is None or self.rate is None:
            return
        if now - self._burst_sent_at < NUM_BINS * BIN_S / 2:  # later the counts are overwritten
            self.rate = self._rate_at_end = min(self.rate, self._first_rate(self._burst_sent_at))

    def _first_rate(self, sent_at: float) -> float:
        """By the usual sizes of buckets and windows, what a server takes at once is what it takes in a second."""
        return max(HEADROOM * self.accepted.between(sent_at - WINDOW_S, sent_at + BIN_S) / WINDOW_S, 1.0)

    def _start_growth(self, now: float) -> None:
        assert self.rate is not None
        self._growth = SLOW_GROWTH / self._tempo()
        self.hold(now + (2 * self._refusal_s if self.rate < self._fast_until else SOON_S * self._tempo()))

    def _fastest_growth(self) -> float:
        assert self.rate is not None
        by_request = 1.0 if self._fast_until == math.inf else 0.25  # how much one request may add
        return min(FAST_GROWTH, 0.25 / self._refusal_s, max(by_request * self.rate, SLOW_GROWTH))

    def _tempo(self) -> float:
        """Return the seconds in which growth doubles: long enough for some thirty requests to be answered."""
        return max(TEMPO_S, 30 / self.rate) if self.rate else TEMPO_S

    def _grow(self, now: float) -> None:
        """Raise the rate for the time since the last call, if somebody had to wait for it."""
        assert self.rate is not None
        elapsed, self._grown_at = min(now - self._grown_at, 0.1), now
        if now < self._hold_until or now - self._waited_at > max(0.1, 2 / self.rate):
            return
        if self.rate < self._fast_until:
            self.rate *= 1 + self._fastest_growth() * elapsed
            return
        self.rate *= 1 + self._growth * elapsed
        self._growth = min(self._growth * 2 ** (elapsed / self._tempo()), self._fastest_growth())

    def _probe_gap(self, now: float) -> float:
        """Lose no more than a tenth of the outage, whatever its length."""
        closed_s = now - (self._closed_at or now)
        between_s = 0.5 / self.rate if self.rate else 0.0
        return min(max(self._refusal_s, 0.02, between_s, 0.1 * closed_s), LONGEST_PROBE_S)

    def _reopen_if_silent(self, now: float) -> bool:
        """A probe that was not refused in good time was accepted, though its answer may take long."""
        if not self._is_probe_refused and now - self._probe_at > max(4 * self._refusal_s, 0.2):
            self._reopen(now)
        return self._closed_at is None

    def _reopen(self, now: float) -> None:
        assert self.rate is not None
        assert self._closed_at is not None
        if now - self._closed_at > WINDOW_S:
            self._measure_from = now  # an outage is no measurement
            self._is_measured = False
        elif now - self._closed_at > WINDOW_S / 4:
            self._fast_until = 0.0
            self.rate = self._rate_at_end or self.rate  # a window that ended: what it held is its rate
        self._rate_at_end = None
        self._closed_at = None
        self._next_at = self._grown_at = self._opened_at = self._cut_at = now
        self._num_refused = 0
        self._start_growth(now)
