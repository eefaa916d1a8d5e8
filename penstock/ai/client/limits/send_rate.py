"""The request rate that a server accepts, learned from its refusals."""

from __future__ import annotations

import math

from penstock.ai.client.limits.alarm import ALARM, Alarm

BIN_S = 0.025
NUM_BINS = 640
"""16 seconds of counts: enough to measure a few requests a second."""

WINDOW_S = 1.0
"""The time over which the accepted rate is measured, or longer if requests are few."""

SOON_S = 0.5
"""A refusal this soon after a cut means that the cut was too small; there is nothing to measure yet."""

HEADROOM = 0.96
"""The share of the measured rate to use after a cut, so that an empty token bucket fills again."""

SLACK_S = 0.03
"""The time by which pacing may catch up after a late timer."""

SLOW_GROWTH, FAST_GROWTH = 0.02, 2.0
"""Growth of the rate in a second: slow after a good measurement, fast after a guess."""

TEMPO_S = 1.4
"""The time in which slow growth doubles."""

MAX_PROBE_GAP_S = 2.0

NOISY_ALARM = 6.0
"""Where some refusals are noise, this many more than expected are a signal."""

MIN_RATE, GUESSED_RATE = 0.5, 64.0
"""The least rate, and the rate to return to after an outage if no request was accepted before it."""

MAX_NOISE, TEST_CUT, NUM_TEST_CUTS = 0.2, 0.8, 4
"""At most this share of refusals can be noise; a cut to this share of the accepted rate tests it."""


class AcceptedCount:
    """Counts of requests by the time of sending. A refusal removes its request, so the rest was accepted."""

    __slots__ = ("_counts", "_stamps")

    def __init__(self) -> None:
        self._counts = [0] * NUM_BINS
        self._stamps = [-1] * NUM_BINS

    def add(self, sent_at: float, count: int = 1) -> None:
        number = int(sent_at / BIN_S)
        place = number % NUM_BINS
        if self._stamps[place] == number:
            self._counts[place] += count
        elif count > 0:
            self._stamps[place] = number
            self._counts[place] = count

    def rate(self, since: float, end: float, span: float = WINDOW_S) -> float:
        """Return requests a second up to ``end``, over ``span`` seconds, or more if they hold too few."""
        while (count := self.between(max(since, end - span), end)) < 16 and span < 15 and end - span > since:
            span *= 2
        return count / max(min(span, end - since), BIN_S)

    def between(self, start: float, end: float) -> float:
        first, last = int(start / BIN_S), int(end / BIN_S)
        total = sum(self._in_bin(number) for number in range(max(first, last - NUM_BINS + 1), last + 1))
        return total - self._in_bin(first) * (start / BIN_S - first)

    def _in_bin(self, number: int) -> int:
        place = number % NUM_BINS
        return self._counts[place] if self._stamps[place] == number else 0


class SendRate:
    """A rate that follows the server's limit. It is None until refusals show a limit.

    Refusals cut the rate to slightly less than the server recently accepted; from there it grows until the next
    refusals. Requests are numbered: refusals of requests sent before a cut do not count against it. A server that
    refuses everything (the rest of its time window, an outage) is probed ever more rarely, and the rate returns with
    the first probe accepted.

    Some servers refuse a share of requests at any rate. If a cut far below the accepted rate does not end the refusals,
    that share is noise: from then on only refusals beyond twice that share count.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        self._accepted = AcceptedCount()
        self._next_at = self._opened_at = 0.0
        self._cut_at = self._cut_sent_at = self._measured_since = -math.inf
        self._cut_seq = self._num_refused = 0  # the last request before the cut, and the refusals of later requests
        self._reference = 0.0  # the accepted rate at the last cut by measurement
        self._least = MIN_RATE  # the least rate that the last cut may lead to
        self._fast_until = math.inf  # growth is fast up to this rate
        self._growth = SLOW_GROWTH
        self._hold_until = self._grown_at = 0.0
        self._waited_at = -math.inf
        self._refusal_s = 0.05
        self._alarm = Alarm()
        self._noise = 0.0
        self._num_useless_cuts = 0
        self._closed_at: float | None = None
        self._probe_at: float | None = None  # when the probe under way was sent

    @property
    def next_at(self) -> float:
        """The time of the next request, as of the last one."""
        return self._next_at

    def ready_at(self, now: float) -> float:
        """Return when the next request may be sent; a time up to ``now`` means at once."""
        if self.rate is None:
            return now
        if self._closed_at is not None:
            # A probe that is not refused in good time was accepted, though its answer may take long.
            if self._probe_at is None or now - self._probe_at <= max(4 * self._refusal_s, 0.2):
                return self._next_at
            self._reopen(now)
        if now - self._grown_at > 0.01:
            self._grow(now)
        if self._next_at > now:
            self._waited_at = now
        return self._next_at

    def send(self, now: float) -> None:
        """Count a request that is sent now."""
        self._accepted.add(now)
        if self.rate is None:
            self._opened_at = self._opened_at or now
            return
        if self._closed_at is not None:
            self._probe_at = now
            self._next_at = now + self._probe_gap(now)
        else:
            self._next_at = max(self._next_at, now - max(SLACK_S, 1 / self.rate)) + 1 / self.rate

    def accept(self, now: float, seq: int) -> None:
        """Record an answer that is not a refusal."""
        if self._closed_at is not None and seq > self._cut_seq:
            self._reopen(now)

    def hold(self, until: float) -> None:
        """Do not grow before ``until``."""
        self._hold_until = max(self._hold_until, until)

    def uncount(self, sent_at: float) -> None:
        """Remove a refused request from the accepted requests."""
        self._accepted.add(sent_at, -1)

    def refuse(self, now: float, sent_at: float, seq: int, last_seq: int, since: float = -math.inf) -> None:
        """Record a refusal of request ``seq`` after ``last_seq`` requests.

        The first refusal sets the rate to what the server accepted since ``since``; after a burst, in the last second.
        """
        if self.rate is None:
            self._cut_at = since
        if self.rate is not None and seq <= self._cut_seq:
            self._correct_cut(now)
            return
        self._refusal_s += 0.2 * (max(now - sent_at, 0.001) - self._refusal_s)
        self._num_refused += 1
        if self._closed_at is not None:
            self._probe_at = None
        elif self.rate is None or self._is_alarming(seq):
            self._cut(now, sent_at, seq)
            self._cut_at, self._cut_seq, self._num_refused = now, last_seq, 0
            self._alarm.clear()

    def _is_alarming(self, seq: int) -> bool:
        expected = 2 * self._noise or (0.0 if self._num_useless_cuts else 0.03)
        return self._alarm.hear(seq, expected, NOISY_ALARM if self._noise else ALARM)

    def _cut(self, now: float, sent_at: float, seq: int) -> None:
        share = self._num_refused / max(1, seq - self._cut_seq)
        is_soon = now - self._cut_at < max(SOON_S, 2 * self._refusal_s)
        if self.rate is None:
            self._set_measured(sent_at)
            self._next_at = now
            if not self._accepted.between(sent_at - WINDOW_S, now):
                self.rate = self._reference = GUESSED_RATE
                self._close(now)
        elif is_soon and share > 0.9:
            self._close(now)
        elif share <= MAX_NOISE and self._is_below_accepted(now):
            self._test_noise(now, share)
        elif is_soon:
            self._fast_until = min(self._fast_until, 0.9 * self.rate)
            self.rate *= 0.9
        else:
            self._set_measured(sent_at)
        self._start_growth(now)

    def _close(self, now: float) -> None:
        """Send probes only."""
        self._closed_at, self._probe_at = now, None
        self._next_at = now + self._probe_gap(now)

    def _is_below_accepted(self, now: float) -> bool:
        """Return whether the server refused requests at a rate that it had accepted before, without any growth
        since."""
        assert self.rate is not None
        return self.rate < 0.985 * self._reference and (now < self._hold_until or not self._num_useless_cuts)

    def _test_noise(self, now: float, share: float) -> None:
        """Cut far below the accepted rate; if the same share is still refused, it is noise."""
        assert self.rate is not None
        self._num_useless_cuts += 1
        if self._num_useless_cuts < NUM_TEST_CUTS:
            self.rate *= HEADROOM if self._num_useless_cuts == 1 else TEST_CUT
            self._fast_until = 0.9 * self._reference
            self.hold(now + max(1.0, min(6 * ALARM / share, 600) / self.rate))  # until noise would have shown again
        else:
            self._noise, self._num_useless_cuts = max(self._noise, share), 0
            self.rate, self._fast_until = self._reference, math.inf

    def _set_measured(self, sent_at: float) -> None:
        """Cut the rate to the accepted one, but by a limited factor: after fast growth the last second shows too
        little."""
        self._cut_sent_at, self._measured_since, self._num_useless_cuts = sent_at, self._cut_at, 0
        self._noise = self._noise / 2 if self._noise > 0.01 else 0.0  # so a mistake is forgotten after some cuts
        is_first, self.rate = self.rate is None, self.rate or math.inf
        self._least = MIN_RATE if is_first else (0.5 if self.rate >= self._fast_until else 0.75) * self.rate
        self._reference = min(self.rate, max(self._measured(), self._least))
        self.rate = HEADROOM * self._reference
        if is_first:  # a burst shows little, so growth is fast until a refusal
            self._fast_until = math.inf if self._measured_since == -math.inf else 4 * self.rate
        else:
            self._fast_until = 0.0

    def _correct_cut(self, now: float) -> None:
        """Lower the rate of the last cut when the server refuses more of the requests sent before it."""
        if self._closed_at is None and now - self._cut_sent_at < NUM_BINS * BIN_S / 2:  # later the counts are gone
            self._reference = min(self._reference, max(self._measured(), self._least))
            self.rate = min(self.rate or math.inf, HEADROOM * self._reference)

    def _measured(self) -> float:
        """Return the accepted rate before the cut."""
        if self._measured_since == -math.inf:  # a burst: usual buckets and windows take one in a second
            return self._accepted.between(self._cut_sent_at - WINDOW_S, self._cut_sent_at + BIN_S) / WINDOW_S
        return self._accepted.rate(max(self._measured_since, self._cut_sent_at - 16), self._cut_sent_at)

    def _start_growth(self, now: float) -> None:
        assert self.rate is not None
        self._growth = SLOW_GROWTH / self._tempo()
        self.hold(now + (2 * self._refusal_s if self.rate < self._fast_until else SOON_S * self._tempo()))

    def _grow(self, now: float) -> None:
        """Raise the rate for the time since the last call, if a request had to wait for it."""
        assert self.rate is not None
        elapsed, self._grown_at = min(now - self._grown_at, max(0.1, 1 / self.rate)), now
        if now < self._hold_until or now - self._waited_at > max(0.1, 2 / self.rate):
            return
        fastest = min(FAST_GROWTH, 0.25 / self._refusal_s, max(self.rate, SLOW_GROWTH))
        if self.rate < self._fast_until:
            self.rate *= 1 + fastest * elapsed
        else:
            self.rate *= 1 + self._growth * elapsed
            self._growth = min(self._growth * 2 ** (elapsed / self._tempo()), fastest)

    def _tempo(self) -> float:
        """Return the seconds in which growth doubles: enough for some thirty answers."""
        return max(TEMPO_S, 30 / self.rate) if self.rate else TEMPO_S

    def _probe_gap(self, now: float) -> float:
        """Return the time between probes: a tenth of the outage so far, so that its end is noticed soon."""
        assert self.rate is not None
        closed_s = now - (self._closed_at or now)
        return min(max(self._refusal_s, 0.02, 0.5 / self.rate, 0.1 * closed_s), MAX_PROBE_GAP_S)

    def _reopen(self, now: float) -> None:
        assert self.rate is not None
        assert self._closed_at is not None
        if WINDOW_S / 4 < now - self._closed_at < 2 * WINDOW_S:  # not an outage: the rest of a time window
            since = max(self._opened_at, self._closed_at - WINDOW_S)
            measured = self._accepted.between(since, now) / (now - since)
            self._reference = min(max(measured, self.rate / 2), self.rate)
            self.rate, self._fast_until = HEADROOM * self._reference, 0.0
        self._closed_at = None
        self._next_at = self._grown_at = self._cut_at = self._opened_at = now
        self._num_refused = 0
        self._alarm.clear()
        self._start_growth(now)
