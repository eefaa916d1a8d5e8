"""Keys of code: equal in every process for equivalent code, different for different code."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import os
import random
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pydantic
import pytest

import penstock as ps
from penstock.plan.identity.code_keys import code_identity, code_key
from penstock.storage.secret import Secret


def made(source: str, name: str = "f") -> Any:
    """Return what a script of the user's defines."""
    scope: dict[str, Any] = {"__name__": "a_script"}
    exec(source, scope)
    return scope[name]


BASE = """
import math
K = 3
def helper(x):
    return x * K
def f(x, y=1, *, z=2):
    "What it does."
    return helper(x) + y + math.sqrt(z) + 10
"""

SAME = {
    "a comment": "# a comment\n" + BASE.replace("    return helper", "    # why\n    return helper"),
    "moved": BASE.replace("def f(", "\n\n\nunrelated = 7\n\ndef f("),
    "another docstring": BASE.replace('"What it does."', '"What it does, in more words."'),
    "no docstring": BASE.replace('    "What it does."\n', ""),
    "an unused global": BASE + "\nOTHER = 5\n",
    "annotations": BASE.replace("def f(x, y=1", "def f(x: int, y: int = 1"),
}
DIFFERENT = {
    "the body": BASE.replace("+ 10", "- 10"),
    "a constant": BASE.replace("+ 10", "+ 11"),
    "a default": BASE.replace("y=1", "y=2"),
    "a default by keyword": BASE.replace("z=2", "z=3"),
    "a global": BASE.replace("K = 3", "K = 4"),
    "a helper": BASE.replace("x * K", "x + K"),
    "a library function": BASE.replace("math.sqrt", "math.cbrt"),
    "an argument's name": BASE.replace("(x, y=1", "(x, w=1").replace("+ y +", "+ w +"),
    "a generator": BASE.replace("return helper(x)", "yield helper(x)"),
    "async": BASE.replace("def f(", "async def f("),
}


@pytest.mark.parametrize("change", SAME)
def test_equivalent_code_has_the_same_key(change: str) -> None:
    assert code_key(made(SAME[change])) == code_key(made(BASE))


@pytest.mark.parametrize("change", DIFFERENT)
def test_different_code_has_another_key(change: str) -> None:
    assert code_key(made(DIFFERENT[change])) != code_key(made(BASE))


def test_nested_functions_and_closures() -> None:
    source = """
def make(factor):
    def f(x):
        return [y * factor for y in x if y in {"a", "b"}]
    return f
f = make(2)
"""
    assert code_key(made(source)) == code_key(made(source))
    assert code_key(made(source.replace("make(2)", "make(3)"))) != code_key(made(source))
    assert code_key(made(source.replace('"b"}', '"c"}'))) != code_key(made(source))


def test_functions_that_call_each_other() -> None:
    source = "def f(n):\n    return g(n - 1) if n else 0\ndef g(n):\n    return f(n) + 1\n"
    assert code_key(made(source)) == code_key(made(source))
    assert code_key(made(source)) != code_key(made(source.replace("+ 1", "+ 2")))


CLASS = """
class Parent:
    SCALE = 2
    def scaled(self, x):
        return x * self.SCALE
class f(Parent):
    def __init__(self, a):
        super().__init__()
        self.a = a
    @property
    def double(self):
        return self.a * 2
    @staticmethod
    def half(x):
        return x / 2
    def __call__(self, x):
        return self.scaled(x)
"""


@pytest.mark.parametrize("change", [("SCALE = 2", "SCALE = 3"), ("self.a * 2", "self.a * 3"), ("x / 2", "x / 3")])
def test_a_class_is_its_methods_attributes_and_bases(change: tuple[str, str]) -> None:
    assert code_key(made(CLASS)) == code_key(made("# moved\n" + CLASS))
    assert code_key(made(CLASS.replace(*change))) != code_key(made(CLASS))


def test_an_instance_is_its_class_and_state() -> None:
    cls = made(CLASS)
    assert code_key(cls(1)) == code_key(cls(1)) != code_key(cls(2))
    assert code_key(cls(1)) != code_key(made(CLASS.replace("x / 2", "x / 3"))(1))
    assert code_key(cls(1).scaled) == code_key(cls(1).scaled) != code_key(cls(2).scaled)


DECORATED = """
import functools
import penstock as ps
def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper
@logged
def g(x):
    return x + 1
h = functools.lru_cache(functools.partial(g, 4))
@ps.func
def inner(x: int) -> int:
    return g(x)
@ps.func(max_retries=3)
def f(x: int) -> int:
    return inner(x)
@ps.cls
class Model:
    def __init__(self, size):
        self.size = size
    def __call__(self, x: int) -> int:
        return inner(x)
"""


@pytest.mark.parametrize("name", ["f", "g", "h", "inner", "Model"])
def test_decorators_are_seen_through(name: str) -> None:
    assert code_key(made(DECORATED, name)) == code_key(made(DECORATED.replace("max_retries=3", "cpus=2"), name))
    assert code_key(made(DECORATED, name)) != code_key(made(DECORATED.replace("x + 1", "x + 2"), name))


def test_a_function_that_a_library_wraps_is_known_by_its_name() -> None:
    import ray

    found = code_identity(made("import ray\ndef f(x):\n    return ray.get_runtime_context().get_node_id()\n"))
    assert ray.get_runtime_context.__wrapped__  # type: ignore[attr-defined]
    assert not found.opaque


def test_a_cls_is_known_by_its_arguments() -> None:
    model = made(DECORATED, "Model")
    assert code_key(model(1)) == code_key(model(1)) != code_key(model(2))
    assert code_key(model(1).__call__) == code_key(model(1).__call__)
    assert code_key(model(1)(ps.col("a"))) == code_key(model(1)(ps.col("a"))) != code_key(model(2)(ps.col("a")))


def test_helpers_in_modules_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are reached through the module, or imported inside the function, without importing them."""
    package = tmp_path / f"helpers_{tmp_path.name.replace('-', '_')}"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "deep.py").write_text("DEEP = 1\n")
    (package / "scoring.py").write_text("from .deep import DEEP\ndef score(x):\n    return x + 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    lazily = made(f"def f(x):\n    from {package.name}.scoring import score\n    return score(x)\n")
    before = code_key(lazily)
    assert f"{package.name}.scoring" not in sys.modules
    assert code_key(lazily) == before
    (package / "scoring.py").write_text("from .deep import DEEP\ndef score(x):\n    return x + 2\n")
    assert code_key(lazily) != before

    through = made(f"import {package.name}.scoring as s\nSCALE = 1\ndef f(x):\n    return s.score(x) * SCALE\n")
    before = code_key(through)
    scoring = sys.modules[f"{package.name}.scoring"]
    exec("def score(x):\n    return x + 3\n", vars(scoring))
    assert code_key(through) != before


@dataclasses.dataclass
class Point:
    x: int
    names: set[str]


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Review(pydantic.BaseModel):
    stars: int = 3


VALUES: list[tuple[Any, Any]] = [
    (1, 1.0), (1, True), (0.0, -0.0), ("a", b"a"), ("1", 1), (None, "None"), ((1, 2), [1, 2]),
    ((1, (2, 3)), ((1, 2), 3)),
    (["ab"], ["a", "b"]), ({"a": 1}, {"a": 2}), ({"a", "b"}, {"a", "c"}), ({"a"}, frozenset({"a"})),
    (list(range(100)), list(range(1, 101))), ([1] * 100, [True] * 100), (math.inf, -math.inf),
    (Point(1, {"a", "b"}), Point(1, {"a"})), (Color.RED, Color.BLUE), (Review(stars=1), Review(stars=2)),
    (np.arange(3), np.arange(3).astype("int32")), (np.zeros((2, 3)), np.zeros((3, 2))), (np.float32(1), np.float64(1)),
    (np.array(["a", None], object), np.array(["a", "b"], object)), (pa.table({"a": [1]}), pa.table({"b": [1]})),
    (pa.array([1, None]), pa.array([1, 2])), (pa.scalar(1), pa.scalar(1.0)), (pa.int64(), pa.int32()),
    (re.compile("a"), re.compile("a", re.IGNORECASE)), (ps.col("a") + 1, ps.col("a") + 2), (range(3), range(4)),
    (functools.partial(int, base=2), functools.partial(int, base=3)), (list[int], list[str]), ("\ud800", "\ud801"),
    (os.path.join, os.path.split), ("a".split, "b".split), (ps.DataType.int64(), ps.DataType.string()),
]  # fmt: skip


@pytest.mark.parametrize(
    "pair", VALUES, ids=[f"{number}-{type(first).__name__}" for number, (first, _) in enumerate(VALUES)]
)
def test_values_count_by_type_and_value(pair: tuple[Any, Any]) -> None:
    assert code_key(pair[0]) == code_key(pair[0]) != code_key(pair[1])


def test_arrow_data_counts_by_value_however_it_is_cut() -> None:
    whole = pa.table({"a": [1, 2, None, 4], "t": ["a", "b", "c", None]})
    cut = pa.concat_tables([whole.slice(0, 1), whole.slice(1)])
    assert code_key(whole) == code_key(cut) == code_key(pa.concat_tables([whole, whole]).slice(4))


def test_a_list_that_holds_itself() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert len(code_key(loop)) == 16


def test_a_pydantic_class_is_its_schema_and_its_own_code() -> None:
    source = """
from pydantic import BaseModel, Field, field_validator
class f(BaseModel):
    stars: int = Field(3, ge=1)
    @field_validator("stars")
    @classmethod
    def known(cls, value):
        return value + 0
"""
    assert code_key(made(source)) == code_key(made(source))
    for change in (
        ("stars: int", "stars: float"),
        ("ge=1", "ge=2"),
        ("Field(3", "Field(4"),
        ("value + 0", "value + 1"),
    ):
        assert code_key(made(source.replace(*change))) != code_key(made(source)), change


def test_a_secret_is_no_part_of_a_key() -> None:
    assert code_key(Secret("sk-one")) == code_key(Secret("sk-two"))
    assert not code_identity(Secret("sk-one")).opaque


def test_opaque_types_are_named() -> None:
    with open(os.devnull) as file:
        found = code_identity({"lock": threading.Lock(), "file": file, "ok": 1})
        assert found.opaque == ("_io.TextIOWrapper", "_thread.lock")
        assert found.digest != code_key({"lock": threading.Lock(), "file": file, "ok": 2})
    executor = made(
        "import threading\nclass Client:\n    def __init__(self):\n        self.lock = threading.Lock()\nf = Client()"
    )
    assert code_identity(executor).opaque == ("_thread.lock",)
    assert code_identity(threading.Semaphore()).opaque == ("threading.Semaphore",)


SCRIPT = """
import enum, functools, re, sys
import numpy as np
import pydantic
import penstock as ps
from penstock.plan.identity.code_keys import code_key
WORDS = {"alpha", "beta", "gamma", "delta"}
class Kind(enum.Enum):
    A = "a"
class Form(pydantic.BaseModel):
    kind: Kind
    words: set[str] = WORDS
@ps.func
def helper(x: str) -> bool:
    return x in WORDS or x in {"one", "two", "three"} or Kind("a") is Kind.A
@ps.cls
class Model:
    names = frozenset(WORDS)
    def __init__(self, scale): self.scale = scale
    def __call__(self, x: str) -> bool: return super().__eq__(self) or helper(x)
model = Model(np.arange(3))
things = [helper, Model, model, model(ps.col("a")), Form, Form(kind="a"), lambda x: [y for y in WORDS], re.compile("x")]
things += [functools.partial(helper, x="a"), {word: len(word) for word in WORDS}, ps.col("a").is_in(["a"])]
print(" ".join(code_key(thing).hex() for thing in things))
"""


def test_keys_are_the_same_in_another_process(tmp_path: Path) -> None:
    """Also from another folder and file, further down in it, with other hashes of strings."""
    found = set()
    for seed, name in (("1", "one.py"), ("2", "two.py")):
        (tmp_path / name).write_text("\n" * int(seed) + SCRIPT)
        env = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, str(tmp_path / name)], env=env, check=True, capture_output=True, text=True
        )
        found.add(done.stdout)
    assert len(found) == 1
    assert len(set(found.pop().split())) == 11


LIBRARY_FUNCTIONS = ["pa.table", "pc.add", "np.random.rand", "np.add", "random.random", "pa.Table.from_pydict"]


@pytest.mark.parametrize("name", LIBRARY_FUNCTIONS)
@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    return {name}(x)\n",
        "g = {name}\ndef f(x):\n    return g(x)\n",
        "def f(x, g={name}):\n    return g(x)\n",
        "def make(g):\n    return lambda x: g(x)\nf = make({name})\n",
        "f = {name}\n",
    ],
)
def test_functions_of_libraries_count_by_name_however_they_are_made(source: str, name: str) -> None:
    imports = "import random\nimport numpy as np\nimport pyarrow as pa\nimport pyarrow.compute as pc\n"
    f = made(imports + source.format(name=name))
    before = code_identity(f)
    np.random.rand(), random.random()  # the state of generators that libraries keep is no part of a function's key
    assert code_identity(f) == before
    assert before.opaque == ()
    assert code_key(made(imports + source.format(name="pa.chunked_array"))) != before.digest


def test_a_class_that_fails_on_inspection_counts_by_type() -> None:
    class Broken(type):
        @property
        def __bases__(cls) -> Any:  # type: ignore[override]
            raise RuntimeError("not here")

    class Thing(metaclass=Broken):
        def __reduce_ex__(self, protocol: Any) -> Any:
            raise TypeError("not to be pickled")

    assert code_identity(Thing()).opaque == (f"{__name__}.{Thing.__qualname__}",)


USING = """
import math
THRESHOLD, CALLS, API_KEY = 3, [], "sk-1"
def helper(x):
    return x * math.pi
def make(factor):
    def f(x, y=1):
        CALLS.append(x)
        return helper(x) * factor + y > THRESHOLD and API_KEY
    return f
f = make(2)
"""


def test_what_a_function_uses_is_listed_with_its_values() -> None:
    uses = dict(code_identity(made(USING)).uses)
    assert uses.pop("the global API_KEY of function f").startswith("str, digest ")
    codes = {name for name, value in uses.items() if name.startswith("the code of function ")}
    assert codes == {"the code of function f", "the code of function helper"}
    assert {name: value for name, value in uses.items() if name not in codes} == {
        "the global THRESHOLD of function f": 3,
        "the global CALLS of function f": [],
        "the global math.pi of function helper": math.pi,
        "the closure variable factor of function f": 2,
        "the default y of function f": 1,
    }


def test_values_count_as_they_are_when_the_identity_is_taken() -> None:
    f = made(USING)
    before = code_identity(f)
    f(1)
    after = code_identity(f)
    changed = {name for name in after.uses if after.uses[name] != before.uses[name]}
    assert after.digest != before.digest
    assert changed == {"the global CALLS of function f"}
