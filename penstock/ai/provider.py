"""What a provider is, and the models it hands out: picklable objects that a worker loads and calls.

>>> from penstock.ai.provider import Generation, Prompter, Prompting, check_options
>>> class Echo(ps.Provider):
...     name = "echo"
...     def model(self, task):
...         match task:
...             case Prompting():
...                 check_options(task, self.name, ["suffix"])  # refuses what nobody would read, such as a typo
...                 return EchoPrompter(task.options.get("suffix", ""))
...             case _:
...                 return super().model(task)  # says what this provider cannot do
>>> class EchoPrompter(Prompter):
...     def __init__(self, suffix):
...         self.suffix = suffix
...     async def generate(self, request):  # a plain ``def`` is given a list of requests, and returns a list for each
...         if request.text is None:
...             raise ValueError("only texts can be echoed")  # that row's error
...         return [Generation(request.text + self.suffix) for _ in range(request.num_answers)]
>>> df = ps.from_pydict({"q": ["a", None]})
>>> df.select(ps.prompt(ps.col("q"), provider=Echo(), suffix="!", n=2)).to_pydict()
{'q': [['a!', 'a!'], None]}

``ps.attach_provider(Echo())`` makes ``provider="echo"`` mean it.
A model is built in the user's process, travels to the workers, and is loaded there.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from penstock.ai.conversation import Generation, Request
from penstock.ai.remote.limits.limiter import Caps
from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.udf import BatchSize, Resources

NDArray = np.ndarray[Any, Any]


MAX_RETRIES = 5
TIMEOUT_S = 600.0
FIRST_DELAY_S = 0.5
NO_CAPS = Caps()


POLL_INTERVAL_S = 30.0

CALL_OPTIONS = (
    *("on_error", "max_errors", "max_retries", "timeout"),
    *("max_concurrency", "requests_per_minute", "tokens_per_minute", "cache", "price"),
    *("batch_api", "batch_poll_interval", "batch_max_requests"),
)
"""Options of the engine, which every function takes."""


@dataclass(frozen=True)
class BatchSettings:
    """How calls are put into batches of the provider's: how often those are asked after at first, and whether they
    are to be smaller than the provider takes."""

    poll_interval_s: float = POLL_INTERVAL_S
    max_requests: int | None = None


@dataclass(frozen=True)
class CallSettings:
    """How remote calls are made: how often again after a failure, how long to wait for one, how many and how fast."""

    max_retries: int = MAX_RETRIES
    timeout_s: float = TIMEOUT_S
    caps: Caps = NO_CAPS
    first_delay_s: float = FIRST_DELAY_S  # before the second try; it doubles from there
    cache: bool | None = None  # whether answers are kept; None: where there is a ledger
    price: Mapping[str, float] | None = None  # dollars for a million tokens; None: by the model's name
    batch: BatchSettings | None = None  # None: calls are made one by one, many at once


DEFAULT_SETTINGS = CallSettings()


@dataclass(frozen=True)
class Task:
    """What a function wants of a model. ``options`` are those that are the provider's to understand, or to refuse.

    ``parameters`` are those of the function that have names of their own, besides ``provider`` and ``model``.
    """

    function: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]] = ()
    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: CallSettings = DEFAULT_SETTINGS


@dataclass(frozen=True)
class Prompting(Task):
    function: ClassVar[str] = "prompt"
    parameters: ClassVar[tuple[str, ...]] = (
        *("messages", "return_format", "system_message", "tool_functions"),
        *("usage", "n", "max_reasks", "max_tool_rounds"),
    )


@dataclass(frozen=True)
class TextEmbedding(Task):
    function: ClassVar[str] = "embed_text"
    parameters: ClassVar[tuple[str, ...]] = ("text", "dimensions", "long_input")
    dimensions: int | None = None
    long_input: Literal["truncate", "average"] = "truncate"


@dataclass(frozen=True)
class ImageEmbedding(Task):
    function: ClassVar[str] = "embed_image"
    parameters: ClassVar[tuple[str, ...]] = ("image", "dimensions")
    dimensions: int | None = None


@dataclass(frozen=True)
class TextClassification(Task):
    function: ClassVar[str] = "classify_text"
    parameters: ClassVar[tuple[str, ...]] = ("text", "labels")
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageClassification(Task):
    function: ClassVar[str] = "classify_image"
    parameters: ClassVar[tuple[str, ...]] = ("image", "labels")
    labels: tuple[str, ...] = ()


class Model:
    """What a worker calls. Its methods run on one thread (or one event loop) at a time."""

    resources: Resources = Resources()  # of a worker that holds it; remote models wait, so theirs cost nothing
    batch_size: BatchSize = "auto"  # of models that are given batches
    cache: bool | None = None  # whether results are kept; None: where there is a ledger

    def load(self) -> None:
        """Get ready in the worker: load weights, open a client. Called once there."""

    def identity(self) -> Mapping[str, Any] | None:
        """Return all that determines its results besides the input, such as weights and options, as JSON can hold it.

        Asked in the worker, before ``load``. Results of models that are given batches are kept by it, where there is a
        place to keep them; those of one without, as None says, are not.
        """
        return None

    def close(self) -> Any:
        """Release what ``load`` took; may be async where the model is."""


AnyModel = TypeVar("AnyModel", bound=Model)


def loaded(model: AnyModel) -> AnyModel:
    """Return a model that is ready. It is a copy, as several queries may use the one in the plan at the same time."""
    own = copy.deepcopy(model)
    own.load()
    return own


class Prompter(Model, ABC):
    """Answers requests: one at a time if ``generate`` is async, else a batch."""

    takes_options: bool = False  # those of single requests, ``Request.options``; where not, they are refused
    takes_tools: bool = True  # ``Request.tools``; where not, they are refused when the plan is built

    @abstractmethod
    def generate(self, request: Any) -> Any:
        """Return the answers to a request, ``request.num_answers`` of them.

        An async method is given a ``Request``, many at once, and returns a list of ``Generation``; what it raises is
        that row's error. A plain method is given a list of requests and returns for each such a list, or an exception.
        Where one answer is wanted, a ``Generation`` or a text may stand for the list.
        """

    def is_certain(self, request: Request) -> bool:
        """Whether chance has no part in the answer to a request, so that equal requests need one answer."""
        return False


class Embedder(Model, ABC):
    """Gives vectors of ``dimensions`` numbers, which is known before anything runs.

    ``max_items`` and ``max_tokens`` bound what an async one is given at once.
    """

    dimensions: int
    max_items: int = 256
    max_tokens: int | None = None

    @abstractmethod
    def embed(self, inputs: Sequence[Any]) -> NDArray | Awaitable[NDArray]:
        """Return an array of shape ``(len(inputs), dimensions)``, or what NumPy makes one of.

        Inputs are texts, or images as ndarrays; no nulls.
        """


class Classifier(Model, ABC):
    """Picks one of the task's labels for each input."""

    @abstractmethod
    def classify(self, inputs: Sequence[Any]) -> Sequence[str]:
        """Return the label of each input; one that is not among the task's is that row's error.

        Inputs are texts, or images as ndarrays; no nulls.
        """


class Provider:
    """Where models come from. Picklable; its keys are ``Secret``."""

    name: str
    default_models: ClassVar[Mapping[str, str]] = {}  # by function
    has_batch_api: ClassVar[bool] = False  # whether its models heed ``CallSettings.batch``

    def model(self, task: Task) -> Model:
        """Return the model for a task, or say why there is none. Called when the plan is built, so it must be quick."""
        offered = ", ".join(self.default_models) or "something else"
        raise InvalidArgumentError(f"Provider {self.name!r} has no {task.function}; it offers {offered}.")

    def model_name(self, task: Task) -> str:
        """Return the model that a task names, or the provider's own choice."""
        name = task.model or self.default_models.get(task.function)
        if name is None:
            raise InvalidArgumentError(f"{task.function} with provider {self.name!r} needs a model; give model=...")
        return name


def check_options(task: Task, provider: str, known: Sequence[str]) -> None:
    """Refuse options that nobody would read, with the nearest name of all that the function takes.

    ``known`` are those that the provider reads.
    """
    for name in task.options:
        if name not in known:
            own = ("provider", "model", *task.parameters, *CALL_OPTIONS)
            raise InvalidArgumentError(
                f"{task.function} with provider {provider!r} does not take {name!r}."
                f"{did_you_mean(name, [*known, *own])} It takes {', '.join(sorted(known)) or 'no options'} as the "
                f"provider's own, and {', '.join(each for each in own if each not in known)}."
            )


__all__ = ["Classifier", "Embedder", "Generation", "Model", "Prompter", "Provider", "Request", "Task", "check_options"]
