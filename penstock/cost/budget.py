"""Count model calls, and pay for them out of a budget: reserve before a call is sent, settle after it.

    with spending(5.00) as account:          # dollars; None only counts
        df.write_parquet("out/")
    account.dollars, account.num_calls

``Budget`` holds the money of a query. ``Billing`` counts the calls of one client: it knows the model's price and the
usual cost of its answers. ``Charge`` is one call.
"""

from __future__ import annotations

import asyncio
import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from penstock.cost.accounts import NANO, Account, CallRecord, accounting
from penstock.cost.prices import BATCH_SHARE, Price, millionths, price_of, unknown_price
from penstock.cost.usage import Usage, UsageEstimate, max_output
from penstock.errors import BudgetSpentError, InvalidArgumentError

FIRST_OUTPUT_TOKENS = 1_000
"""The assumed tokens of an answer while no answer of the model is known and the call sets no limit."""

SCOUTS = 8
"""The most calls without a limit on their answers that may run while few answers are known."""

NUM_SURE = 20
"""The number of answers after which their usual cost is known well enough."""


@contextmanager
def spending(budget: float | None = None) -> Iterator[Account]:
    """Count the model calls of the queries within, and stop them before they cost more than ``budget`` dollars.

    All queries within share the budget. The query whose next call would exceed it fails with ``BudgetSpentError``,
    after its running calls are answered.

    >>> with spending(0.01) as account:
    ...     answers = ps.from_pydict({"q": ["Hello there"]}).select(ps.prompt(ps.col("q"))).to_pydict()
    >>> account.num_calls, account.dollars < 0.01
    (1, True)
    """
    is_number = isinstance(budget, int | float) and not isinstance(budget, bool)
    if budget is not None and not (is_number and 0 < budget < math.inf):
        raise InvalidArgumentError(f"budget={budget!r} is not an amount: give dollars, a number above 0, such as 2.50.")
    with accounting(Account(budget)) as account:
        yield account


class Budget:
    """The money of a query, with a queue of calls that wait for some. Thread-safe; never blocks under its lock."""

    def __init__(self, dollars: float) -> None:
        self._limit = round(dollars * NANO)
        self._lock = threading.Lock()
        self._num_calls = self._spent = 0
        self._reserved = 0
        self._num_under_way = 0
        self._queue: OrderedDict[_QueuedCharge, None] = OrderedDict()
        self._error: BudgetSpentError | None = None

    async def reserve(self, charge: Charge) -> None:
        """Set aside the estimated cost of a call as soon as the budget covers it, in order of arrival.

        If the budget does not cover it, and no running call could return part of its reservation, the budget is spent.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            if (charge.is_urgent or not self._queue) and self._try_reserve(charge):
                return
            queued = _QueuedCharge(charge)
            self._queue[queued] = None
            self._serve_queue()
        if charge.on_wait is not None and not charge.is_reserved:
            charge.on_wait()
        try:
            await queued.future
        except BaseException:  # cancelled, or the budget is spent
            self._leave(queued)
            raise

    def set_limit(self, dollars: float) -> None:
        """Allow a new total, which includes what is spent. Calls that wait for money proceed if it covers them."""
        with self._lock:
            self._limit = round(dollars * NANO)
            self._serve_queue()

    def _leave(self, queued: _QueuedCharge) -> None:
        """Remove a charge from the queue, and give back its reservation if it got one meanwhile."""
        with self._lock:
            if not queued.charge.is_reserved:
                self._queue.pop(queued, None)
                self._serve_queue()
                return
        self.settle(queued.charge, 0, is_call=False)

    def settle(self, charge: Charge, cost: int, *, is_call: bool) -> None:
        """Replace the reservation of a call by its cost; ``is_call`` is False if the call was not made."""
        with self._lock:
            charge.is_reserved = False
            charge.billing.num_under_way -= 1
            self._num_under_way -= 1
            self._reserved -= charge.reserved
            self._spent += cost
            self._num_calls += is_call
            if is_call and not charge.is_unsure:
                charge.billing.learn(charge, cost)
            self._serve_queue()

    def _try_reserve(self, charge: Charge) -> bool:
        cost = charge.billing.expected_cost(charge, is_alone=not self._num_under_way)
        if cost is None or self._spent + self._reserved + cost > self._limit:
            charge.reserved = cost or 0
            if not charge.is_urgent:
                return False
        else:
            charge.reserved = cost
        charge.is_reserved = True
        self._reserved += charge.reserved
        self._num_under_way += 1
        charge.billing.num_under_way += 1
        return True

    def _serve_queue(self) -> None:
        """Let calls proceed while the budget covers them. Fail all of them if it never will."""
        while self._queue:
            queued = next(iter(self._queue))
            if self._try_reserve(queued.charge):
                del self._queue[queued]
                queued.wake()
            elif self._num_under_way:
                return
            else:
                self._error = self._spent_error(queued.charge)
                for each in self._queue:
                    each.wake(self._error)
                self._queue.clear()

    def _spent_error(self, charge: Charge) -> BudgetSpentError:
        message = (
            f"The budget of {dollars(self._limit)} is spent: {self._num_calls:,} calls cost {dollars(self._spent)}, "
            f"and the next, to {charge.billing.name}, may cost {dollars(charge.reserved)}. Run it again with a larger "
            "budget. A write with resume=True, or cache_dir, keeps finished calls, and budget= is for one run."
        )
        if not self._num_calls:
            message = (
                f"The budget of {dollars(self._limit)} does not cover the first call, to {charge.billing.name}, which "
                f"may cost up to {dollars(charge.reserved)}: give {_remedy(charge)}a larger budget."
            )
        return BudgetSpentError(message, self._limit / NANO, self._spent / NANO, self._num_calls)


def _remedy(charge: Charge) -> str:
    """Return how to make a call cheaper, if its answer costs something."""
    if not charge.billing.cost(Usage(0, FIRST_OUTPUT_TOKENS)):
        return ""
    if charge.max_output is not None:
        return f"a max_output_tokens= below {charge.max_output:,}, or "
    return f"max_output_tokens= (without it {FIRST_OUTPUT_TOKENS:,} are assumed), or "


def dollars(nanodollars: int) -> str:
    """Format an amount, with more digits the smaller it is.

    >>> dollars(12_340_000_000), dollars(5_000_000), dollars(12_250), dollars(0)
    ('$12.34', '$0.005', '$0.00001225', '$0.00')
    """
    amount = nanodollars / NANO
    if amount >= 1 or not amount:
        return f"${amount:,.2f}"
    return "$" + f"{amount:.9f}".rstrip("0")


class _QueuedCharge:
    """A charge that waits for money, on any event loop."""

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


_budgets: weakref.WeakKeyDictionary[Account, Budget] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _budget_of(account: Account) -> Budget | None:
    if account.budget is None:
        return None
    with _lock:
        if account not in _budgets:
            _budgets[account] = Budget(account.budget)
        return _budgets[account]


def set_budget(account: Account, dollars: float) -> None:
    """Change the budget of an account whose queries run. Raises InvalidArgumentError if it has none."""
    if (budget := _budget_of(account)) is None:
        raise InvalidArgumentError("The query runs without a budget.")
    account.budget = dollars
    budget.set_limit(dollars)


class Billing:
    """Count the calls of one client in an account, and pay for them where the account has a budget.

    ``caps`` are the user's limits on concurrent calls, requests and tokens a minute. ``is_for_batch`` means that a
    sample makes batch calls one by one, and records them at the batch price.
    """

    def __init__(
        self,
        account: Account,
        provider: str,
        model: str,
        price: Price | None = None,
        caps: tuple[int | None, float | None, float | None] = (None, None, None),
        is_for_batch: bool = False,
    ) -> None:
        self.name = f"{provider} ({model})"
        self.is_sample, self.is_exact = account.is_sample, account.is_exact
        self.max_inputs: int | None = None  # inputs of one call
        self.num_under_way = 0  # guarded by the lock of the budget
        self._account, self._key, self._caps = account, (provider, model), caps
        self._price = price or price_of(provider, model)
        self._budget = _budget_of(account)
        if self._budget is not None and self._price is None:
            raise unknown_price(provider, model)
        self._usual = UsageEstimate()
        self._num_known = 0
        self._is_for_batch = is_for_batch

    async def reserve(
        self,
        body: Mapping[str, Any],
        tokens: int,
        inputs: Sequence[int] = (),
        on_wait: Callable[[], None] | None = None,
        *,
        is_urgent: bool = False,
    ) -> Charge:
        """Wait until the budget covers a call. ``tokens`` is the estimated size of all its inputs, ``inputs`` the size
        of each.

        A batch call gives ``on_wait``, which runs if the call must wait. The call then waits for another batch to end,
        so no batch may wait for this call.
        """
        charge = Charge(self, tokens, inputs, on_wait, is_urgent=is_urgent)
        if self._budget is not None:
            charge.input_cost = self.cost(Usage(tokens, 0))
            if self._num_known < NUM_SURE:
                charge.max_output = max_output(body)
            await self._budget.reserve(charge)
        return charge

    def settle(self, charge: Charge) -> None:
        """Record the use of a call, and return the rest of its reservation to the budget."""
        is_call = charge.usage is not None or charge.is_unsure
        cost = charge.reserved if charge.is_unsure else self.cost(charge.usage) if charge.usage is not None else 0
        if charge.is_reserved and self._budget is not None:
            self._budget.settle(charge, cost, is_call=is_call)
        if is_call:
            usage = charge.usage or Usage(charge.tokens, 0)
            self._account.count(self._key, *usage[:3], None if self._price is None else cost)
            if self.is_sample:
                self.record(usage, tuple(charge.inputs), charge.latency_s, charge.max_at_once)

    def sent(self) -> None:
        """Do nothing: without a budget, calls without an answer are not counted."""

    failed = sent

    def answered(self, usage: Usage) -> None:
        """Count a call that was answered. Runs for every call of most queries."""
        self._account.count(self._key, *usage[:3], None if self._price is None else self.cost(usage))

    def count_retried(self) -> None:
        """Count an attempt that failed and is repeated."""
        self._account.count_retried(self._key)

    def count_cached(self, num_answers: int = 1) -> None:
        self._account.count_cached(self._key, num_answers)

    def count_cached_inputs(self, tokens: Sequence[int]) -> None:
        """Count inputs whose vectors a ledger had, given the estimated tokens of each."""
        self._account.count_cached(self._key, len(tokens))
        if self.is_sample:
            for each in tokens:
                self.record(Usage(each, 0), (each,))

    def cost(self, usage: Usage) -> int:
        """Return the cost of tokens in billionths of a dollar; 0 if the price is not known."""
        return 0 if self._price is None else math.ceil(1000 * millionths(self._price, *usage))

    def expected_cost(self, charge: Charge, is_alone: bool) -> int | None:
        """Return a cost that the call will rarely exceed; None to wait until other answers show their cost.

        ``is_alone`` means that no call is under way to wait for.
        """
        usual = self._usual.estimate(charge.input_cost)
        if self._num_known >= NUM_SURE or (is_alone and self._num_known):
            return usual
        if charge.max_output is not None:
            return charge.input_cost + self.cost(Usage(0, charge.max_output))
        if charge.on_wait is None and self.num_under_way >= SCOUTS:  # batch calls do not wait for others
            return None
        return max(usual, charge.input_cost + self.cost(Usage(0, FIRST_OUTPUT_TOKENS)))

    def learn(self, charge: Charge, cost: int) -> None:
        self._num_known += 1
        self._usual.learn(charge.input_cost, cost)

    def record(
        self,
        usage: Usage,
        inputs: tuple[int, ...] = (),
        latency_s: float | None = None,
        max_at_once: int | None = None,
    ) -> None:
        """Record a call with everything that an estimate needs."""
        share = BATCH_SHARE if self._is_for_batch else 1
        self._account.record(
            CallRecord(
                *self._key,
                *usage[:3],
                nanodollars=None if self._price is None else math.ceil(share * self.cost(usage)),
                latency_s=latency_s,
                inputs=inputs,
                max_inputs=self.max_inputs,
                max_at_once=max_at_once,
                caps=self._caps,
                is_for_batch=self._is_for_batch,
            )
        )


@dataclass(slots=True, eq=False)
class Charge:
    """One call: its reservation, and its outcome. A charge without an outcome costs nothing."""

    billing: Billing
    tokens: int
    inputs: Sequence[int] = ()
    on_wait: Callable[[], None] | None = None
    input_cost: int = 0
    reserved: int = 0
    is_reserved: bool = False
    is_unsure: bool = False
    max_output: int | None = None
    max_at_once: int | None = None
    usage: Usage | None = None
    latency_s: float | None = None
    is_urgent: bool = False  # never waits for money: other calls wait for its outcome while they hold reservations

    def sent(self) -> None:
        """Mark the call as sent: until its outcome is known, it counts at its estimated cost."""
        self.is_unsure = True

    def answered(self, usage: Usage) -> None:
        """Record what an answer used."""
        self.is_unsure = False
        self.usage = usage

    def has_answer(self, latency_s: float | None) -> None:
        """Record the end of the call. If another call brought its answer, the estimated input counts."""
        if self.usage is None:
            self.answered(Usage(self.tokens, 0))
        self.latency_s = latency_s

    def failed(self) -> None:
        """Mark the call as refused, or as never received: it costs nothing."""
        self.is_unsure = False
