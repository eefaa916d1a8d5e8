"""The account of a query: the tokens and dollars that its model calls used.

``cost/budget.py`` records calls in the current account. Without an account nothing is counted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields

NANO = 1_000_000_000  # dollars are added up in whole billionths, so that sums are exact


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call to a model, recorded for a sample.

    ``inputs`` are the weights of the inputs sent together in one call, such as texts to embed; a call may have
    ``max_inputs``. ``max_at_once`` is the number of concurrent calls that the limiter allowed.
    """

    provider: str
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    nanodollars: int | None = None  # None: the price is not known
    latency_s: float | None = None
    inputs: tuple[int, ...] = ()
    max_inputs: int | None = None
    max_at_once: int | None = None
    caps: tuple[int | None, float | None, float | None] = (None, None, None)
    is_for_batch: bool = False  # made alone for the sample in place of a batch call, and counted at the batch price


@dataclass(slots=True)
class ModelUse:
    """The calls to one model added up. Tokens and dollars exclude calls that a ledger answered."""

    provider: str
    model: str
    num_calls: int = 0
    num_cached: int = 0  # answered by a ledger
    num_retried: int = 0  # attempts that failed and were repeated
    num_unpriced: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    nanodollars: int = 0

    def add(self, other: ModelUse) -> None:
        for each in fields(self)[2:]:
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    @property
    def dollars(self) -> float | None:
        """The cost of the calls, or None if the price is not known."""
        return None if self.num_unpriced else self.nanodollars / NANO


class Account:
    """The usage and cost of a query, by model. With ``is_sample`` it also records each call. Thread-safe.

    Unless ``is_exact``, it counts answered calls only, not calls that are broken off.

    >>> account = Account()
    >>> account.count(("openai", "gpt-5-mini"), 1_000, 50, 0, nanodollars=350_000)
    >>> account.count_cached(("openai", "gpt-5-mini"))
    >>> account.num_calls, account.num_cached, account.dollars
    (1, 1, 0.00035)
    """

    def __init__(self, budget: float | None = None, is_sample: bool = False, is_exact: bool = True) -> None:
        self.budget = budget  # dollars
        self.is_sample = is_sample
        self.is_exact = is_exact
        self.calls: list[CallRecord] = []
        self._uses: dict[tuple[str, str], ModelUse] = {}
        self._lock = threading.Lock()

    def count(
        self,
        model: tuple[str, str],
        input_tokens: int,
        output_tokens: int,
        cached_tokens: int,
        nanodollars: int | None,
    ) -> None:
        """Add a call to a model, named by provider and model. Runs for every call, so the arguments are plain."""
        with self._lock:
            use = self._uses.get(model)
            if use is None:
                use = self._uses[model] = ModelUse(*model)
            use.num_calls += 1
            use.input_tokens += input_tokens
            use.output_tokens += output_tokens
            use.cached_tokens += cached_tokens
            if nanodollars is None:
                use.num_unpriced += 1
            else:
                use.nanodollars += nanodollars

    def count_cached(self, model: tuple[str, str], num_cached: int = 1) -> None:
        """Add calls that a ledger answered."""
        with self._lock:
            self._uses.setdefault(model, ModelUse(*model)).num_cached += num_cached

    def count_retried(self, model: tuple[str, str]) -> None:
        """Add an attempt that failed and is repeated."""
        with self._lock:
            self._uses.setdefault(model, ModelUse(*model)).num_retried += 1

    def record(self, call: CallRecord) -> None:
        """Record a call of a sample, besides counting it."""
        with self._lock:
            self.calls.append(call)

    @property
    def models(self) -> list[ModelUse]:
        with self._lock:
            return list(self._uses.values())

    @property
    def num_calls(self) -> int:
        return sum(use.num_calls for use in self.models)

    @property
    def num_cached(self) -> int:
        return sum(use.num_cached for use in self.models)

    @property
    def input_tokens(self) -> int:
        return sum(use.input_tokens for use in self.models)

    @property
    def output_tokens(self) -> int:
        return sum(use.output_tokens for use in self.models)

    @property
    def dollars(self) -> float | None:
        """The cost of all calls, or None if a price is not known."""
        return total(use.dollars for use in self.models)


def total(amounts: Iterable[float | None]) -> float | None:
    """Return a sum, or None if one of the amounts is not known."""
    known = list(amounts)
    return None if None in known else sum(amount for amount in known if amount is not None)


_account: ContextVar[Account | None] = ContextVar("penstock_account", default=None)


@contextmanager
def accounting(account: Account) -> Iterator[Account]:
    """Record the calls of the queries within in an account."""
    token = _account.set(account)
    try:
        yield account
    finally:
        _account.reset(token)


def make_current(account: Account) -> None:
    """Record the calls made in the current context in an account."""
    _account.set(account)


def current_account() -> Account | None:
    """Return the account that records the calls made here."""
    return _account.get()


def is_sampling() -> bool:
    """Return whether the calls made here are for a sample, which must not wait a day for a batch."""
    account = current_account()
    return account is not None and account.is_sample
