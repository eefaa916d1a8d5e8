"""Import: the names of a query (`DataFrame`, `col` ...) beside importing pyarrow and numpy alone (plain)."""

# ruff: noqa: F401

TARGETS = [("work_s", 1.4, "plain")]
MIN_REPEAT = 15


def penstock(run):
    with run.working():
        from penstock import DataFrame, col, func, read_parquet
    return False


def plain(run):
    with run.working():
        import numpy
        import pyarrow
    return False
