"""docs/language.md lists every public name, with the parameters that it has."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tlxc
from tlxc import tl, tlx
from tlxc.frontend.globals import PYTHON_BUILTINS

TEXT = (Path(__file__).parent.parent / "docs" / "language.md").read_text(encoding="utf-8")
ENTRY = re.compile(r"`(tlxc|tlx|tl)\.(\w+)(?:\(([^`]*)\))?`")
# The first column of the tables
ENTRIES = [m for row in re.findall(r"^\| (`tl[^|]*) \|", TEXT, re.MULTILINE) for m in ENTRY.finditer(row)]
MODULES: dict[str, ModuleType] = {"tl": tl, "tlx": tlx, "tlxc": tlxc}
# Named where another name is explained, or no part of the language
ELSEWHERE = {"tlxc": {"tl", "tlx", "__version__"}}


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_listed_once(name: str) -> None:
    listed = Counter(m[2] for m in ENTRIES if m[1] == name)
    assert set(listed) == set(MODULES[name].__all__) - ELSEWHERE.get(name, set())
    assert max(listed.values()) == 1


@pytest.mark.parametrize("entry", [m for m in ENTRIES if m[3]], ids=lambda m: m[2])
def test_parameters_are_those_of_the_function(entry: re.Match[str]) -> None:
    parameters = _parameters(getattr(MODULES[entry[1]], entry[2]))
    assert entry[3].split(", ") == [name for name in parameters if name != "self"]


def _parameters(fn: Any) -> list[str]:
    """Names; the decorator is listed with its options, which stand in the overload that is called with them."""
    if fn is tlxc.kernel:
        return [p.name for p in inspect.signature(fn).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return list(inspect.signature(fn).parameters)


def test_methods_and_builtins_are_those_that_exist() -> None:
    own = {name for name in vars(tl.tensor) if not name.startswith("_")}
    row = next(line for line in TEXT.splitlines() if line.startswith("| `tl.tensor`"))
    listed = set(re.findall(r"\.(\w+)\b", row.partition("value:")[2]))
    assert listed == own - {"number", "type", "value", "__init__"}
    assert f"`{' '.join(PYTHON_BUILTINS)}`" in TEXT
