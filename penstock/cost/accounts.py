"""The account of a query: what its model calls used and cost.

A caller (``cost/budget.py``) writes into the account in force. A runner (``engine/runners/``) puts an account in
force in its workers and adds up what they wrote. Neither knows the other. Without an account nothing is counted.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields

NANO = 1_000_000_000  # dollars are added up in whole billionths, so that sums are exact


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call to a model, as it was paid for; ``is_kept``: it was taken from a ledger, and is not paid again.

    Made where each call is kept, for a sample.

    ``row`` is the same for the calls that one row makes. ``parts`` are the weights of the inputs that went together, as
    texts do that are embedded. ``max_at_once`` is how many calls the limits of the model let be under way.
    """

    provider: str
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    nanodollars: int | None = None  # None: the price is not known
    latency_s: float | None = None
    is_kept: bool = False
    row: int | None = None
    parts: tuple[int, ...] = ()
    max_parts: int | None = None  # as many may go together
    max_at_once: int | None = None
    caps: tuple[int | None, float | None, float | None] = (None, None, None)
    is_for_batch: bool = False  # the sample made it, by itself, in place of one by batch, whose price it has


@dataclass(slots=True)
class ModelUse:
    """The calls to one model added up. Tokens and dollars are those of calls that were made."""

    provider: str
    model: str
    num_calls: int = 0
    num_kept: int = 0  # taken from a ledger
    num_unpriced: int = 0
    num_unsure: int = 0  # broken off: counted at what they were expected to cost
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    nanodollars: int = 0

    def join(self, other: ModelUse) -> None:
        for each in fields(self)[2:]:
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    @property
    def dollars(self) -> float | None:
        """What the calls cost, None where the price is not known."""
        return None if self.num_unpriced else self.nanodollars / NANO


@dataclass(frozen=True, slots=True)
class Entries:
    """What was written into an account, to be carried to another."""

    uses: tuple[ModelUse, ...] = ()
    calls: tuple[CallRecord, ...] = ()


class Account:
    """What a query has used, by model. With ``keeps_calls`` each call is kept, too. Safe on any thread.

    >>> account = Account()
    >>> account.count(("openai", "gpt-5-mini"), 1_000, 50, 0, nanodollars=350_000)
    >>> account.count_kept(("openai", "gpt-5-mini"))
    >>> account.num_calls, account.num_kept, account.dollars
    (1, 1, 0.00035)
    """

    def __init__(
        self, budget: float | None = None, keeps_calls: bool = False, name: str = "", before: tuple[int, int] = (0, 0)
    ) -> None:
        self.name = name or uuid.uuid4().hex
        self.budget = budget  # dollars
        self.before = before  # calls and billionths of dollars that were spent of the budget elsewhere
        self.keeps_calls = keeps_calls
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
        is_unsure: bool = False,
    ) -> None:
        """Add a call to a model, by provider and name. Plain arguments: this is done for every call."""
        with self._lock:
            use = self._uses.get(model)
            if use is None:
                use = self._uses[model] = ModelUse(*model)
            use.num_calls += 1
            use.num_unsure += is_unsure
            use.input_tokens += input_tokens
            use.output_tokens += output_tokens
            use.cached_tokens += cached_tokens
            if nanodollars is None:
                use.num_unpriced += 1
            else:
                use.nanodollars += nanodollars

    def count_kept(self, model: tuple[str, str], num_kept: int = 1) -> None:
        """Add calls that a ledger answered."""
        with self._lock:
            self._uses.setdefault(model, ModelUse(*model)).num_kept += num_kept

    def keep(self, call: CallRecord) -> None:
        """Keep a call that was counted, where calls are kept."""
        with self._lock:
            self.calls.append(call)

    def take(self) -> Entries | None:
        """Return what was written since the last time, None if nothing was; it is for another account then."""
        if not self._uses:
            return None
        with self._lock:
            uses, self._uses = self._uses, {}
            calls, self.calls = self.calls, []
        return Entries(tuple(uses.values()), tuple(calls))

    def enter(self, entries: Entries) -> None:
        """Add what another account took down."""
        with self._lock:
            for use in entries.uses:
                key = use.provider, use.model
                self._uses.setdefault(key, ModelUse(*key)).join(use)
            self.calls += entries.calls

    @property
    def models(self) -> list[ModelUse]:
        with self._lock:
            return list(self._uses.values())

    @property
    def num_calls(self) -> int:
        return sum(use.num_calls for use in self.models)

    @property
    def nanodollars(self) -> int:
        """What calls cost whose price is known."""
        return sum(use.nanodollars for use in self.models)

    @property
    def num_kept(self) -> int:
        return sum(use.num_kept for use in self.models)

    @property
    def input_tokens(self) -> int:
        return sum(use.input_tokens for use in self.models)

    @property
    def output_tokens(self) -> int:
        return sum(use.output_tokens for use in self.models)

    @property
    def dollars(self) -> float | None:
        """What all calls cost, None where a price is not known."""
        return total(use.dollars for use in self.models)


def total(amounts: Iterable[float | None]) -> float | None:
    """Return a sum, None where a part of it is not known."""
    known = list(amounts)
    return None if None in known else sum(amount for amount in known if amount is not None)


_account: ContextVar[Account | None] = ContextVar("penstock_account", default=None)
_inherited: Account | None = None  # of the driver that this process works for

_row: ContextVar[int | None] = ContextVar("penstock_row", default=None)
_rows = itertools.count()


@contextmanager
def accounting(account: Account) -> Iterator[Account]:
    """Have the calls of the queries within written into an account."""
    token = _account.set(account)
    try:
        yield account
    finally:
        _account.reset(token)


def current_account() -> Account | None:
    """Return the account that calls made here are written into."""
    return _account.get() or _inherited


def is_sampling() -> bool:
    """Whether calls are made for a sample, which nobody waits a day for."""
    account = current_account()
    return account is not None and account.keeps_calls


@dataclass(frozen=True, slots=True)
class Terms:
    """What a worker must know of an account to keep a part of it."""

    name: str
    budget: float | None
    keeps_calls: bool
    before: tuple[int, int] = (0, 0)

    @staticmethod
    def here() -> Terms | None:
        account = current_account()
        if account is None:
            return None
        return Terms(account.name, account.budget, account.keeps_calls, (account.num_calls, account.nanodollars))


def inherit_account(terms: Terms | None) -> None:
    """Have the calls of this process, which works for another, written down for that one."""
    global _inherited
    if terms is None:
        _inherited = None
    elif _inherited is None or _inherited.name != terms.name:
        _inherited = Account(terms.budget, terms.keeps_calls, terms.name, terms.before)


def taken_entries() -> Entries | None:
    """Return what a worker has to bring home since the last time."""
    return None if _inherited is None else _inherited.take()


def begin_row() -> None:
    """Say that the calls made from here on, in this context, are those of another row."""
    _row.set(next(_rows))


def current_row() -> int | None:
    return _row.get()
