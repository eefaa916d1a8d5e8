"""Record what Daft's functions return: ``.venv-peers/bin/python scripts/record_peers.py``.

The results are the expected values of ``tests/compat/``. An expression that Daft refuses is recorded with its error.
"""

import importlib.util
import json
from pathlib import Path

import daft
import daft.functions

COMPAT = Path(__file__).parent.parent / "tests" / "compat"


def main() -> None:
    spec = importlib.util.spec_from_file_location("samples", COMPAT / "samples.py")
    samples = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(samples)
    names = {"F": daft.functions, "col": daft.col, "lit": daft.lit}
    for group, expressions in samples.EXPRESSIONS.items():
        df = daft.from_arrow(samples.table(group))
        results = {}
        for text in expressions:
            try:
                results[text] = samples.recorded(df.select(eval(text, names).alias("x")).to_arrow())
            except Exception as exc:
                results[text] = {"error": str(exc).splitlines()[0]}
        path = COMPAT / "recorded" / f"{group}.json"
        lines = ",\n".join(f"{json.dumps(text)}: {json.dumps(result)}" for text, result in results.items())
        path.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
