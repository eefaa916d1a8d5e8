"""The options of ``func``, ``cls``, ``method`` and ``map_batches``: a table that checks them, and the parts of a spec
that they become.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypedDict, TypeVar, cast, get_args

from penstock.config import parse_bytes
from penstock.errors import InvalidArgumentError, PenstockError, check_choice, did_you_mean
from penstock.events.tracebacks import trim_traceback
from penstock.expr.udf import BatchFormat, BatchLimits, BatchSize, MaxErrors, OnError, Policy
from penstock.storage.storage_options import StoreSettings
from penstock.udf.option_spellings import in_our_words, spelling_hint

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])
Rule = tuple[Callable[[Any], bool], str]  # a check of a value, and the message if it fails


class ClsOptions(TypedDict, total=False):
    """The options of ``cls``."""

    cpus: float | None
    gpus: float
    memory: int | str | None
    concurrency: int | None
    use_process: bool | None
    max_retries: int | None
    retry_on: Any
    on_error: OnError | None
    max_errors: MaxErrors
    timeout: float | None
    cache: bool
    version: str | None
    ray_options: dict[str, Any] | None


class FuncOptions(ClsOptions, total=False):
    """The options of ``func`` and ``method``."""

    return_dtype: Any
    unnest: bool


class BatchFuncOptions(FuncOptions, total=False):
    """The options of ``func.batch`` and ``method.batch``."""

    batch_size: BatchSize
    max_batch_bytes: int | str | None
    max_batch_tokens: int | None
    split_on: Any


class WorkerOptions(TypedDict, total=False):
    """The options of verbs that run a function in workers; ``map_batches`` has more."""

    compute: Any
    concurrency: int | tuple[int, int] | None
    fn_args: Iterable[Any]
    fn_kwargs: Mapping[str, Any] | None
    fn_constructor_args: Iterable[Any]
    fn_constructor_kwargs: Mapping[str, Any] | None
    cpus: float | None
    gpus: float | None
    memory: int | str | None
    max_retries: int
    retry_on: Any
    on_error: OnError
    max_errors: MaxErrors
    timeout: float | None
    use_process: bool | None
    cache: bool
    ray_options: dict[str, Any] | None


class RowOptions(WorkerOptions, total=False):
    """The options of ``map``, ``flat_map`` and ``filter``."""

    batch_size: BatchSize


class BatchOptions(RowOptions, total=False):
    """The options of ``map_batches``."""

    batch_format: BatchFormat
    zero_copy_batch: bool | None
    max_batch_bytes: int | str | None
    max_batch_tokens: int | None
    split_on: type[BaseException] | tuple[type[BaseException], ...] | None


class GroupOptions(WorkerOptions, total=False):
    """The options of ``map_groups``: calls work as for a row, and the function sees a group as a batch."""

    batch_format: BatchFormat
    zero_copy_batch: bool | None


DEFAULTS = {
    "batch_size": "auto", "cache": False, "gpus": 0, "ignore_corrupt_files": False, "infer_schema": True,
    "max_errors": "auto", "mode": "create", "resume": False, "unnest": False,
}  # fmt: skip
"""The defaults of shared options; None for others."""
CALL_OPTIONS = tuple(ClsOptions.__annotations__)
BATCH_OPTIONS = ("max_batch_bytes", "max_batch_tokens", "split_on")
"""Options for batch functions only, besides ``batch_size``."""

OPTION_HELP = {
    "return_dtype": "the type of the results; taken from the type hints if they have one",
    "unnest": "True makes a column of each field of a struct result",
    "batch_size": "rows of a batch: a number, 'auto' (found by measurement), or None (batches as they come)",
    "max_batch_bytes": "the most bytes of a batch, a number or text such as '64MB'",
    "max_batch_tokens": "the most tokens of a batch; estimated from its text",
    "split_on": "exception classes that mean: too large; the batch is halved and tried again",
    "cpus": "cores that each worker reserves",
    "gpus": "GPUs that each worker reserves; it sees only those. Implies processes",
    "memory": "bytes of memory that each worker reserves, a number or text such as '4GB'",
    "concurrency": "the most workers; for an async function, the most calls at once",
    "use_process": "True runs in worker processes, False on threads; None moves from threads if the GIL is held",
    "max_retries": "how often a call that raises is made again (0)",
    "retry_on": "exception classes to retry; by default all",
    "on_error": "'raise' ends the query; 'null' records the row in df.errors() and gives null; 'log' logs it too",
    "max_errors": "failed rows, a count or a fraction, that end the query; 'auto': when nearly all fail; None: never",
    "timeout": "seconds a call may take; needs an async function or use_process=True",
    "cache": "True stores results and uses them again for the same code and arguments; see docs/guides/cache.md",
    "version": "text that stands for the code in caches and jobs: change it when the results change",
    "ray_options": "options for the actors of this function on Ray",
}


MOST_LISTED = 6
"""An error about an unknown option lists the others if they are at most so many, or else says where they are listed."""

BREAKER_ROWS = 1000
"""Rows of a user's function that nearly all must fail for the same reason before the circuit breaker stops the query:
many, since bad rows often lie together."""


# --- unknown options --------------------------------------------------------------------------------------------------


def refusing_unknown(
    what: str, lines: Mapping[str, str] | None = None, shared: type | None = None
) -> Callable[[AnyCallable], AnyCallable]:
    """Make a function raise an error when it gets an unknown option; ``lines`` about options extend its docstring.

    ``shared`` is the TypedDict of its ``**options``. One with ``storage_options`` takes them as ``io_config`` too: an
    object that names them, as Daft's adapter has. Expected errors of the function itself show the frames of the user.
    """
    hints = {} if shared is None else shared.__annotations__
    others = [name for name in dict.fromkeys((*(lines or ()), *hints)) if name in hints]

    def decorate(function: AnyCallable) -> AnyCallable:
        code = inspect.unwrap(function).__code__  # ``inspect.signature`` is slow, and this runs at import
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        known = [*(name for name in names if name != "self"), *others]
        place = f"df.{what}" if "self" in names else f"ps.{what}"

        def checked(options: dict[str, Any]) -> dict[str, Any]:
            if "storage_options" in known and isinstance(options.get("io_config"), StoreSettings | None):
                settings = options.pop("io_config", None)
                options |= {} if settings is None else {"storage_options": settings.storage_options()}
            return known_options(what, options, known, place)

        call = _checking(function, checked)
        if lines is not None:
            call.__doc__ = _with_lines(function, {name: lines[name] for name in known if name in lines})
        return _showing(call, function, hints, {name: DEFAULTS.get(name) for name in others}) if others else call

    return decorate


def _checking(function: AnyCallable, checked: Callable[[dict[str, Any]], dict[str, Any]]) -> AnyCallable:
    """Return a function with checked options, whose expected errors show the frames of the user."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        options = checked(options)
        try:
            return function(*args, **options)
        except PenstockError as exc:
            trim_traceback(exc)
            raise

    return cast(AnyCallable, call)


def _with_lines(function: Callable[..., Any], lines: Mapping[str, str]) -> str:
    """Return the docstring of a function with a line about each option before its examples."""
    about, mark, examples = inspect.cleandoc(function.__doc__ or "").partition(">>>")
    listed = "".join(f"  {name}: {line}\n" for name, line in lines.items())
    return f"{about.rstrip()}\n\nOptions:\n{listed}\n{mark}{examples}"


def taking_options(what: str, kind: type) -> Callable[[AnyCallable], AnyCallable]:
    """Let a function take the options of a TypedDict, with their defaults and a line about each in its docstring."""
    defaults = {name: DEFAULTS.get(name) for name in OPTION_HELP if name in kind.__annotations__}

    def decorate(function: AnyCallable) -> AnyCallable:
        call = _checking(function, lambda given: defaults | known_options(what, given, list(defaults), f"ps.{what}"))
        call.__doc__ = _with_lines(function, {name: OPTION_HELP[name] for name in defaults})
        return _showing(call, function, kind.__annotations__, defaults)

    return decorate


def _showing(
    call: AnyCallable, function: Callable[..., Any], hints: Mapping[str, Any], defaults: Mapping[str, Any]
) -> AnyCallable:
    """Return ``call`` with a signature that lists the options of ``function`` in place of ``**options``."""
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    texts = {name: getattr(hint, "__forward_arg__", hint) for name, hint in hints.items()}
    shown = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=texts[name])
        for name, default in defaults.items()
    ]
    setattr(call, "__signature__", signature.replace(parameters=[*own, *shown]))  # noqa: B010  # type checkers
    return call


def known_options(what: str, given: Mapping[str, Any], known: Collection[str], place: str) -> dict[str, Any]:
    """Return options under our names. An unknown one is an error, which names the ``place`` whose help lists them."""
    options = in_our_words(what, given, known)
    for name in options:
        if name not in known:
            hint = spelling_hint(name, known) or did_you_mean(name, known)
            if len(known) <= MOST_LISTED:
                raise InvalidArgumentError(f"{what} has no option {name!r}; known: {', '.join(known)}.{hint}")
            raise InvalidArgumentError(f"{what} has no option {name!r}.{hint} help({place}) lists its options.")
    return options


def options_of(arguments: Mapping[str, Any], *positional: str) -> dict[str, Any]:
    """Return the options among a function's ``locals()``, taken at its start, without its positional arguments."""
    return {name: value for name, value in arguments.items() if name not in ("self", *positional)}


# --- checks -----------------------------------------------------------------------------------------------------------


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_batch_size(value: Any) -> bool:
    return value == "auto" or _is_whole(value, 1)


def _is_amount(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def _is_nbytes(value: Any) -> bool:
    return isinstance(value, (int, str)) and not isinstance(value, bool) and parse_bytes(value) >= 1


def _are_exceptions(value: Any) -> bool:
    return all(isinstance(each, type) and issubclass(each, BaseException) for each in exception_classes(value))


def _is_max_errors(value: Any) -> bool:
    return value == "auto" or _is_whole(value, 0) or (isinstance(value, float) and 0 < value < 1)


_POSITIVE: Rule = (lambda value: _is_whole(value, 1), "must be a whole number of 1 or more")
_AMOUNT: Rule = (_is_amount, "must be a number of 0 or more")
_BOOLEAN: Rule = (lambda value: isinstance(value, bool), "must be True or False")
_EXCEPTIONS: Rule = (_are_exceptions, "takes exception classes")

RULES: dict[str, Rule] = {
    "batch_size": (_is_batch_size, "must be 'auto' or a whole number of 1 or more"),
    "cache": _BOOLEAN,
    "cpus": _AMOUNT,
    "gpus": _AMOUNT,
    "max_batch_bytes": (_is_nbytes, "must be a number of bytes of 1 or more, or text such as '64MB'"),
    "max_batch_tokens": _POSITIVE,
    "max_errors": (_is_max_errors, "is a number of rows, or a fraction of them above 0 and below 1, or 'auto' or None"),
    "max_retries": (lambda value: _is_whole(value, 0), "must be a whole number of 0 or more"),
    "on_error": (lambda value: value in get_args(OnError), "must be 'raise', 'null' or 'log'"),
    "ray_options": (lambda value: isinstance(value, Mapping), "must be a dict of the options of Ray's actors"),
    "retry_on": _EXCEPTIONS,
    "split_on": _EXCEPTIONS,
    "timeout": (lambda value: _is_amount(value) and value > 0, "must be a number of seconds above 0"),
    "use_process": _BOOLEAN,
    "version": (lambda value: isinstance(value, str), "must be a string"),
    "zero_copy_batch": _BOOLEAN,
}


def check_options(name: str, given: Mapping[str, Any]) -> None:
    """Check the values of options, except None, which stands for the default."""
    for option, value in given.items():
        if value is not None and option in RULES:
            is_valid, rule = RULES[option]
            if not is_valid(value):
                hint = did_you_mean(str(value), get_args(OnError)) if option == "on_error" else ""
                raise InvalidArgumentError(f"{name}: {option} {rule}; got {value!r}.{hint}")


def check_call_options(name: str, given: Mapping[str, Any]) -> None:
    """Check the options of a function on columns, whose ``concurrency`` is one number."""
    check_options(name, given)
    if given.get("concurrency") is not None:
        check_whole(name, "concurrency", given["concurrency"], 1)


def check_whole(name: str, option: str, value: Any, least: int) -> None:
    if not _is_whole(value, least):
        raise InvalidArgumentError(f"{name}: {option} must be a whole number of {least} or more; got {value!r}")


def error_policy(name: str, on_error: str) -> OnError:
    """Return the checked policy: ``"null"`` records a failed row, ``"log"`` logs it too; ``"ignore"`` is ``"null"``."""
    check_choice(f"{name}: on_error", on_error, get_args(OnError))
    return "null" if on_error == "ignore" else cast(OnError, on_error)


def check_positive(name: str, option: str, value: Any) -> None:
    """Refuse an option that is given and is not a number above 0."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise InvalidArgumentError(f"{name}: {option} must be a number above 0; got {value!r}.")


# --- parts of a spec --------------------------------------------------------------------------------------------------


def make_policy(name: str, options: Mapping[str, Any], *, can_stop: bool, breaker_rows: int = BREAKER_ROWS) -> Policy:
    """Return the policy of checked options; ``can_stop`` is True if a running call can be stopped."""
    on_error = error_policy(name, options.get("on_error") or "raise")
    max_errors, timeout_s = options.get("max_errors", "auto"), options.get("timeout")
    if max_errors not in ("auto", None) and on_error == "raise":
        raise InvalidArgumentError(
            f'{name}: max_errors={max_errors!r} needs on_error="null" or "log"; with "raise" the first error ends all'
        )
    if timeout_s is not None and not can_stop:
        raise InvalidArgumentError(
            f"{name}: timeout={timeout_s!r} cannot stop a function in a thread; set use_process=True, or make it async"
        )
    retry_on = exception_classes(options.get("retry_on"))
    limits = (None, breaker_rows if on_error != "raise" else None) if max_errors == "auto" else (max_errors, None)
    return Policy(on_error, options.get("max_retries") or 0, retry_on, timeout_s, *limits)


def make_limits(options: Mapping[str, Any]) -> BatchLimits:
    max_bytes, max_tokens, split_on = (options.get(option) for option in BATCH_OPTIONS)
    return BatchLimits(None if max_bytes is None else parse_bytes(max_bytes), max_tokens, exception_classes(split_on))


def exception_classes(given: Any) -> tuple[Any, ...]:
    """Return an option that is one class, several or None, as a tuple."""
    return () if given is None else tuple(given) if isinstance(given, (tuple, list)) else (given,)
