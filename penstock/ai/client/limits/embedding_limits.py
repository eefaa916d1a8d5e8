"""Limits of a server on the texts of an embedding call, learned from its refusals."""

from __future__ import annotations

NUM_REFUSALS = 3  # the estimate of tokens may be far off for one or two odd texts


class InputLimits:
    """Limits of one call. All calls of a process to one model share them, so they are learned once.

    >>> limits = InputLimits()
    >>> limits.accept(num_items=4, tokens=90)
    >>> for tokens in (200, 210, 190):
    ...     limits.refuse_text(tokens)
    >>> limits.cut(250), limits.cut(120)
    (90, None)
    """

    def __init__(self) -> None:
        self.max_items: int | None = None
        self._num_items = 0  # of the largest call that was accepted
        self._tokens = 0  # of the longest text that was accepted
        self._refused: list[int] = []  # tokens of the shortest texts that were refused

    @property
    def is_known(self) -> bool:
        """True if enough texts were refused as too long."""
        return len(self._refused) == NUM_REFUSALS

    def cut(self, tokens: int) -> int | None:
        """Return how many tokens of a too long text to send; None for a text that may be accepted."""
        is_too_long = self.is_known and tokens >= self._refused[-1] > self._tokens
        return self._tokens if is_too_long else None

    def accept(self, num_items: int, tokens: int) -> None:
        """Note a call that was accepted, with the tokens of its longest text."""
        self._num_items, self._tokens = max(self._num_items, num_items), max(self._tokens, tokens)

    def has_accepted(self, tokens: int) -> bool:
        return tokens <= self._tokens

    def refuse_text(self, tokens: int) -> None:
        """Note a text that was refused alone as too long, and accepted in part."""
        self._refused = sorted((*self._refused, tokens))[:NUM_REFUSALS]

    def refuse_call(self, num_items: int) -> None:
        """Note that the server refused a call and accepted its halves."""
        if num_items > self._num_items:
            self.max_items = max(self._num_items, 1)


_limits: dict[tuple[str, str | None], InputLimits] = {}


def input_limits(base_url: str | None, model: str | None) -> InputLimits:
    """Return the limits of a model on a server, or of a user's own model."""
    return InputLimits() if base_url is None else _limits.setdefault((base_url, model), InputLimits())


def forget_input_limits() -> None:
    _limits.clear()
