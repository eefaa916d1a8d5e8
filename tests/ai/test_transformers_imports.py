"""An encoder starts without large packages that it does not need; what needs them gets them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.ai.local.checkpoint import functions_imported_later
from tests.ai.test_transformers_packed import save_tiny

EMBEDS = """
import sys
import penstock as ps
texts = ps.from_pydict({"text": ["a joy"]})
texts.select(ps.col("text").embed_text(model=sys.argv[1], device="cpu")).collect()
print(*sorted({"scipy", "sklearn"} & set(sys.modules)))
from transformers.loss.loss_for_object_detection import linear_sum_assignment
print(*linear_sum_assignment([[2, 1], [1, 2]])[1])
"""


def test_an_encoder_of_transformers_starts_without_scipy_and_scikit_learn(tmp_path: Path) -> None:
    model = save_tiny(tmp_path, "qwen3", "lasttoken")
    run = subprocess.run([sys.executable, "-c", EMBEDS, model], stdout=subprocess.PIPE, text=True, check=True)
    assert run.stdout.splitlines() == ["", "1 0"]


def test_a_function_imports_its_module_at_the_first_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_package").mkdir()
    (tmp_path / "slow_package" / "__init__.py").touch()
    (tmp_path / "slow_package" / "parts.py").write_text("def double(x):\n    return 2 * x\nclass Part: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        with functions_imported_later("slow_package.parts"):
            from slow_package.parts import double  # type: ignore[import-not-found]

            stand_in = sys.modules["slow_package.parts"]
        assert not {"slow_package", "slow_package.parts"} & set(sys.modules)
        assert double(4) == 8  # imports it
        from slow_package.parts import Part

        assert stand_in.Part is Part
        with functions_imported_later("slow_package.parts"):
            from slow_package.parts import Part as SamePart
        assert SamePart is Part  # a module that is imported already stays as it is
    finally:
        for name in ("slow_package", "slow_package.parts"):
            sys.modules.pop(name, None)
