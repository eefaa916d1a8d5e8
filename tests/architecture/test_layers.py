"""A module imports only from lower layers, the imports form no cycle, and heavy packages wait until they are used."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.architecture.imports import Import, imports_of, package_imports, package_modules, package_nodes, resolve

# A top-level module or folder of the package stands in exactly one layer, as low as it can be.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "config", "events", "storage", "types", "protocols", "contracts"),
    ("media", "cost"),
    ("expr", "cache"),
    ("plan",),
    ("udf", "io", "engine", "observe", "relational"),
    ("ai", "similarity"),
    ("runners",),
    ("functions", "estimates", "frame", "jobs"),
    ("llm", "testing", "dashboard"),
    ("__init__", "cli", "compat", "__main__"),
)
LAYER = {name: number for number, names in enumerate(LAYERS, start=1) for name in names}

# Layers whose members may import each other; in the others they are independent.
SHARED_LAYERS = {1, 8, 9, 10}

# Lower parts that a part must still do without.
FORBIDDEN = {"ai": {"io", "engine", "observe"}}

# Packages that cost an import too much. Only the modules named below load one when they are imported themselves;
# everywhere else the import stands inside the function that uses it.
HEAVY = {
    *("ray", "torch", "vllm", "transformers", "sentence_transformers", "duckdb", "aiohttp", "uvloop", "pandas", "PIL"),
    *("cv2", "pydantic", "rich", "fsspec", "huggingface_hub", "lance", "av", "soundfile", "soxr", "pypdfium2"),
    *("simplejpeg", "adbc_driver_manager", "sqlalchemy", "deltalake", "pyiceberg", "datasets", "obstore", "boto3"),
    "pyarrow.dataset",
}
OWN_FILE: dict[str, set[str]] = {
    "penstock.runners.ray": {"ray"},
    **{
        f"penstock.runners.ray.{name}": {"ray"}
        for name in (
            "actors",
            "blocks",
            "calls",
            "cluster",
            "engines",
            "shuffle_work",
            "failures",
            "ledgers",
            "pool",
            "runner",
            "stage_requests",
            "stored",
            "worker",
        )
    },
    "penstock.frame.torch": {"torch"},
    "penstock.compat.ray.data.torch_pairs": {"torch"},
    "penstock.dashboard.server": {"aiohttp"},
    "penstock.ai.local.slot_cache": {"torch", "transformers"},
}


def part_of(module: str) -> str:
    """Return the part that a module belongs to: ``penstock.expr.nodes`` is in ``expr``."""
    name = module.removeprefix("penstock").removeprefix(".") or "__init__"
    return name.split(".")[0]


def layer_error(importer: str, imported: str) -> str | None:
    """Return what is wrong when part ``importer`` imports from part ``imported``, or None if nothing is."""
    for part in (importer, imported):
        if part not in LAYER:
            return f"{part!r} is in no layer: add it to LAYERS in tests/architecture/test_layers.py"
    if importer == imported:
        return None
    if imported in FORBIDDEN.get(importer, ()):
        return f"{importer!r} must do without {imported!r}"
    above, below = LAYER[importer], LAYER[imported]
    if above > below or (above == below and above in SHARED_LAYERS):
        return None
    return f"{importer!r} is in layer {above} and may not import {imported!r} of layer {below}"


def is_heavy(target: str, package: str) -> bool:
    return target == package or target.startswith(f"{package}.")


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of one import cycle, or an empty list."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_modules_import_only_from_lower_layers() -> None:
    errors = [
        f"{module} line {found.line}: {error}"
        for module, imports in package_imports().items()
        for found in imports
        if (imported := resolve(found.target, package_modules()))
        if (error := layer_error(part_of(module), part_of(imported)))
    ]
    assert not errors, "\n".join(errors)


def test_imports_form_no_cycle() -> None:
    """Lazy and type-only imports count too."""
    graph = {
        module: {
            imported
            for found in imports
            if (imported := resolve(found.target, package_modules())) and imported != module
        }
        for module, imports in package_imports().items()
    }
    assert not (cycle := find_cycle(graph)), " -> ".join(cycle)


def test_heavy_packages_are_imported_when_used() -> None:
    errors = [
        f"{module} line {found.line} imports {package} at module level; move it into the function that uses it"
        for module, imports in package_imports().items()
        for found in imports
        if not (found.is_lazy or found.is_typing)
        for package in HEAVY - OWN_FILE.get(module, set())
        if is_heavy(found.target, package)
    ]
    assert not errors, "\n".join(errors)


def test_imports_are_absolute() -> None:
    relative = [
        f"{module} line {node.lineno}"
        for module, module_nodes in package_nodes().items()
        for node in module_nodes
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not relative, f"relative imports in {', '.join(relative)}; write 'from penstock...'"


@pytest.mark.parametrize(
    ("importer", "imported", "is_allowed"),
    [
        ("config", "errors", True),
        ("plan", "expr", True),
        ("runners", "observe", True),
        ("ai", "udf", True),
        ("frame", "functions", True),
        ("expr", "functions", False),
        ("expr", "__init__", False),
        ("udf", "io", False),
        ("ai", "engine", False),
        ("engine", "runners", False),
        ("errors", "new_part", False),
    ],
)
def test_layer_table(importer: str, imported: str, is_allowed: bool) -> None:
    assert (layer_error(importer, imported) is None) == is_allowed


def test_every_kind_of_import_is_seen() -> None:
    source = """
import ray.data
from penstock import errors as e
if TYPE_CHECKING:
    from penstock.plan.nodes import Plan
try:
    import pandas
except ImportError:
    pass
class A:
    async def f(self):
        import torch
        importlib.import_module("penstock.sql")
"""
    assert list(imports_of(ast.parse(source))) == [
        Import("ray.data", 2),
        Import("penstock.errors", 3),
        Import("penstock.plan.nodes.Plan", 5, is_typing=True),
        Import("pandas", 7),
        Import("torch", 12, is_lazy=True),
        Import("penstock.sql", 13, is_lazy=True),
    ]


def test_a_cycle_is_found() -> None:
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert sorted(set(find_cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}}))) == ["a", "b", "c"]
