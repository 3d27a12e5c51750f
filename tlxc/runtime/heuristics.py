"""Kernels that are called through something that completes their arguments, and the simplest of these: heuristics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, Union

from tlxc.errors import TlxcError
from tlxc.frontend.source import MISSING, Source
from tlxc.runtime.artifact import CompiledKernel
from tlxc.runtime.bind import ArgumentError
from tlxc.runtime.fast_bind import OPTIONS
from tlxc.runtime.kernel import Kernel

F = TypeVar("F", bound=Callable[..., Any])


class Wrapper(ABC):
    """What stands around a kernel and is launched, simulated, checked and inlined like one.  `kernel` is the kernel."""

    kind = "wrapped"  # in messages

    def __init__(self, fn: Launchable) -> None:
        if not isinstance(fn, (Kernel, Wrapper)):
            raise TlxcError(
                f"Only a kernel can be {self.kind}, and {fn!r} is none; decorate the function with @tlxc.kernel first, "
                "which stands on the line nearest to it."
            )
        self.fn = fn
        self.kernel: Kernel = fn.kernel if isinstance(fn, Wrapper) else fn
        self.__doc__, self.__name__ = self.kernel.__doc__, self.kernel.name

    @property
    def name(self) -> str:
        return self.kernel.name

    @property
    def examples(self) -> list[Callable[..., Any]]:
        return self.kernel.examples

    @property
    def __tlxc_source__(self) -> Source:
        return self.kernel.__tlxc_source__

    def example(self, fn: F) -> F:
        """As `Kernel.example`; the example leaves out what is completed here."""
        return self.kernel.example(fn)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.fn!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise ArgumentError(f"{self.name} is a kernel: launch it with a grid, as {self.name}[grid](...).")

    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel | None]:
        """A function that launches, as that of a kernel."""
        return partial(self._run, grid)

    @abstractmethod
    def _run(self, grid: Any, /, *args: Any, **kwargs: Any) -> CompiledKernel | None:
        """A launch."""

    @abstractmethod
    def warmup(self, *args: Any, grid: Any = None, target: Any = None, **kwargs: Any) -> Any:
        """As `Kernel.warmup`."""

    @abstractmethod
    def prepare(self, *args: Any, grid: Any, stream: Any = None, **kwargs: Any) -> Callable[[], CompiledKernel | None]:
        """As `Kernel.prepare`."""

    def check_names(self, what: str, names: Sequence[str], options: bool = True) -> None:
        """An `ArgumentError` where a name is neither a parameter of the kernel nor, with `options`, of its launch."""
        source = self.kernel.__tlxc_source__
        known = [p.name for p in source.parameters]
        for name in names:
            if name not in known and not (options and name in OPTIONS):
                launch = f"; launch options are {', '.join(OPTIONS)}" if options else ""
                raise ArgumentError(
                    f"{self.name} ({source.file}:{source.first_line}): {what} names `{name}`, which is no parameter; "
                    f"its parameters are {', '.join(known)}{launch}."
                )


Launchable = Union[Kernel, Wrapper]


def named_arguments(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What a call gives, by name: its own arguments, and the defaults of the kernel."""
    return {name: value for name, value in kernel.given(args, kwargs).named.items() if value is not MISSING}


class Heuristics(Wrapper):
    """A kernel some of whose arguments are computed from the others at each launch: see `tlxc.heuristics`."""

    kind = "completed by heuristics"

    def __init__(self, fn: Launchable, values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> None:
        super().__init__(fn)
        self.values = dict(values)
        self.check_names("heuristics", list(self.values))

    def completed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments of a call, and what is computed: each function sees what those before it gave."""
        out = dict(kwargs)
        for name in self.values:
            if name in out:
                raise ArgumentError(f"{self.name}: `{name}` is computed by a heuristic, so a launch cannot give it.")
        for name, compute in self.values.items():
            out[name] = compute(named_arguments(self.kernel, args, out))
        return out

    def _run(self, grid: Any, /, *args: Any, **kwargs: Any) -> CompiledKernel | None:
        return self.fn[grid](*args, **self.completed(args, kwargs))

    def prepare(self, *args: Any, grid: Any, stream: Any = None, **kwargs: Any) -> Callable[[], CompiledKernel | None]:
        """As `Kernel.prepare`, with the values that are computed from these arguments now."""
        return self.fn.prepare(*args, grid=grid, stream=stream, **self.completed(args, kwargs))

    def warmup(self, *args: Any, grid: Any = None, target: Any = None, **kwargs: Any) -> Any:
        """As `Kernel.warmup`, for the values that are computed from these arguments."""
        return self.fn.warmup(*args, grid=grid, target=target, **self.completed(args, kwargs))


def complete(fn: Launchable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments with which `fn` would launch its kernel."""
    while isinstance(fn, Heuristics):
        kwargs, fn = fn.completed(args, kwargs), fn.fn
    return dict(kwargs)
