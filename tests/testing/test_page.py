"""What docs/guides/testing.md lists."""

from __future__ import annotations

from penstock.testing import faults
from tests.architecture.imports import ROOT


def test_every_fault_is_on_the_page() -> None:
    page = (ROOT / "docs" / "guides" / "testing.md").read_text()
    kinds = [kind.__name__ for kind in faults.Fault.__subclasses__()]
    assert [name for name in kinds if f"`{name}(" not in page] == []
