"""Penstock: batch inference over large datasets. ``import penstock as ps``."""

from penstock.config import config, get_config, set_config
from penstock.dataframe import DataFrame
from penstock.expr.column import Expression, col, element, lit, when
from penstock.protocols import ReadRequest, ReadTask, Sink, Source, Writer
from penstock.runners import set_runner_local, set_runner_ray
from penstock.types import DataType, Field, Schema, Series
from penstock.udf.compute import ActorPoolStrategy, TaskPoolStrategy
from penstock.udf.decorators import cls, func, method
