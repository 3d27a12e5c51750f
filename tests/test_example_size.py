"""Kernels of the Hopper examples stay short enough to be read in one go."""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import tokenize
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from tlxc.frontend.dependencies import collect
from tlxc.runtime.kernel import Kernel

EXAMPLES = Path(__file__).parent.parent / "examples"
MOST = 200  # lines of a kernel and of all that it calls
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(fn: Callable[..., Any]) -> int:
    """Lines of a function that hold code: no docstrings, comments or empty lines."""
    text = inspect.cleandoc("\n" + inspect.getsource(fn))
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _LAYOUT
        for line in range(token.start[0], token.end[0] + 1)
    }
    definition = ast.parse(text).body[0]
    assert isinstance(definition, ast.FunctionDef)
    if ast.get_docstring(definition) is not None:
        docstring = definition.body[0]
        lines -= set(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return len(lines)


def functions_of(kernel: Kernel) -> set[FunctionType]:
    """The kernel's function and those of the examples that it calls, at any depth."""
    source = kernel.__tlxc_source__
    return {source.fn, *(read.value for read in collect(source).reads if isinstance(read.value, FunctionType))}


def test_code_lines() -> None:
    assert code_lines(functions_of) == 3 and code_lines(code_lines) == 14


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("hopper_*.py")))
def test_kernels_are_short(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    kernels = [value for value in vars(importlib.import_module(name)).values() if isinstance(value, Kernel)]
    assert kernels
    for kernel in kernels:
        lines = {fn.__name__: code_lines(fn) for fn in functions_of(kernel)}
        assert sum(lines.values()) <= MOST, lines
