"""Distributions of the time that a server takes to answer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from random import Random

P99 = 2.3263478740408408  # of the standard normal distribution


class Latency(ABC):
    """A distribution of seconds."""

    @abstractmethod
    def draw(self, random: Random) -> float: ...


@dataclass(frozen=True)
class Fixed(Latency):
    seconds: float

    def draw(self, random: Random) -> float:
        return self.seconds


@dataclass(frozen=True)
class Uniform(Latency):
    low: float
    high: float

    def draw(self, random: Random) -> float:
        return random.uniform(self.low, self.high)


@dataclass(frozen=True)
class LogNormal(Latency):
    """Most values near the median and a few far above, as with model APIs.

    >>> draws = sorted(LogNormal(median=0.5, p99=4.0).draw(Random(number)) for number in range(2001))
    >>> 0.45 < draws[1000] < 0.55, 3.0 < draws[1980] < 5.0
    (True, True)
    """

    median: float
    p99: float

    def draw(self, random: Random) -> float:
        return random.lognormvariate(math.log(self.median), math.log(self.p99 / self.median) / P99)


def as_latency(latency: Latency | float) -> Latency:
    return latency if isinstance(latency, Latency) else Fixed(latency)
