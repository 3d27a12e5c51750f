"""A Python function as the frontend sees it: its text, its AST with true locations, its parameters and its surroundings.

Text and AST are read when they are first wanted, so that decorating a function costs nothing.  Only what needs no text
is refused at once: lambdas, coroutines, generators and `*args`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from tlxc.errors import CompileError, Location
from tlxc.language.core import constexpr

if TYPE_CHECKING:
    from .dependencies import Change, Dependencies, Read

MISSING = inspect.Parameter.empty


@dataclass(frozen=True)
class Parameter:
    """One parameter; `annotation` and `default` are MISSING where the function has none.  An annotation written as text
    is evaluated where that is possible and else stays a string."""

    name: str
    annotation: Any
    default: Any
    keyword_only: bool

    @property
    def constexpr(self) -> bool:
        """Whether the parameter is annotated `tl.constexpr`."""
        return self.annotation is constexpr


class Source:
    """A Python function that can be compiled as a kernel or inlined into one.  `Source.of(fn)` makes one per function."""

    def __init__(self, fn: FunctionType) -> None:
        self.fn = fn
        self.name = fn.__code__.co_name
        self.file = fn.__code__.co_filename
        self.first_line = fn.__code__.co_firstlineno

    @classmethod
    def of(cls, fn: Any) -> Source:
        """The Source of a function, or of an object that carries one (a kernel)."""
        carried = getattr(fn, "__tlxc_source__", None)
        if isinstance(carried, Source):
            return carried
        if not isinstance(fn, FunctionType):
            raise CompileError(
                "only a Python function can be compiled",
                found=f"{fn!r} ({type(fn).__name__})",
                fix="put the code into a function that is written with `def`",
            )
        made = _SOURCES.get(fn)
        if made is None:
            _check_kind(fn)
            made = _SOURCES.setdefault(fn, cls(fn))
        return made

    def __repr__(self) -> str:
        return f"<Source of {self.name} at {self.file}:{self.first_line}>"

    # ------------------------------------------------------------------------------------------------------ the text
    @cached_property
    def _read(self) -> tuple[list[str], int, ast.FunctionDef]:
        """The lines of the function with their decorators, how many lines stand before them, and the AST of its `def`.

        Indented text is parsed under an `if`, so that columns stay those of the file."""
        try:
            lines, first = inspect.getsourcelines(self.fn.__code__)
        except (OSError, TypeError) as error:
            raise _no_source(self.name, self.file) from error
        before = first - 1
        if lines and lines[0][:1].isspace():
            lines, before = ["if 1:\n", *lines], before - 1
        try:
            tree = ast.parse("".join(lines), self.file)
        except SyntaxError as error:  # the file was edited after it was imported
            raise _no_source(self.name, self.file) from error
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == self.name:
                return lines, before, node
        raise _no_source(self.name, self.file)

    @property
    def node(self) -> ast.FunctionDef:
        """The AST of the function; line numbers in it are relative, see `location`."""
        return self._read[2]

    @cached_property
    def text(self) -> str:
        """The function from `def` to its end without common indentation: neither decorators nor line numbers are in it."""
        lines, _, node = self._read
        return textwrap.dedent("".join(lines[node.lineno - 1 : node.end_lineno]))

    def location(self, node: ast.AST, callers: tuple[Location, ...] = ()) -> Location:
        """Where a node of `self.node` stands in the file; of a node of several lines, the part on its first line."""
        lines, before, _ = self._read
        line: int = getattr(node, "lineno", self.node.lineno)
        text = lines[line - 1].rstrip("\n")
        start: int = getattr(node, "col_offset", 0)
        end: int = getattr(node, "end_col_offset", start)
        if getattr(node, "end_lineno", line) != line:
            end = len(text.encode())
        if not text.isascii():  # AST columns count bytes
            encoded = text.encode()
            start, end = len(encoded[:start].decode()), len(encoded[:end].decode())
        return Location(self.file, line + before, start, end, callers)

    # ------------------------------------------------------------------------------------------------- the signature
    @cached_property
    def signature(self) -> inspect.Signature:
        """For binding the arguments of a call; annotations in it are as Python keeps them."""
        code = self.fn.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        defaults = self.fn.__defaults__ or ()
        first_default = code.co_argcount - len(defaults)
        made = []
        for i, name in enumerate(names):
            if i < code.co_posonlyargcount:
                kind = inspect.Parameter.POSITIONAL_ONLY
            elif i < code.co_argcount:
                kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            else:
                kind = inspect.Parameter.KEYWORD_ONLY
            if kind is inspect.Parameter.KEYWORD_ONLY:
                default = (self.fn.__kwdefaults__ or {}).get(name, MISSING)
            else:
                default = defaults[i - first_default] if i >= first_default else MISSING
            made.append(inspect.Parameter(name, kind, default=default))
        return inspect.Signature(made)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        annotations = self._annotations()
        return tuple(
            Parameter(
                p.name,
                annotations.get(p.name, MISSING),
                p.default.value if isinstance(p.default, constexpr) else p.default,
                p.kind is inspect.Parameter.KEYWORD_ONLY,
            )
            for p in self.signature.parameters.values()
        )

    def _annotations(self) -> dict[str, Any]:
        try:
            raw = dict(self.fn.__annotations__)
        except NameError as error:  # Python 3.14 evaluates them when they are asked for
            raise CompileError(
                f"an annotation of `{self.name}` cannot be evaluated", found=str(error), fix="import or define that name"
            ) from error
        return {name: self._evaluated(a) if isinstance(a, str) else a for name, a in raw.items()}

    def _evaluated(self, annotation: str) -> Any:
        scope = {name: value for name, value in self.closure()}
        try:
            return eval(annotation, self.fn.__globals__, scope)
        except Exception:  # any text may stand there; a type name such as "i32" is for the reader of the parameters
            return annotation

    # ---------------------------------------------------------------------------------------------- the surroundings
    def closure(self) -> Iterator[tuple[str, Any]]:
        """Names and present values of the enclosing functions' variables that the function uses."""
        for name, cell in zip(self.fn.__code__.co_freevars, self.fn.__closure__ or ()):
            try:
                yield name, cell.cell_contents
            except ValueError:  # not assigned yet
                continue

    def cell(self, name: str) -> Any:
        """The closure cell of a variable of an enclosing function, or None."""
        free = self.fn.__code__.co_freevars
        return (self.fn.__closure__ or ())[free.index(name)] if name in free else None

    # ----------------------------------------------------------------------------------------------------- cache keys
    @cached_property
    def dependencies(self) -> Dependencies:
        from .dependencies import collect

        return collect(self)

    def digest(self) -> str:
        """Hash of the text of the function, of every function that it calls by name, and of every module constant that
        they read.  Line numbers and decorators do not enter it."""
        return self.dependencies.digest

    @property
    def reads(self) -> tuple[Read, ...]:
        """The module constants and functions behind `digest`, with the values that they had."""
        return self.dependencies.reads

    def changed(self) -> Change | None:
        """The first module constant or function that is no longer what was compiled in; None in the usual case.

        One identity comparison per name: it runs at every launch."""
        for read in self.dependencies.reads:
            if read.now() is not read.value and (change := read.change()):
                return change
        return None


_SOURCES: weakref.WeakKeyDictionary[FunctionType, Source] = weakref.WeakKeyDictionary()

_REFUSED_FLAGS = (
    (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR, "is a coroutine", "write `def` without `async`"),
    (inspect.CO_GENERATOR, "is a generator", "store results through pointers and remove `yield`"),
    (inspect.CO_VARARGS, "takes `*args`", "name every parameter, or pass one tuple"),
    (inspect.CO_VARKEYWORDS, "takes `**kwargs`", "name every parameter"),
)


def _check_kind(fn: FunctionType) -> None:
    code: CodeType = fn.__code__
    if code.co_name == "<lambda>":
        raise CompileError(
            f"a lambda cannot be compiled: the one at {code.co_filename}:{code.co_firstlineno} has no source of its own",
            fix="write it as a function with `def`",
        )
    for flag, what, fix in _REFUSED_FLAGS:
        if code.co_flags & flag:
            raise CompileError(
                f"`{fn.__name__}` at {code.co_filename}:{code.co_firstlineno} {what}, which a kernel cannot", fix=fix
            )


def _no_source(name: str, file: str) -> CompileError:
    return CompileError(
        f"`{name}` cannot be compiled because Python has no source text for it ({file}); "
        "kernels and their helpers must be defined in a file, not typed at a prompt or made with exec()"
    )
