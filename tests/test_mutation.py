"""A part of the mutation score (scripts/mutation.py): every 9th weakening of the kernels is reported or equivalent."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "mutation.py"


@pytest.fixture(scope="module")
def mutation() -> Any:
    spec = importlib.util.spec_from_file_location("mutation", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutation"] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def test_score_of_a_part(mutation: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["mutation.py", "--every", "9"])
    code = mutation.main()
    table = capsys.readouterr().out
    assert code == 0, table
    assert "score" in table
