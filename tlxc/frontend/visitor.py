"""Walks the AST of a kernel and builds its tile IR.

The visitor holds the builder and the function being compiled; how each kind of node is compiled stands in
`expressions`, `calls`, `statements`, `branches` and `loops`, in tables keyed by the node's class.  Compile-time values
are Python values, run-time values are `tensor` objects.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tlxc.errors import CompileError, Location, TlxcError
from tlxc.ir.core import Builder, Module, Param, Region, Value
from tlxc.language.context import Context, building
from tlxc.language.handles import wrap

from .analysis import assigned, has_return, names_used
from .branches import fork
from .calls import describe_failure
from .expressions import EXPRESSIONS
from .flow import Flow, Fork, Returned, Splice, Step
from .globals import PYTHON_BUILTINS, UNDEFINED, admit, find, unwrap
from .notes import warn
from .phases import fill_phases
from .scope import Binding, Frame, Undefined, suggestion
from .signature import Signature
from .source import MISSING, Source
from .statements import STATEMENTS, refusal
from .values import is_runtime, rename

if TYPE_CHECKING:
    from tlxc.targets import Target


class Visitor:
    """State of one compilation."""

    def __init__(self, builder: Builder, frame: Frame) -> None:
        self.builder = builder
        self.frame = frame

    # --------------------------------------------------------------------------------------------- places and errors
    def location(self, node: ast.AST) -> Location:
        return self.frame.source.location(node, self.frame.callers)

    def error(
        self, node: ast.AST, summary: str, found: str = "", allowed: str = "", fix: str = "", related: Any = ()
    ) -> CompileError:
        return CompileError(summary, found, allowed, fix, self.location(node), list(related))

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Ops and errors of the language that arise inside get the node's location."""
        loc = self.location(node)
        self.builder.loc = loc
        try:
            yield
        except CompileError as error:
            raise error.at(loc)  # noqa: B904  (it is the same error)

    def apply(self, node: ast.AST, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a function of the language or an operator at the node; whatever it raises becomes a CompileError."""
        with self.at(node):
            try:
                return unwrap(fn(*args, **kwargs))
            except TlxcError:
                raise
            except Exception as error:
                raise describe_failure(node, fn, args, kwargs, error) from error

    @contextmanager
    def into(self, region: Region) -> Iterator[None]:
        """Ops go to the end of `region`."""
        self.builder.stack.append(region)
        try:
            yield
        finally:
            self.builder.stack.pop()

    # --------------------------------------------------------------------------------------------------------- names
    def bind(self, name: str, value: Any, loc: Location) -> None:
        rename(value, name)
        self.frame.names[name] = Binding(value, loc)

    def lookup(self, node: ast.Name) -> Any:
        """The value of a name, a module included."""
        name, entry = node.id, self.frame.names.get(node.id)
        if isinstance(entry, Binding):
            return entry.value
        if isinstance(entry, Undefined):
            raise entry.error(name, self.location(node))
        if name in self.frame.source.local:
            raise self.error(
                node,
                f"`{name}` has no value here",
                found="it is assigned only further down or on a path that is not taken",
                fix=f"assign `{name}` before this line",
            )
        value = find(self.frame.source, name)
        if value is UNDEFINED:
            raise self._unknown(node)
        with self.at(node):
            return admit(name, value)

    def _unknown(self, node: ast.Name) -> CompileError:
        known = [*self.frame.names, *self.frame.source.local, *self.frame.source.fn.__globals__, *PYTHON_BUILTINS]
        return self.error(
            node,
            f"`{node.id}` is not defined",
            found="neither a local variable, nor one of the enclosing function or module, has this name",
            allowed=f"of Python's builtins a kernel has {', '.join(PYTHON_BUILTINS)}",
            fix=suggestion(node.id, known),
        )

    # --------------------------------------------------------------------------------------------------- expressions
    def eval(self, node: ast.expr) -> Any:
        """The value of an expression; a module is none."""
        value = self.reach(node)
        if isinstance(value, ModuleType):
            raise self.error(
                node,
                f"the module `{value.__name__}` is not a value",
                allowed="a module followed by the name of one of its functions or constants",
                fix="import the module at the top of the file and use it by its name",
            )
        return value

    def reach(self, node: ast.expr) -> Any:
        """As `eval`, but a module may come out: the part before a dot."""
        handler = EXPRESSIONS.get(type(node))
        if handler is None:
            raise refusal(self, node)
        return handler(self, node)

    def known(self, statements: Sequence[ast.stmt]) -> Callable[[ast.expr], bool | None]:
        """Tells the outcome of an `if` condition inside `statements` where it is known before they run: it reads only
        names that they do not assign, calls nothing and is a compile-time value."""
        changing = set(assigned(statements))

        def decide(test: ast.expr) -> bool | None:
            impure = any(isinstance(n, (ast.Call, ast.NamedExpr, ast.ListComp)) for n in ast.walk(test))
            if impure or names_used(test) & changing:
                return None
            try:
                with self.into(Region()):  # a run-time condition leaves its ops there
                    value = self.eval(test)
            except CompileError:
                return None  # reported where the statement itself is compiled
            return None if is_runtime(value) else bool(value)

        return decide

    # ---------------------------------------------------------------------------------------------------- statements
    def run(self, steps: Sequence[Step]) -> Returned | None:
        """Runs statements up to a `return`; Returned where every path through them returns."""
        pending = list(reversed(steps))
        while pending:
            step = pending.pop()
            if not isinstance(step, ast.stmt):
                step()
                continue
            handler = STATEMENTS.get(type(step))
            if handler is None:
                raise refusal(self, step)
            flow: Flow = handler(self, step)
            if isinstance(flow, Returned):
                return flow
            if isinstance(flow, Splice):
                pending.extend(reversed(flow.steps))
            elif isinstance(flow, Fork):
                return fork(self, flow, list(reversed(pending)))
        return None

    def block(self, statements: Sequence[ast.stmt]) -> None:
        """Runs statements in which no `return` is reached."""
        returned = self.run(statements)
        assert returned is None, "a return was reached in a block that was said to have none"

    def returns(self, node: ast.stmt) -> bool:
        """Whether a `return` inside the statement may be reached."""
        return has_return(node, self.known([node]))


def build(source: Source, signature: Signature, target: Target) -> Module:
    """The tile IR of a kernel for one signature: run-time arguments are the module's parameters, constants and defaults
    are Python values.  Raises CompileError with a location for whatever the kernel's author can get wrong."""
    module = Module(source.name, num_warps=signature.num_warps, maxnreg=signature.maxnreg, cluster=signature.cluster)
    frame = Frame(source)
    visitor = Visitor(Builder(module), frame)
    with building(Context(visitor.builder, target)) as context:
        _bind_parameters(visitor, module, signature)
        visitor.run(source.node.body)
    for loc in context.unused_specs.values():
        warn(
            source,
            loc or source.location(source.node),
            "storage_alias_spec: nothing is allocated in it; pass it as tlx.local_alloc(..., reuse=spec), or remove it",
        )
    fill_phases(module, [p for p in context.private.values() if p.waits])
    return module


def _bind_parameters(visitor: Visitor, module: Module, signature: Signature) -> None:
    """Gives every parameter its run-time value, constant or default."""
    source = visitor.frame.source
    arguments, constants = dict(signature.arguments), dict(signature.constants)
    nodes = {a.arg: a for a in ast.walk(source.node.args) if isinstance(a, ast.arg)}
    values: dict[str, Value] = {}
    for name, argument in signature.arguments:
        values[name] = Value(argument.type, None, len(values), name)
        module.params.append(Param(values[name], argument.align, argument.divisible))
    for parameter in source.parameters:
        name, node = parameter.name, nodes[parameter.name]
        if name in arguments and parameter.constexpr:
            raise visitor.error(
                node,
                f"the parameter `{name}` is tl.constexpr, but a run-time argument is given for it",
                found=f"a run-time {arguments[name].type}",
                fix=f"give `{name}` a Python value at launch (on the command line: -D {name}=VALUE)",
            )
        if name in arguments:
            value: Any = wrap(values[name])
        elif name in constants:
            value = constants[name]
        elif parameter.default is not MISSING:
            value = parameter.default
        elif parameter.constexpr:
            raise visitor.error(
                node,
                f"the constexpr parameter `{name}` of `{source.name}` has no value",
                found="no argument of that name, and no default",
                fix=f"pass {name}=... at launch (on the command line: -D {name}=VALUE), or give it a default",
            )
        else:
            raise visitor.error(
                node,
                f"the parameter `{name}` of `{source.name}` has neither a type nor a value",
                fix=f"pass an argument for `{name}` at launch, or annotate it, for example `{name}: tl.int32`",
            )
        visitor.bind(name, unwrap(value), visitor.location(node))
    extra = [name for name in (*arguments, *constants) if name not in nodes]
    if extra:
        raise visitor.error(
            source.node,
            f"`{source.name}` has no parameter `{extra[0]}`",
            allowed=", ".join(nodes) or "no parameters at all",
            fix=suggestion(extra[0], list(nodes)),
        )
