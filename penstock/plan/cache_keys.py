"""Give each function with ``cache=True`` the key under which its results are stored."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.cache.ledger.open_ledgers import job_folder
from penstock.config import get_config
from penstock.errors import InvalidArgumentError
from penstock.expr.nodes import Literal, PythonValue
from penstock.expr.udf import BatchSpec, UdfSpec
from penstock.plan.identity.code_keys import code_identity
from penstock.plan.stages import CallBatch, CallUdf, Stage

log = logging.getLogger("penstock.udf")


def with_cache_keys(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return the stages with the keys of their cached functions. Raise InvalidArgumentError if there is no ledger.

    Runs when a query begins, because a function may refer to names that are defined after it.
    """
    return tuple(map(_with_key, stages))


def _with_key(stage: Stage) -> Stage:
    match stage.work:
        case CallUdf(call=call) if call.udf.cache:
            constants = {
                str(number): child.value if isinstance(child, PythonValue) else child.scalar
                for number, child in enumerate(call.children)
                if isinstance(child, Literal | PythonValue)
            }
            names = [name for name, _ in call.kwargs]
            spec = replace(call.udf, cache_key=_key(call.udf, (constants, names)))
            return replace(stage, work=replace(stage.work, call=replace(call, udf=spec)))
        case CallBatch(spec=batch_spec) if batch_spec.cache:
            keyed_spec = replace(batch_spec, cache_key=_key(batch_spec, None))
            return replace(stage, work=replace(stage.work, spec=keyed_spec))
        case _:
            return stage


def _key(spec: UdfSpec | BatchSpec, constants: Any) -> bytes:
    if not (job_folder() or get_config().cache_dir):
        raise InvalidArgumentError(
            f"{spec.name!r} has cache=True, but there is no place to store its results; set "
            'ps.set_config(cache_dir="...") or PENSTOCK_CACHE_DIR, or write with resume=True.'
        )
    found = code_identity((spec, constants))
    if found.opaque:
        log.warning(
            "%r has cache=True and uses %s, whose content is unknown: results are cached as if all objects of "
            "that type were equal",
            *(spec.name, ", ".join(found.opaque)),
        )
    return found.digest
