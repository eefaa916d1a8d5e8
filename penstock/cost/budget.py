"""Calls counted, and paid for out of a budget: reserved before a call is sent, settled by what it took.

    with spending(5.00) as account:          # dollars; None only counts
        df.write_parquet("out/")
    account.dollars, account.num_calls

``Purse`` has what a query may spend. A ``Till`` stands before one model: it knows its price and what its answers
usually cost. A ``Charge`` is one call's way through both.
"""

from __future__ import annotations

import asyncio
import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson

from penstock.ai.remote.limits.pacing import NO_CAPS, Caps
from penstock.ai.remote.limits.quota import Reservation
from penstock.ai.remote.usage import Usage, most_output, usage_in
from penstock.cache.ledger.open_ledgers import job_folder
from penstock.config import get_config
from penstock.cost.accounts import NANO, Account, CallRecord, accounting, current_account, current_row
from penstock.cost.prices import BATCH_SHARE, Price, millionths, price_of, unknown_price
from penstock.errors import BudgetSpentError, InvalidArgumentError

FIRST_OUTPUT_TOKENS = 1_000
"""What an answer is taken to have while nothing is known of those of a model and the call sets no limit."""

SCOUTS = 8
"""So many calls whose answers may be of any length are sent at once before some have come back."""

NUM_SURE = 20
"""After as many answers their costs are known well enough."""

LEAST_SHARE = 0.1
"""While fewer are known, calls by batch, which cannot wait for more, cost this share of a first guess at least."""


@contextmanager
def spending(budget: float | None = None) -> Iterator[Account]:
    """Count what the calls of the queries within take, and stop them before they cost more than ``budget`` dollars.

    All queries within share the budget. The one whose next call would pass it ends with ``BudgetSpentError``, once the
    calls that are under way are answered.

    >>> server = getfixture("model_server")
    >>> ps.set_provider("openai", base_url=server.openai_url, api_key="test")
    >>> with spending(0.01) as account:
    ...     answers = ps.from_pydict({"q": ["Hello there"]}).select(ps.prompt(ps.col("q"))).to_pydict()
    >>> account.num_calls, account.dollars < 0.01
    (1, True)
    """
    check_budget(budget)
    with accounting(Account(budget)) as account:
        yield account


def check_budget(budget: Any) -> None:
    """Refuse what is no amount of dollars."""
    is_number = isinstance(budget, int | float) and not isinstance(budget, bool)
    if budget is not None and not (is_number and 0 < budget < math.inf):
        raise InvalidArgumentError(f"budget={budget!r} is no amount: give dollars, a number above 0, such as 2.50.")


class Purse:
    """What a query may spend. Everything is done under one lock, and nothing waits while it is held."""

    def __init__(self, budget: float, before: tuple[int, int] = (0, 0)) -> None:
        self._budget = round(budget * NANO)
        self._lock = threading.Lock()
        self._num_calls, self._spent = before
        self._reserved = 0
        self._num_under_way = 0
        self._waiters: OrderedDict[_Waiter, None] = OrderedDict()
        self._error: BudgetSpentError | None = None

    async def reserve(self, charge: Charge, on_wait: Callable[[], None] | None = None) -> None:
        """Set aside what a call may cost, once there is room for it; calls are let through in the order they came.

        Where there is none and no call is under way that could leave some, the budget is spent. ``on_wait`` is called
        if there is none for now.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            if not self._waiters and self._has_taken(charge):
                return
            waiter = _Waiter(charge)
            self._waiters[waiter] = None
            self._pump()
        if on_wait is not None and not charge.is_reserved:
            on_wait()
        try:
            await waiter.future
        except BaseException:  # cancelled, or the budget is spent
            self._leave(waiter)
            raise

    def _leave(self, waiter: _Waiter) -> None:
        """Take a waiter out of the queue, and hand on what it was given meanwhile."""
        with self._lock:
            if not waiter.charge.is_reserved:
                self._waiters.pop(waiter, None)
                self._pump()
                return
        self.settle(waiter.charge, 0, is_call=False)

    def settle(self, charge: Charge, cost: int, *, is_call: bool) -> None:
        """Take what a call cost instead of what was set aside for it; ``is_call`` says that it was made."""
        with self._lock:
            charge.is_reserved = False
            charge.till.num_under_way -= 1
            self._num_under_way -= 1
            self._reserved -= charge.reserved
            self._spent += cost
            self._num_calls += is_call
            if is_call and not charge.is_unsure:
                charge.till.learn(charge, cost)
            if self._waiters:
                self._pump()

    def _has_taken(self, charge: Charge) -> bool:
        wanted = charge.till.expected_cost(charge, is_alone=not self._num_under_way)
        if wanted is None or self._spent + self._reserved + wanted > self._budget:
            charge.reserved = wanted or 0
            return False
        charge.reserved, charge.is_reserved = wanted, True
        self._reserved += wanted
        self._num_under_way += 1
        charge.till.num_under_way += 1
        return True

    def _pump(self) -> None:
        """Let through those who wait, as far as there is room. Fail them all if there never will be."""
        while self._waiters:
            waiter = next(iter(self._waiters))
            if self._has_taken(waiter.charge):
                del self._waiters[waiter]
                waiter.wake()
            elif self._num_under_way:
                return
            else:
                self._error = self._spent_error(waiter.charge)
                for each in self._waiters:
                    each.wake(self._error)
                self._waiters.clear()

    def _spent_error(self, charge: Charge) -> BudgetSpentError:
        is_kept = bool(job_folder() or get_config().cache_dir)
        kept = (
            "Run it again with resume=True and a larger budget: what is done is kept, and budget= is for one run"
            if is_kept
            else "Run it again with a larger budget; a write with resume=True, or cache_dir, keeps what is done"
        )
        told = (
            f"The budget of {dollars(self._budget)} is spent: {self._num_calls:,} calls were made for "
            f"{dollars(self._spent)}, and the next, to {charge.till.name}, may cost {dollars(charge.reserved)}. {kept}."
        )
        if not self._num_calls:
            told = (
                f"The budget of {dollars(self._budget)} does not cover the first call, to {charge.till.name}, which "
                f"may cost up to {dollars(charge.reserved)}: give {_remedy(charge)}a larger budget."
            )
        return BudgetSpentError(told, self._budget / NANO, self._spent / NANO, self._num_calls)


def _remedy(charge: Charge) -> str:
    """Return what makes a call cheaper, where its answer costs something."""
    if not charge.till.cost(Usage(0, FIRST_OUTPUT_TOKENS)):
        return ""
    if charge.most_output is not None:
        return f"a max_output_tokens= below {charge.most_output:,}, or "
    return f"max_output_tokens=, without which {FIRST_OUTPUT_TOKENS:,} are reckoned with, or "


def dollars(nanodollars: int) -> str:
    """Return an amount as people write it, as precise as it is small.

    >>> dollars(12_340_000_000), dollars(5_000_000), dollars(12_250), dollars(0)
    ('$12.34', '$0.005', '$0.00001225', '$0.00')
    """
    amount = nanodollars / NANO
    if amount >= 1 or not amount:
        return f"${amount:,.2f}"
    return "$" + f"{amount:.9f}".rstrip("0")


class _Waiter:
    __slots__ = ("_loop", "charge", "future")

    def __init__(self, charge: Charge) -> None:
        self.charge = charge
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self._loop.create_future()

    def wake(self, error: BaseException | None = None) -> None:
        self._loop.call_soon_threadsafe(self._set, error)

    def _set(self, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


_purses: weakref.WeakKeyDictionary[Account, Purse] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _purse_of(account: Account) -> Purse | None:
    if account.budget is None:
        return None
    with _lock:
        if account not in _purses:
            _purses[account] = Purse(account.budget, account.before)
        return _purses[account]


class Till:
    """Where the calls of one client are paid for. Its price is known where there is a budget.

    ``is_for_batch``: a sample makes them, one by one and at that price, in place of calls by batch.
    """

    def __init__(
        self,
        account: Account,
        provider: str,
        model: str,
        price: Price | None = None,
        caps: Caps = NO_CAPS,
        is_for_batch: bool = False,
    ) -> None:
        self.name = f"{provider} ({model})"
        self.keeps_calls = account.keeps_calls
        self.max_parts: int | None = None  # inputs that may go together in a call
        self.num_under_way = 0  # under the lock of the purse, as what is learned is
        self._account, self._key = account, (provider, model)
        self._caps = (caps.max_concurrency, caps.requests_per_minute, caps.tokens_per_minute)
        self._price = price or price_of(provider, model)
        self._purse = _purse_of(account)
        if self._purse is not None and self._price is None:
            raise unknown_price(provider, model)
        self._usual = Reservation()
        self._num_known = 0
        self._is_for_batch = is_for_batch

    @staticmethod
    def open(
        provider: str, model: str, price: Price | None = None, caps: Caps = NO_CAPS, is_for_batch: bool = False
    ) -> Till | None:
        """Return the till of a model, None where nothing is counted."""
        account = current_account()
        return None if account is None else Till(account, provider, model, price, caps, is_for_batch)

    async def reserve(self, body: Mapping[str, Any], tokens: int, parts: Sequence[int] = ()) -> Charge:
        """Wait until a call may be paid for. ``tokens`` is what its input is estimated to have."""
        return await self._reserved(Charge(self, tokens, parts), body)

    async def reserve_in_batch(
        self, body: Mapping[str, Any], tokens: int, on_wait: Callable[[], None], parts: Sequence[int] = ()
    ) -> Charge:
        """Do what ``reserve`` does for a call that goes by a batch, of which as many go at once as can be paid for.

        ``on_wait`` is called where it has to wait: that ends once batches have, so none must wait for it.
        """
        charge = Charge(self, tokens, parts)
        charge.is_in_batch = True
        return await self._reserved(charge, body, on_wait)

    async def _reserved(
        self, charge: Charge, body: Mapping[str, Any], on_wait: Callable[[], None] | None = None
    ) -> Charge:
        if self._purse is not None:
            charge.input_cost = self.cost(Usage(charge.tokens, 0))
            if self._num_known < NUM_SURE:
                charge.most_output = most_output(body)
            await self._purse.reserve(charge, on_wait)
        return charge

    def settle(self, charge: Charge) -> None:
        """Write down what a call took, and give back what was set aside for it and not needed."""
        is_call = charge.usage is not None or charge.is_unsure
        cost = charge.reserved if charge.is_unsure else self.cost(charge.usage) if charge.usage is not None else 0
        if charge.is_reserved and self._purse is not None:
            self._purse.settle(charge, cost, is_call=is_call)
        if is_call:
            usage = charge.usage or Usage(charge.tokens, 0)
            self._account.count(self._key, *usage, None if self._price is None else cost, charge.is_unsure)
            if self.keeps_calls:
                self._keep(usage, charge, tuple(charge.parts))

    def keep(self, usage: Usage | None) -> None:
        """Take note of an answer that a ledger had, and what it took where that is known."""
        self._account.count_kept(self._key)
        if self.keeps_calls:
            self._keep(usage or Usage(0, 0))

    def keep_inputs(self, tokens: Sequence[int]) -> None:
        """Take note of inputs whose vectors a ledger had, each of about so many tokens."""
        self._account.count_kept(self._key, len(tokens))
        if self.keeps_calls:
            for each in tokens:
                self._keep(Usage(each, 0), parts=(each,))

    def cost(self, usage: Usage) -> int:
        """Return what tokens cost, in billionths of a dollar; nothing where the price is not known."""
        return 0 if self._price is None else math.ceil(1000 * millionths(self._price, *usage))

    def expected_cost(self, charge: Charge, is_alone: bool) -> int | None:
        """Return what a call will hardly pass; None says to wait for the answers of others, who show what they cost.

        ``is_alone``: nothing is under way to wait for.
        """
        if self._num_known >= NUM_SURE or (is_alone and self._num_known):
            return self._usual.estimate(charge.input_cost)
        most = charge.most_output
        guessed = charge.input_cost + self.cost(Usage(0, FIRST_OUTPUT_TOKENS if most is None else most))
        if charge.is_in_batch and self._num_known:  # a few that happen to be short must not empty the purse
            known = self._usual.estimate(charge.input_cost) * (1 + NUM_SURE / self._num_known)
            guessed = min(guessed, math.ceil(max(known, LEAST_SHARE * guessed)))
        elif not charge.is_in_batch and most is None and self.num_under_way >= SCOUTS:
            return None
        return guessed if most is not None else max(guessed, self._usual.estimate(charge.input_cost))

    def learn(self, charge: Charge, cost: int) -> None:
        self._num_known += 1
        self._usual.learn(charge.input_cost, cost)

    def _keep(self, usage: Usage, charge: Charge | None = None, parts: tuple[int, ...] = ()) -> None:
        """Keep a call with all that a projection needs; one without a charge was answered by a ledger."""
        share = BATCH_SHARE if self._is_for_batch else 1
        self._account.keep(
            CallRecord(
                *self._key,
                *usage,
                nanodollars=None if self._price is None else math.ceil(share * self.cost(usage)),
                latency_s=None if charge is None else charge.latency_s,
                is_kept=charge is None,
                row=current_row(),
                parts=parts,
                max_parts=self.max_parts,
                max_at_once=None if charge is None else charge.max_at_once,
                caps=self._caps,
                is_for_batch=self._is_for_batch,
            )
        )


class Charge:
    """One call on its way: what was set aside for it, and what became of it."""

    __slots__ = (
        "input_cost",
        "is_in_batch",
        "is_reserved",
        "is_unsure",
        "latency_s",
        "max_at_once",
        "most_output",
        "parts",
        "reserved",
        "till",
        "tokens",
        "usage",
    )

    def __init__(self, till: Till, tokens: int, parts: Sequence[int] = ()) -> None:
        self.till, self.tokens, self.parts = till, tokens, parts
        self.input_cost = self.reserved = 0
        self.is_reserved = self.is_unsure = self.is_in_batch = False
        self.most_output: int | None = None
        self.max_at_once: int | None = None
        self.usage: Usage | None = None
        self.latency_s: float | None = None

    def sent(self) -> None:
        """It is on its way; from now on it may cost something, whatever is heard of it."""
        self.is_unsure = True

    def answered(self, body: Any, latency_s: float) -> None:
        """An answer came; one that does not say what it took is charged as estimated."""
        self.took(usage_in(body), latency_s)

    def took(self, usage: Usage | None, latency_s: float) -> None:
        """An answer came, and was read before."""
        self.is_unsure = False
        self.latency_s = latency_s
        self.usage = usage or Usage(self.tokens, 0)

    def refused(self, raw: bytes) -> None:
        """The server did not do it, which costs nothing unless it says so."""
        self.is_unsure = False
        if b'"usage' in raw:
            try:
                self.usage = usage_in(orjson.loads(raw))
            except orjson.JSONDecodeError:
                self.usage = None

    def never_arrived(self) -> None:
        """Nobody took the connection."""
        self.is_unsure = False
