"""A Python function as the frontend sees it: its text, its AST with true locations, its parameters, its surroundings.

Text and AST are read when they are first wanted, so that decorating a function costs nothing.  Only what needs no text
is refused at once: lambdas, coroutines, generators and `*args`.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from tlxc.errors import CompileError, Location
from tlxc.language.core import constexpr

from .analysis import local_names, walk
from .outline import OUTLINES, Outline, address, outline

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


class _Parsed(NamedTuple):
    """The lines of a function with their decorators, how many lines stand before them, and the AST of its `def`.

    Indented text is parsed under an `if`, so that columns stay those of the file.  `own`: whether the lines, but for
    that `if`, are those that were found without parsing.
    """

    lines: list[str]
    before: int
    node: ast.FunctionDef
    own: bool


class Source:
    """A Python function to compile as a kernel or to inline into one; `Source.of(fn)` makes one per function."""

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
    def _lines(self) -> list[str]:
        """The lines of the function with their decorators, nearly always; `_read` knows when not."""
        return _lines_of(self.fn)

    @cached_property
    def _read(self) -> _Parsed:
        try:
            tree, lines, before = _parse(self._lines, self.first_line)
            own = True
        except SyntaxError:
            try:  # slower, but it follows strings and brackets to their end
                lines, first = inspect.getsourcelines(self.fn.__code__)
                tree, lines, before = _parse(lines, first)
                own = False
            except (OSError, SyntaxError) as error:  # the file was edited after it was imported
                raise _no_source(self.name, self.file) from error
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == self.name:
                return _Parsed(lines, before, node, own)
        raise _no_source(self.name, self.file)

    @cached_property
    def address(self) -> str:
        """Under which the outline of the function is kept."""
        return address(self.name, self._lines)

    @cached_property
    def _outlined(self) -> tuple[list[str], Outline]:
        """The lines of the function and its outline in them; it is parsed only where the outline is not known."""
        known = OUTLINES.get(self.address)
        if known is not None:
            return self._lines, known
        lines, _, node, own = self._read
        if not own:
            return lines, outline(node, self.nodes, self.local, shift=0)
        made = outline(node, self.nodes, self.local, shift=len(lines) - len(self._lines))
        return self._lines, OUTLINES.setdefault(self.address, made)

    @property
    def readable(self) -> bool:
        """Whether Python has the text."""
        try:
            return bool(self._outlined)
        except CompileError:
            return False

    @property
    def chains(self) -> tuple[tuple[str, ...], ...]:
        """Names from outside that stand in the function, each with the attributes that follow it."""
        return self._outlined[1].chains

    @property
    def node(self) -> ast.FunctionDef:
        """The AST of the function; line numbers in it are relative, see `location`."""
        return self._read.node

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the parameters and of the body, in the order of fields."""
        return [node for part in (self.node.args, *self.node.body) for node in walk(part)]

    @cached_property
    def local(self) -> set[str]:
        """Names that are variables of the function, by Python's scoping."""
        return local_names(self.node.args, self.nodes)

    @cached_property
    def text(self) -> str:
        """The function from `def` to its end without common indentation: no decorators, no line numbers."""
        lines, outlined = self._outlined
        return textwrap.dedent("".join(lines[outlined.first : outlined.last]))

    def location(self, node: ast.AST, callers: tuple[Location, ...] = ()) -> Location:
        """Where a node of `self.node` stands in the file; of a node of several lines, the part on its first line."""
        lines, before, *_ = self._read
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
        positional = self.fn.__defaults__ or ()
        defaults = dict(zip(reversed(code.co_varnames[: code.co_argcount]), reversed(positional)))
        defaults.update(self.fn.__kwdefaults__ or {})
        kinds = (
            [inspect.Parameter.POSITIONAL_ONLY] * code.co_posonlyargcount
            + [inspect.Parameter.POSITIONAL_OR_KEYWORD] * (code.co_argcount - code.co_posonlyargcount)
            + [inspect.Parameter.KEYWORD_ONLY] * code.co_kwonlyargcount
        )
        made = [inspect.Parameter(n, kind, default=defaults.get(n, MISSING)) for n, kind in zip(names, kinds)]
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
            summary = f"an annotation of `{self.name}` cannot be evaluated"
            raise CompileError(summary, found=str(error), fix="import or define that name") from error
        return {name: self._evaluated(name, a) if isinstance(a, str) else a for name, a in raw.items()}

    def _evaluated(self, name: str, annotation: str) -> Any:
        """What an annotation written as text means.  Any text may stand there: a type name such as "i32" is for the
        reader of the parameters.  What `from __future__ import annotations` hides from Python is an error here."""
        scope = {name: value for name, value in self.closure()}
        try:
            return eval(annotation, self.fn.__globals__, scope)
        except CompileError as error:
            raise error.at(self._parameter_location(name)) from None
        except AttributeError as error:
            raise CompileError(
                f"the annotation of `{name}` cannot be evaluated",
                found=f"{annotation}: {error}",
                loc=self._parameter_location(name),
            ) from None
        except Exception:
            return annotation

    def _parameter_location(self, name: str) -> Location | None:
        arguments = self.node.args
        known = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        return next((self.location(a) for a in known if a.arg == name), None)

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

_COROUTINE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_REFUSED_FLAGS = (
    (_COROUTINE, "is a coroutine, but a kernel cannot be one", "write `def` without `async`"),
    (inspect.CO_GENERATOR, "is a generator, but a kernel cannot be one", "store results by tl.store, without `yield`"),
    (inspect.CO_VARARGS, "takes `*args`, which a kernel cannot", "name every parameter, or pass one tuple"),
    (inspect.CO_VARKEYWORDS, "takes `**kwargs`, which a kernel cannot", "name every parameter"),
)


def _check_kind(fn: FunctionType) -> None:
    code: CodeType = fn.__code__
    if code.co_name == "<lambda>":
        raise CompileError(
            f"the lambda at {code.co_filename}:{code.co_firstlineno} cannot be compiled: it has no name and no `def`",
            fix="write it as a function with `def`",
        )
    for flag, what, fix in _REFUSED_FLAGS:
        if code.co_flags & flag:
            raise CompileError(f"`{fn.__name__}` at {code.co_filename}:{code.co_firstlineno} {what}", fix=fix)


def _no_source(name: str, file: str) -> CompileError:
    return CompileError(
        f"`{name}` cannot be compiled because Python has no source text for it ({file}); "
        "kernels and their helpers must be defined in a file, not typed at a prompt or made with exec()"
    )


def _parse(lines: list[str], first: int) -> tuple[ast.Module, list[str], int]:
    """The AST of a block that starts at line `first` of its file, its lines, and how many lines stand before them."""
    if lines and lines[0][:1].isspace():
        lines, first = ["if 1:\n", *lines], first - 1
    return ast.parse("".join(lines)), lines, first - 1


def _lines_of(fn: FunctionType) -> list[str]:
    """The lines of a function: those of its code, and what is indented deeper behind them.

    `inspect` would search all loaded modules and run a tokenizer in Python: ten times the time of everything else here.
    """
    code = fn.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, fn.__globals__)[code.co_firstlineno - 1 :]
    if not lines:
        return []
    base, end = _indent(lines[0]), _last_line(code) - code.co_firstlineno + 1
    for i, line in enumerate(lines[end:], end + 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if _indent(line) <= base and text[0] not in ")]}":
            break
        end = i
    return lines[:end]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _last_line(code: CodeType) -> int:
    """The last line that has code, nested functions and comprehensions included."""
    inner = (_last_line(c) for c in code.co_consts if isinstance(c, CodeType))
    return max(code.co_firstlineno, *(line for _, _, line in code.co_lines() if line is not None), *inner)
