"""One row of a processor, as workers handle it: from the user's row to a request, and from answers to a row again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.ai.exchange import PromptSettings
from penstock.ai.prompt import AsyncPrompts, BatchPrompts
from penstock.ai.provider import Model, Prompter, loaded
from penstock.ai.remote.http import ApiClient
from penstock.ai.remote.refusals import shortened
from penstock.ai.remote.wires.wire import ApiCall
from penstock.errors import InvalidAnswerError, InvalidArgumentError, ProviderUnusableError
from penstock.types import DataType, PartialColumn, Series, to_arrow_array

ERROR = "__inference_error__"
ROW, ANSWER = "row", "answer"

RowFunction = Callable[[dict[str, Any]], Any]


class Row:
    """The columns of a row with what ``preprocess`` added. As one object, so that rows may ask in different forms."""

    __slots__ = ("fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def __repr__(self) -> str:
        return repr(self.fields)


class Prepare:
    """Runs the user's ``preprocess``; what it gives is added to the row."""

    def __init__(self, preprocess: RowFunction | None, needed: tuple[str, ...]) -> None:
        self._preprocess = preprocess
        self.needed = needed
        self.__name__ = "preprocess"

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        fields = dict(row)
        if self._preprocess is not None:
            fields |= _checked_dict("preprocess", self._preprocess(row))
        if not any(name in fields for name in self.needed):
            needed = " or ".join(map(repr, self.needed))
            raise InvalidArgumentError(
                f"preprocess must give {needed} for each row; with the columns there are: {', '.join(fields)}."
            )
        return {ROW: Row(fields)}


class Finish:
    """Runs the user's ``postprocess`` on rows that have an answer. Failed rows are left out, or kept as they are."""

    def __init__(self, postprocess: RowFunction | None, keeps_failed: bool) -> None:
        self._postprocess = postprocess
        self._keeps_failed = keeps_failed
        self.__name__ = "postprocess"

    def __call__(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        answer = row[ANSWER]
        if answer is None:
            return []
        fields = {**row[ROW].fields, **answer}
        if ERROR not in answer and self._postprocess is not None:
            fields = dict(_checked_dict("postprocess", self._postprocess(fields)))
        if self._keeps_failed:
            fields.setdefault(ERROR, "")
        return [fields]


def _checked_dict(what: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(f"{what} must give a dict for each row; it gave {type(given).__name__}.")
    return given


Translate = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""From the sampling parameters of a row to options of a request."""


class AsyncRows(AsyncPrompts):
    """Asks a model that takes a request at a time."""

    def __init__(self, model: Prompter, settings: PromptSettings, translate: Translate, keeps_failed: bool) -> None:
        super().__init__(model, settings)
        self._translate = translate
        self._keeps_failed = keeps_failed

    async def ask(self, row: Row) -> dict[str, Any]:
        try:
            values, options = asked(row, self._translate, self.takes_options)
            return answer_fields(await self.answer(*values, options=options))
        except Exception as exc:
            return failed(exc, self._keeps_failed)


class BatchRows(BatchPrompts):
    """Asks a model that takes many requests at a time."""

    def __init__(self, model: Prompter, settings: PromptSettings, translate: Translate, keeps_failed: bool) -> None:
        super().__init__(model, settings)
        self._translate = translate
        self._keeps_failed = keeps_failed

    def ask(self, rows: Series) -> PartialColumn:
        requests, refused = self._requests(rows.to_pylist())
        answered = self.answered([values for values, _ in requests], [options for _, options in requests])
        failures = {**answered.failures, **refused}
        answers: list[dict[str, Any] | None] = [answer_fields(each) for each in answered.values()]
        for number, exc in failures.items():
            answers[number] = failed(exc, True) if self._keeps_failed else None
        column = to_arrow_array(answers, DataType.python(), what="prompt")
        return PartialColumn(column, {} if self._keeps_failed else failures)

    def _requests(self, rows: Sequence[Row]) -> tuple[list[tuple[tuple[Any, ...], Any]], dict[int, Exception]]:
        """Return what each row asks, and why rows cannot; those ask nothing."""
        requests: list[tuple[tuple[Any, ...], Any]] = []
        refused: dict[int, Exception] = {}
        for number, row in enumerate(rows):
            try:
                requests.append(asked(row, self._translate, self.takes_options))
            except Exception as exc:
                refused[number] = exc
                requests.append(((None,), None))
        return requests, refused


def asked(row: Row, translate: Translate, takes_options: bool) -> tuple[tuple[Any, ...], Mapping[str, Any] | None]:
    """Return the message of a row and the options of its own."""
    fields = row.fields
    message = fields["messages"] if "messages" in fields else fields["prompt"]
    params = fields.get("sampling_params")
    if params is not None and not isinstance(params, Mapping):
        raise InvalidArgumentError(f"sampling_params is a dict for each row; got {type(params).__name__}.")
    given = {} if params is None else {name: value for name, value in params.items() if value is not None}
    if "n" in given and (isinstance(given["n"], bool) or not isinstance(given["n"], int) or given["n"] < 1):
        raise InvalidArgumentError(f"sampling_params: n must be a whole number of 1 or more; got {given['n']!r}.")
    if not takes_options and set(given) - {"n"}:
        raise InvalidArgumentError(
            "This model has the same sampling parameters for all rows; give them to the config, sampling_params=..."
        )
    return (_plain(message),), translate(given) if given else None


def _plain(message: Any) -> Any:
    """Return lists for the arrays that rows have where a column holds lists."""
    return [dict(each) for each in message] if isinstance(message, np.ndarray) and message.dtype == object else message


def answer_fields(answers: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Return what a row gets from its answers, by the names of Ray Data. Of several answers the texts are lists."""
    answers = answers or []  # a row that asked nothing
    texts, reasons, thoughts = (_one_or_all(answers, name) for name in ("value", "finish_reason", "reasoning"))
    return {
        "generated_text": texts,
        "finish_reason": reasons,
        "reasoning": thoughts,
        "num_input_tokens": _total(answers, "input_tokens"),
        "num_generated_tokens": _total(answers, "output_tokens"),
        "cost": _total(answers, "cost"),
        "time_taken_llm": max((each["latency_s"] for each in answers if each["latency_s"] is not None), default=None),
    }


def _one_or_all(answers: Sequence[Mapping[str, Any]], name: str) -> Any:
    found = [each[name] for each in answers]
    return found if len(found) > 1 else next(iter(found), None)


def _total(answers: Sequence[Mapping[str, Any]], name: str) -> Any:
    known = [each[name] for each in answers if each[name] is not None]
    return sum(known) if known else None


def failed(exc: Exception, keeps_failed: bool) -> dict[str, Any]:
    """Return what a row gets that failed, if it shall go on; a key that is refused concerns all of them."""
    if not keeps_failed or isinstance(exc, ProviderUnusableError):
        raise exc
    return {ERROR: f"{type(exc).__name__}: {exc}"}


class JsonClient(ApiClient):
    """Sends any JSON and takes any JSON back."""

    def _body(self, raw: bytes) -> Any:
        import orjson

        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError as exc:
            raise InvalidAnswerError(
                f"{self.name} answered with something other than JSON: {shortened(raw)!r}"
            ) from exc


class HttpService(Model):
    """Any server that takes JSON by POST."""

    def __init__(self, client: JsonClient) -> None:
        self._client = client

    def load(self) -> None:
        self._client.open()

    async def close(self) -> None:
        await self._client.close()

    async def post(self, payload: Any) -> Any:
        try:
            answer, _ = await self._client.ask(ApiCall("", payload), lambda body: body)
        except TypeError as exc:
            raise InvalidArgumentError(
                f"payload is sent as JSON, which cannot hold it: {exc}; send bytes as base64."
            ) from exc
        return answer


class HttpRows:
    """Posts the payload of each row."""

    def __init__(self, service: HttpService, keeps_failed: bool) -> None:
        self._service = loaded(service)
        self._keeps_failed = keeps_failed

    async def ask(self, row: Row) -> dict[str, Any]:
        try:
            return {"http_response": await self._service.post(row.fields["payload"])}
        except Exception as exc:
            return failed(exc, self._keeps_failed)

    def close(self) -> Any:
        return self._service.close()
