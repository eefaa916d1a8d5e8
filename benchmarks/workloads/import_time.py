"""Import: `import penstock` beside importing pyarrow and numpy alone (plain)."""

# ruff: noqa: F401

TARGETS = [("work_s", 1.4, "plain")]
MIN_REPEAT = 15


def penstock(run):
    with run.working():
        import penstock
    return penstock.__file__ is None  # a bare folder would be imported in no time


def plain(run):
    with run.working():
        import numpy
        import pyarrow
    return False
