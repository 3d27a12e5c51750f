"""The folders of tlxc import each other only as the table in docs/architecture.md says, and `import tlxc` is light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tlxc"
# Beside the layers, and imports none of them: diagnostics, the garbage collector, the package itself with its version.
EVERYWHERE = {"collector", "errors", "__init__"}
# Imported where they are used, never at the top of a module that `import tlxc` or a use of `tlxc.tl` reaches.
HEAVY = {"numpy", "ml_dtypes", "llvmlite", "click", "platformdirs", "cuda", "hip", "torch"}
FILES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _statements(node: ast.AST, functions: bool) -> Iterator[ast.AST]:
    """Import statements that run: on import, or (`functions`) ever.  Those for the type checker do not run."""
    for child in ast.iter_child_nodes(node):
        if _is_type_checking(child) or (isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and not functions):
            continue
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        yield from _statements(child, functions)


@cache
def imports(path: Path, functions: bool) -> frozenset[str]:
    """Full names of the modules that a file imports; `from package import module` is `package.module`."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    found = set()
    for node in _statements(ast.parse(path.read_text(encoding="utf-8")), functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            full = ".".join(part for part in (base, node.module) if part)
            names = {f"{full}.{alias.name}" for alias in node.names}
            found |= (names & MODULES.keys()) | ({full} if names - MODULES.keys() else set())
    return frozenset(found)


def layer(module: str) -> str:
    """The row of the table that a module of tlxc belongs to: its folder, or its own name at the top."""
    return module.split(".")[1] if "." in module else "__init__"


@cache
def table() -> dict[str, set[str]]:
    """Layer -> the layers that it may import, as docs/architecture.md says."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `tlxc/(\w+)(?:/|\.py)` \|[^|]*\| ([^|]*) \|$", text, re.MULTILINE)
    return {name: set() if allowed == "nothing" else set(allowed.split(", ")) for name, allowed in rows}


def test_table_has_a_row_for_each_layer_and_no_other() -> None:
    assert set(table()) == {layer(module) for module in MODULES} - EVERYWHERE - {"__main__"}


def test_no_arrow_points_back() -> None:
    """The table has no cycle: each row follows those that it names."""
    placed: set[str] = set()
    waiting = {name: allowed - {"all"} for name, allowed in table().items()}
    while waiting:
        ready = [name for name, allowed in waiting.items() if allowed <= placed]
        assert ready, f"these import each other in a circle: {waiting}"
        placed |= set(ready)
        waiting = {name: allowed for name, allowed in waiting.items() if name not in ready}


@pytest.mark.parametrize("path", FILES, ids=[module_name(path) for path in FILES])
def test_module_imports_what_its_layer_may(path: Path) -> None:
    own = layer(module_name(path))
    used = {layer(name) for name in imports(path, functions=True) if name.split(".")[0] == "tlxc"}
    used -= {own} | EVERYWHERE
    allowed = set() if own in EVERYWHERE else {"cli"} if own == "__main__" else table()[own]
    assert "all" in allowed or used <= allowed, f"{own} may import {sorted(allowed)}"


@pytest.mark.parametrize("path", FILES, ids=[module_name(path) for path in FILES])
def test_no_module_needs_torch(path: Path) -> None:
    """At the top of a module: functions may use the torch that the user has."""
    assert not any(name.split(".")[0] == "torch" for name in imports(path, functions=False))


def test_nothing_that_the_language_reaches_is_heavy() -> None:
    waiting = ["tlxc", "tlxc.language.tl", "tlxc.language.tlx", "tlxc.runtime.decorators", "tlxc.runtime.kernel"]
    seen: dict[str, frozenset[str]] = {}
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen[name] = imports(MODULES[name], functions=False)
        waiting += [n for n in seen[name] if n in MODULES]
        waiting += [parent for parent in (name.rpartition(".")[0],) if parent in MODULES]
    heavy = {(name, found) for name, used in seen.items() for found in used if found.split(".")[0] in HEAVY}
    assert not heavy


def _run(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_import_loads_no_heavy_module_and_no_driver() -> None:
    code = "import sys; before = set(sys.modules); import tlxc; from tlxc import tl, tlx, kernel; "
    loaded = _run(code + "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))").split()
    assert not HEAVY & set(loaded)


def test_import_takes_less_than_150_ms() -> None:
    """Over bare Python, in processor time, since other processes share the cores; the best of several."""

    def best(code: str) -> float:
        return min(float(_run(f"{code}; import time; print(time.process_time())")) for _ in range(5))

    assert best("import tlxc; from tlxc import tl, tlx, kernel") - best("pass") < 0.150
