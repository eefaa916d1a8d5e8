"""Record what Daft and Ray Data return: ``.venv-peers/bin/python scripts/record_peers.py``.

The results are the expected values of ``tests/compat/``.
"""

import ast
import importlib.util
import json
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import daft
import daft.functions
import ray
import ray.data
import ray.data.aggregate
import ray.data.datatype
import ray.data.expressions
import ray.data.grouped_data

CLASSES = ("DataFrame", "Expression", "Window", "Series", "DataType", "Schema", "File")
AGGREGATE = "ray.data.aggregate"
COMPAT = Path(__file__).parent.parent / "tests" / "compat"


def main() -> None:
    write("names", public_names())
    samples = loaded("samples")
    names = {"F": daft.functions, "col": daft.col, "lit": daft.lit}
    for group, expressions in samples.EXPRESSIONS.items():
        df = daft.from_arrow(samples.table(group))
        found = {text: df.select(eval(text, names).alias("x")).to_arrow() for text in expressions}
        write(group, {text: samples.recorded(result) for text, result in found.items()})
    write("types", {text: samples.kinds(eval(text, {"D": daft.DataType})) for text in samples.TYPES})
    ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=200_000_000)
    with tempfile.TemporaryDirectory() as folder:
        write("ray", loaded("ray_programs").results(ray.data, ray.data.expressions, ray.data.aggregate, folder))
    found = loaded("ray_expressions").results(ray.data, ray.data.expressions, ray.data.datatype.DataType)
    write("ray_expressions", found)


def public_names() -> dict[str, dict[str, list[str]]]:
    """Return the public names of both systems, by the class or module that has them."""
    daft_owners = {
        "daft": daft.__all__,
        "daft.functions": daft.functions.__all__,
        **{f"daft.{each}": dir(getattr(daft, each)) for each in CLASSES},
        "GroupedDataFrame": dir(daft.dataframe.dataframe.GroupedDataFrame),
    }
    ray_owners = {
        "ray.data": [name for name in ray.data.__all__ if hasattr(ray.data, name)],
        "ray.data.Dataset": dir(ray.data.Dataset),
        "GroupedData": dir(ray.data.grouped_data.GroupedData),
        "ray.data.aggregate": [
            n for n, v in vars(ray.data.aggregate).items() if getattr(v, "__module__", "") == AGGREGATE
        ],
        "ray.data.expressions": ray.data.expressions.__all__,
        "ray.data.llm": llm_names(),
    }
    return {
        peer: {owner: sorted(name for name in set(names) if name[0] != "_") for owner, names in owners.items()}
        for peer, owners in (("daft", daft_owners), ("ray", ray_owners))
    }


def llm_names() -> list[str]:
    """Read the names from the source: importing the module needs a package that Ray Data does without."""
    tree = ast.parse((Path(ray.data.__file__).parent / "llm.py").read_text())
    [names] = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"]
    return ast.literal_eval(names)


def loaded(name: str) -> ModuleType:
    """Import a module of the tests, without Penstock."""
    spec = importlib.util.spec_from_file_location(name, COMPAT / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(name: str, results: dict[str, Any]) -> None:
    """Write one result to a line."""
    lines = ",\n".join(f"{json.dumps(text)}: {json.dumps(result, default=float)}" for text, result in results.items())
    (COMPAT / "recorded" / f"{name}.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
