"""Providers, and the models that they return: picklable objects that a worker loads and calls.

>>> from penstock.ai.provider import Generation, Prompter, Prompting, check_options
>>> class Echo(ps.Provider):
...     name = "echo"
...     def model(self, task):
...         match task:
...             case Prompting():
...                 check_options(task, self.name, ["suffix"])  # refuses unknown options, such as a typo
...                 return EchoPrompter(task.options.get("suffix", ""))
...             case _:
...                 return super().model(task)  # raises an error that names the task
>>> class EchoPrompter(Prompter):
...     def __init__(self, suffix):
...         self.suffix = suffix
...     async def generate(self, request):  # a plain ``def`` gets a list of requests and returns a list for each
...         if request.text is None:
...             raise ValueError("only texts can be echoed")  # the error of the row
...         return [Generation(request.text + self.suffix) for _ in range(request.num_answers)]
>>> df = ps.from_pydict({"q": ["a", None]})
>>> df.select(ps.prompt(ps.col("q"), provider=Echo(), suffix="!", n=2)).to_pydict()
{'q': [['a!', 'a!'], None]}

After ``ps.attach_provider(Echo())``, ``provider="echo"`` is this provider.
A model is built in the user's process, pickled, and loaded in the workers.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from penstock.ai.client.limits.caps import NO_CAPS, Caps
from penstock.ai.conversation import Generation, Request
from penstock.ai.decisions.questions import Questions
from penstock.ai.option_types import CALL_OPTIONS
from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.udf import BatchSize, Resources
from penstock.types.frozen import frozen
from penstock.udf.option_spellings import spelling_hint

NDArray = np.ndarray[Any, Any]

MAX_RETRIES = 5
TIMEOUT_S = 600.0
FIRST_DELAY_S = 0.5
POLL_INTERVAL_S = 30.0


@frozen
class BatchSettings:
    """Settings of a provider's batch API: the first interval between polls, and an upper limit on the batch size."""

    poll_interval_s: float = POLL_INTERVAL_S
    max_requests: int | None = None


@frozen
class CallSettings:
    """Settings of calls to remote models."""

    max_retries: int = MAX_RETRIES
    timeout_s: float = TIMEOUT_S
    caps: Caps = NO_CAPS
    first_delay_s: float = FIRST_DELAY_S  # before the first retry; doubles for each further one
    cache: bool | None = None  # None: cache answers if there is a ledger
    price: Mapping[str, float] | None = None  # dollars for a million tokens; None: by the name of the model
    batch: BatchSettings | None = None  # None: send requests one by one


DEFAULT_SETTINGS = CallSettings()


@frozen
class ModelTask:
    """The task for which a function needs a model. The provider checks ``options`` and refuses unknown ones.

    ``parameters`` are the named parameters of the function besides ``provider`` and ``model``. ``row_options`` are the
    names of the options that each row sets in its request.
    """

    function: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]] = ()
    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: CallSettings = DEFAULT_SETTINGS
    row_options: tuple[str, ...] = ()


@frozen
class Prompting(ModelTask):
    function: ClassVar[str] = "prompt"
    parameters: ClassVar[tuple[str, ...]] = (
        *("messages", "return_format", "system_message", "tool_functions"),
        *("usage", "logprobs", "n", "max_reasks", "max_tool_rounds"),
    )


@frozen
class Deciding(ModelTask):
    function: ClassVar[str] = "decide"
    parameters: ClassVar[tuple[str, ...]] = ("messages", "questions")
    questions: Questions = ()


@frozen
class TextEmbedding(ModelTask):
    function: ClassVar[str] = "embed_text"
    parameters: ClassVar[tuple[str, ...]] = ("text", "dimensions", "long_input")
    dimensions: int | None = None
    long_input: Literal["truncate", "average"] = "truncate"


@frozen
class ImageEmbedding(ModelTask):
    function: ClassVar[str] = "embed_image"
    parameters: ClassVar[tuple[str, ...]] = ("image", "dimensions")
    dimensions: int | None = None


@frozen
class TextClassification(ModelTask):
    function: ClassVar[str] = "classify_text"
    parameters: ClassVar[tuple[str, ...]] = ("text", "labels", "scores")
    labels: tuple[str, ...] = ()


@frozen
class ImageClassification(ModelTask):
    function: ClassVar[str] = "classify_image"
    parameters: ClassVar[tuple[str, ...]] = ("image", "labels")
    labels: tuple[str, ...] = ()


@frozen
class TextRelevance(ModelTask):
    function: ClassVar[str] = "relevance"
    parameters: ClassVar[tuple[str, ...]] = ("query", "text")


class Model:
    """A model that a worker calls. Its methods run on one thread (or one event loop) at a time.

    With ``Resources.tasks_per_worker`` above one, several threads may call the loaded model at the same time.
    """

    model_name: str | None = None
    base_url: str | None = None  # of the server of a remote model
    resources: Resources = Resources()  # of a worker with this model; remote models need none
    batch_size: BatchSize = "auto"  # of models that take batches
    first_rows: int | None = None  # of a first batch with ``batch_size="auto"``
    max_rows: int | None = None  # of a batch with ``batch_size="auto"``
    note: str | None = None  # on how it runs, for ``explain``
    cache: bool | None = None  # None: cache results if there is a ledger
    event_loop: str | None = None  # async models with the same name share an event loop; None: the loop of all APIs
    num_waiting: int | None = None  # rows that wait for an async model concurrently; None: as for an API

    def load(self) -> None:
        """Prepare in the worker: load weights, open a client. Called once there."""

    def identity(self) -> Mapping[str, Any] | None:
        """Return everything that determines the results besides the input, such as weights and options, for JSON.

        Called in the worker, before ``load``. It is part of the keys of cached results. The results of a model without
        an identity (None) are not cached.
        """
        return None

    def close(self) -> Any:
        """Release what ``load`` acquired. May be async if the model is."""


AnyModel = TypeVar("AnyModel", bound=Model)


def loaded(model: AnyModel) -> AnyModel:
    """Return a loaded copy of a model: several queries may use the model of the plan at the same time."""
    own = copy.deepcopy(model)
    own.load()
    return own


class Prompter(Model, ABC):
    """Answers requests: one at a time if ``generate`` is async, else a batch."""

    takes_options: bool = False  # accepts ``Request.options``
    takes_tools: bool = True  # accepts ``Request.tools``
    takes_cache_control: bool = False  # accepts parts of messages with a ``cache_control``
    needs_row_ids: bool = False  # an async model that uses ``Request.row_id``

    @abstractmethod
    def generate(self, request: Any) -> Any:
        """Return the answers to a request, ``request.num_answers`` of them.

        An async method gets a ``Request`` and returns a list of ``Generation``; it is called concurrently, and an
        exception is the error of the row. A plain method gets a list of requests and returns such a list, or an
        exception, for each. A single answer may be a ``Generation`` or a text instead of a list.
        """

    def is_certain(self, request: Request) -> bool:
        """Return True if equal requests always get the same answer, so that one call serves them all."""
        return False


class Embedder(Model, ABC):
    """Returns vectors of ``dimensions`` numbers, which must be known when the plan is built.

    ``max_items`` and ``max_tokens`` limit one call of an async embedder, ``max_input_tokens`` one text.
    """

    dimensions: int
    max_items: int = 256
    max_tokens: int | None = None
    max_input_tokens: int | None = None

    @abstractmethod
    def embed(self, inputs: Sequence[Any]) -> NDArray | Awaitable[NDArray | Sequence[NDArray]]:
        """Return an array, or anything NumPy converts to one, of shape ``(len(inputs), dimensions)``.

        Inputs are texts, or images as ndarrays; no nulls. If an async embedder returns some vectors of another length,
        Penstock asks again for each of these inputs alone.
        """


class Classifier(Model, ABC):
    """Picks one of the task's labels for each input."""

    @abstractmethod
    def classify(self, inputs: Sequence[Any]) -> Sequence[str]:
        """Return the label of each input. A label that is not among the task's is the error of the row.

        Inputs are texts, or images as ndarrays; no nulls.
        """


class ScoringClassifier(Classifier, ABC):
    """Scores every label of the task for each input; the label with the highest score is the label of the input."""

    labels: tuple[str, ...]

    @abstractmethod
    def scores(self, inputs: Sequence[Any]) -> NDArray:
        """Return an array of shape ``(len(inputs), len(labels))``, with the labels in the order of the task."""

    def classify(self, inputs: Sequence[Any]) -> list[str]:
        return [self.labels[best] for best in self.scores(inputs).argmax(1)] if inputs else []


class Reranker(Model, ABC):
    """Scores how well texts answer queries."""

    @abstractmethod
    def relevance(self, pairs: Sequence[tuple[str, str]]) -> NDArray:
        """Return an array with a score for each pair of a query and a text; higher is more relevant."""


class Provider:
    """A source of models. Picklable; its keys are ``Secret``."""

    name: str
    default_models: ClassVar[Mapping[str, str]] = {}  # by function
    has_batch_api: ClassVar[bool] = False  # supports ``CallSettings.batch``

    @property
    def has_workers(self) -> bool:
        """True if ``concurrency`` is the number of workers on this machine, not of concurrent requests."""
        return False

    def model(self, task: ModelTask) -> Model:
        """Return the model for a task, or raise an error. Called when the plan is built, so it must be quick."""
        offered = ", ".join(self.default_models) or "something else"
        raise InvalidArgumentError(f"Provider {self.name!r} has no {task.function}; it offers {offered}.")

    def model_name(self, task: ModelTask) -> str:
        """Return the model that a task names, or the provider's default."""
        name = task.model or self.default_models.get(task.function)
        if name is None:
            raise InvalidArgumentError(f"{task.function} with provider {self.name!r} needs a model; give model=...")
        return name


def check_options(task: ModelTask, provider: str, known: Sequence[str], of_rows: Sequence[str] = ()) -> None:
    """Refuse options that the provider does not read, and suggest the nearest name.

    It reads the options ``known``; the options ``of_rows`` may differ between rows.
    """
    for name in (*task.options, *task.row_options):
        if name not in known:
            own = [each for each in ("provider", "model", *task.parameters, *CALL_OPTIONS) if each != name]
            hint = spelling_hint(name, [*known, *own]) or did_you_mean(name, [*known, *own])
            if name in ("api_key", "base_url", "headers"):
                hint = f" Give it to the provider: ps.set_provider({provider!r}, {name}=...)."
            raise InvalidArgumentError(
                f"{task.function} with provider {provider!r} does not take {name!r}.{hint} "
                f"help(ps.{task.function}) lists the options."
            )
    for name in task.row_options:
        if name not in of_rows:
            raise InvalidArgumentError(
                f"{task.function} with provider {provider!r} takes one {name} for all rows, not an expression. "
                f"These may differ between rows: {', '.join(sorted(of_rows)) or 'none'}."
            )


__all__ = [
    "Classifier",
    "Embedder",
    "Generation",
    "Model",
    "ModelTask",
    "Prompter",
    "Provider",
    "Request",
    "Reranker",
    "ScoringClassifier",
    "check_options",
]
