"""Outlines of functions, which spare a process the parsing of kernels that are in the cache: never out of date."""

from __future__ import annotations

import importlib
import json
import linecache
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from tlxc.frontend import source as source_module
from tlxc.frontend.outline import OUTLINES
from tlxc.frontend.source import Source
from tlxc.runtime import outlines

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))

KERNELS = '''
import functools
import helpers
from helpers import LIMIT, twice
from tlxc import tl

FACTOR = 3


def deco(text):
    return lambda fn: fn


@deco("""
def kernel(not, this):
""")
@deco(2)
def kernel(x, n: tl.constexpr, k=LIMIT):  # one line
    y = twice(x) + FACTOR * helpers.deep.thrice(x)
    if n:
        return helpers.MISSING
    values = [helpers.CONSTANT + i for i in range(n)]
    return y


class Holder:
    def method(self, x):
        return twice("""Less indented
    than the function.
    """)


def outer():
    factor = 2

    def inner(x):
        # a comment
        return x * factor

    return inner


def last(x): return x + LIMIT
'''
HELPERS = "import deep\n\nLIMIT, CONSTANT = 8, 1\n\n\ndef twice(x):\n    return x + x * CONSTANT\n"
DEEP = "def thrice(x):\n    return 3 * x\n"


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test begins, and leaves others, without outlines."""
    known, stored = dict(OUTLINES), dict(outlines._stored)
    OUTLINES.clear()
    outlines._stored.clear()
    yield
    OUTLINES.update(known)
    outlines._stored.update(stored)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(tmp_path))
    names = {"kernels": KERNELS, "helpers": HELPERS, "deep": DEEP}
    for name, text in names.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        sys.modules.pop(name, None)
    yield importlib.import_module("kernels")
    for name in names:
        sys.modules.pop(name, None)


def functions(module: ModuleType) -> list[FunctionType]:
    found = [value for value in vars(module).values() if isinstance(value, FunctionType)]
    return [fn for fn in found if fn.__module__ == module.__name__ and fn.__name__ != "<lambda>"]


def facts(source: Source) -> tuple[Any, ...]:
    return source.text, source.chains, source.digest(), [(r.name, r.value) for r in source.reads]


def test_what_is_known_of_a_function_is_what_parsing_says(module: ModuleType) -> None:
    for fn in (*functions(module), module.Holder.method, module.outer()):
        parsed, known = Source(fn), Source(fn)
        assert facts(parsed) == facts(known) and facts(known) == facts(Source(fn))
        assert parsed.text == textwrap.dedent(parsed.text) and parsed.text.startswith(f"def {fn.__name__}(")


@pytest.mark.parametrize("name", EXAMPLES)
def test_of_the_examples_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.delitem(sys.modules, "_support", raising=False)
    module = importlib.import_module(name)
    carried = [value.__tlxc_source__.fn for value in vars(module).values() if hasattr(value, "__tlxc_source__")]
    for fn in (*functions(module), *carried):
        assert facts(Source(fn)) == facts(Source(fn))


def test_a_function_that_ends_outside_of_its_indentation_is_parsed_each_time(module: ModuleType) -> None:
    source = Source(module.Holder.method)
    assert source.text.endswith('""")\n') and source.address not in OUTLINES
    assert Source(module.last).address not in OUTLINES and Source(module.last).chains and OUTLINES


EDITS = {
    "a helper": ("helpers.py", "x + x", "x - x"),
    "a constant that it reads": ("helpers.py", "LIMIT, CONSTANT = 8, 1", "LIMIT, CONSTANT = 9, 1"),
    "a constant of a helper": ("helpers.py", "LIMIT, CONSTANT = 8, 1", "LIMIT, CONSTANT = 8, 2"),
    "a function of a module of a module": ("deep.py", "3 * x", "4 * x"),
    "a constant of its own module": ("kernels.py", "FACTOR = 3", "FACTOR = 4"),
    "a name that was not there": ("helpers.py", "LIMIT,", "MISSING = 1\nLIMIT,"),
    "itself": ("kernels.py", "y = twice(x) +", "y = twice(x) -"),
    "what it calls": ("kernels.py", "helpers.deep.thrice", "helpers.twice"),
    "its default": ("kernels.py", "k=LIMIT", "k=7"),
}


def digest_elsewhere(folder: Path) -> dict[str, Any]:
    """In a new process that keeps outlines on disk: the digest, and how many functions were parsed."""
    code = (
        "import json, kernels\nfrom tlxc.frontend import source\nfrom tlxc.runtime import outlines\n"
        "parsed, parse = [], source._parse\n"
        "source._parse = lambda lines, first: (parsed.append(first), parse(lines, first))[1]\n"
        "s = source.Source(kernels.kernel)\noutlines.recall(s)\nd = s.digest()\noutlines.keep(s)\n"
        "print(json.dumps({'digest': d, 'parsed': len(parsed)}))"
    )
    path = os.pathsep.join([str(folder), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "TLXC_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_other_processes_parse_nothing(module: ModuleType, tmp_path: Path) -> None:
    first = digest_elsewhere(tmp_path)
    assert first["parsed"] == 3 and first["digest"] == Source(module.kernel).digest()
    assert digest_elsewhere(tmp_path) == {**first, "parsed": 0}
    moved = tmp_path / "kernels.py"
    moved.write_text("# a line more\n" + moved.read_text(encoding="utf-8"), encoding="utf-8")
    assert digest_elsewhere(tmp_path) == {**first, "parsed": 0}


@pytest.mark.parametrize("what", EDITS)
def test_every_edit_is_seen(what: str, module: ModuleType, tmp_path: Path) -> None:
    file, old, new = EDITS[what]
    first = digest_elsewhere(tmp_path)
    path = tmp_path / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    second = digest_elsewhere(tmp_path)
    assert second["digest"] != first["digest"] and second["parsed"] <= (3 if file == "kernels.py" else 1)
    path.write_text(text, encoding="utf-8")
    assert digest_elsewhere(tmp_path)["digest"] == first["digest"]


def test_a_damaged_file_is_no_outline(module: ModuleType, tmp_path: Path) -> None:
    first = digest_elsewhere(tmp_path)
    (file,) = (tmp_path / "cache" / "outlines").glob("*.tlxc")
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    assert digest_elsewhere(tmp_path) == first
    assert digest_elsewhere(tmp_path) == {**first, "parsed": 0}


def test_a_file_that_changes_under_a_running_process(module: ModuleType, tmp_path: Path) -> None:
    """Python runs the old function; its text is no longer that of the file, and what is read then is parsed."""
    before = Source(module.last).digest()
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS.replace("x + LIMIT", "x - LIMIT"), encoding="utf-8")
    linecache.checkcache(str(path))
    assert Source(module.last).digest() != before


def test_a_launch_that_finds_its_kernel_parses_nothing(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tlxc

    monkeypatch.setenv("TLXC_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "k.py").write_text(
        "import tlxc\nfrom helpers import twice\nfrom tlxc import tl\n\n\n@tlxc.kernel\n"
        "def k(x: tl.ptr(tl.int32)):\n    tl.store(x, twice(tl.load(x)))\n",
        encoding="utf-8",
    )
    kernel = importlib.import_module("k").k
    monkeypatch.delitem(sys.modules, "k")
    assert kernel.compile("sm_90").origin == "compiled"
    OUTLINES.clear()
    outlines._stored.clear()
    monkeypatch.setattr(source_module, "_parse", lambda lines, first: pytest.fail("it parses"))
    assert tlxc.kernel(kernel.__tlxc_source__.fn).compile("sm_90").origin == "cache"
