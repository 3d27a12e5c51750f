"""The grid of a launch as a function of the arguments: `--grid "cdiv(M, BM) * cdiv(N, BN)"`, in C."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tlxc.errors import TlxcError
from tlxc.frontend.signature import Signature
from tlxc.ir.types import Scalar, int1

_ALLOWED = "integer parameters, numbers, + - * // %, cdiv(a, b), min(a, b) and max(a, b)"
_OPERATORS: dict[type, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%"}
_FUNCTIONS: dict[str, Callable[[str, str], str]] = {
    "cdiv": lambda a, b: f"(({a} + {b} - 1) / {b})",
    "min": lambda a, b: f"({a} < {b} ? {a} : {b})",
    "max": lambda a, b: f"({a} > {b} ? {a} : {b})",
}


class GridTextError(TlxcError, ValueError):
    """A text that gives no grid."""


@dataclass
class CGrid:
    """CTAs along x, y and z as expressions in C on `int64_t`; `used`: the parameters of the kernel in them."""

    extents: list[str] = field(default_factory=list)
    used: list[str] = field(default_factory=list)


def parse_grid(text: str, signature: Signature, c_name: Callable[[str], str] = str) -> CGrid:
    """One to three Python expressions of the kernel's integers, with commas between; no number in them is negative.

    `c_name` gives what a parameter is called in C.
    """
    variables = {
        name
        for name, argument in signature.arguments
        if isinstance(argument.type, Scalar) and not argument.type.dtype.is_float and argument.type.dtype is not int1
    }
    constants = {name: value for name, value in signature.constants if type(value) is int}
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise GridTextError(f"The grid {text!r} is no Python expression: {error.msg}.") from None
    parts = body.elts if isinstance(body, ast.Tuple) else [body]
    if not 1 <= len(parts) <= 3:
        raise GridTextError(f"The grid {text!r} has {len(parts)} extents; give one to three.")
    translate = _Translator(text, variables, constants, c_name)
    extents = [translate(part) for part in parts] + ["1"] * (3 - len(parts))
    return CGrid(extents, [name for name, _ in signature.arguments if name in translate.used])


class _Translator:
    """From Python to C; collects the variables that it meets."""

    def __init__(
        self, text: str, variables: set[str], constants: Mapping[str, int], c_name: Callable[[str], str]
    ) -> None:
        self.text, self.variables, self.constants, self.c_name = text, variables, constants, c_name
        self.used: set[str] = set()

    def __call__(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return str(node.value)
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return f"({self(node.left)} {_OPERATORS[type(node.op)]} {self(node.right)})"
        if isinstance(node, ast.Call) and not node.keywords and len(node.args) == 2:
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in _FUNCTIONS:
                a, b = map(self, node.args)
                return _FUNCTIONS[name](a, b)
        raise self._error(f"`{ast.unparse(node)}`")

    def _name(self, name: str) -> str:
        if name in self.constants:
            return str(self.constants[name])
        if name not in self.variables:
            raise self._error(f"`{name}`, which is no integer parameter of the kernel")
        self.used.add(name)
        return f"(int64_t){self.c_name(name)}"

    def _error(self, what: str) -> GridTextError:
        return GridTextError(f"The grid {self.text!r} has {what}; it may consist of {_ALLOWED}.")
