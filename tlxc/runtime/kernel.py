"""Kernels as Python objects: launching, specialising, compiling once, loading once a device.

The way of a launch: a generated function (see `fast_bind`) computes a key; the key finds a plan, which is a launcher
for one specialisation on one device; the plan is called.  Everything else happens when a key is first seen.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar

from tlxc.collector import no_collections
from tlxc.errors import TlxcError
from tlxc.frontend.source import MISSING, Source
from tlxc.runtime import cuda, hooks, native, simulate
from tlxc.runtime.artifact import CompiledKernel, assembler_for, build, facts_of
from tlxc.runtime.bind import ArgumentError, Binder, Bound
from tlxc.runtime.fake import is_void
from tlxc.runtime.fast_bind import Given, Key, Plan, current_device
from tlxc.runtime.forks import FIRST_USE
from tlxc.runtime.grid import Cluster, check_cluster, extents
from tlxc.runtime.guards import GuardedCalls, Specialised, prepare
from tlxc.runtime.launcher import MAP, SKIP, MapShape, Ready
from tlxc.runtime.outlines import recall
from tlxc.runtime.streams import current_stream, handle_of, torch_stream
from tlxc.runtime.untraced import untraced
from tlxc.runtime.variants import Variant, explain, log, variant
from tlxc.targets import Target, get_target

if TYPE_CHECKING:
    from tlxc.frontend.signature import Signature

F = TypeVar("F", bound=Callable[..., Any])


class CaptureError(TlxcError):
    """A launch would have to compile or load a kernel while its stream is being captured into a CUDA graph."""


@dataclass
class _Slot:
    """The one place where a specialisation is made: threads that want the same one wait for the first."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    compiled: CompiledKernel | None = None


@dataclass
class _Version:
    """What was made of one state of the source and the module constants that it reads; see `fast_bind.State`."""

    source: Source
    digest: str
    checks: tuple[tuple[Callable[[Any], Any], Any, Any], ...] = ()
    slots: dict[tuple[Any, ...], _Slot] = field(default_factory=dict)
    plans: dict[Key, Plan] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """A launch that is known but for its code: the specialisation that it needs, and its CTAs along x, y and z."""

    version: _Version
    bound: Bound
    grid: Cluster


def _checks(source: Source) -> tuple[tuple[Callable[[Any], Any], Any, Any], ...]:
    """How a launch sees that every module constant still is the object that it is now."""
    return tuple(
        (read.holder.get, read.key, read.now())
        if isinstance(read.holder, dict)
        else ((lambda read: read.now()), read, read.now())
        for read in source.reads
    )


# -- kernels ---------------------------------------------------------------------------------------------------------


class Kernel:
    """A kernel: `kernel[grid](*args, **constants, num_warps=4, maxnreg=None, ctas_per_cga=None, launch_pdl=False,
    stream=None)` launches.

    `grid` is an int, one to three ints, or a function from all arguments by name to such.  Arguments are specialised
    on: see `variants`.  Inside another kernel it is called like a function.

    num_warps: warps of a CTA.  maxnreg: registers that a thread may use at most, 24 to 255, so that more CTAs fit on an
    SM; what does not fit into them is spilled to memory (`CompiledKernel.spill_bytes`).  NVIDIA targets only; None, the
    default, leaves it to the assembler.  ctas_per_cga: CTAs of a cluster along x, y and z, as (2, 1, 1), which group
    those of the grid; None, the default, is no cluster.  NVIDIA targets only.  launch_pdl: whether the grid may start
    before the one ahead of it in its stream has ended; it must then call `tlx.gdc_wait`.  NVIDIA GPUs from compute
    capability 9.0.  stream: a raw handle or a stream; None, the default, is torch's current one.  `prepare` makes a
    launch that is repeated cheaper still.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        num_warps: int = 4,
        do_not_specialize: Sequence[str | int] = (),
        maxnreg: int | None = None,
        ctas_per_cga: tuple[int, ...] | None = None,
    ) -> None:
        source = Source.of(fn)  # refuses what is no function with a source
        update_wrapper(self, fn)
        self.fn = fn
        self.name = fn.__name__
        self.examples: list[Callable[..., Any]] = []
        self.__tlxc_source__ = source
        self._num_warps, self._maxnreg, self._do_not_specialize = num_warps, maxnreg, tuple(do_not_specialize)
        self._ctas_per_cga = ctas_per_cga
        self._variants: list[Variant] = []
        self._lock = threading.Lock()
        self._versions: dict[str, _Version] = {}
        self.state: _Version  # what launches use; set by `renew`
        self._run: Callable[..., CompiledKernel | None] = self._first_run
        _kernels.add(self)

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise ArgumentError(f"{self.name} is a kernel: launch it with a grid, as {self.name}[grid](...).")

    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel | None]:
        """A function that launches and returns what ran; None for an empty grid, which launches nothing."""
        if simulate.active is not None:
            return partial(simulate.active.launch, self, grid)
        if hooks.installed:
            return partial(self._hooked, grid)
        return partial(self._run, grid)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Every specialisation so far, each with the reason why it was made."""
        return tuple(self._variants)

    def example(self, fn: F) -> F:
        """Decorates a function without parameters that returns (grid, arguments): a launch that tools may try.
        Arguments are a sequence, or a dict by name."""
        self.examples.append(fn)
        return fn

    def signature(
        self, num_warps: int | None = None, *, maxnreg: Any = MISSING, ctas_per_cga: Any = MISSING, **constants: Any
    ) -> Signature:
        """What the annotations declare, for compiling ahead of time: constants by name, nothing else assumed.  Options
        that are not given are the kernel's own.  A run-time parameter may be given a type by name, in place of its
        annotation, as `n=tl.divisible(tl.int32, 16)`."""
        return self._binder.declared_signature(constants, num_warps, maxnreg, ctas_per_cga)

    def compile(
        self,
        target: str | Target,
        num_warps: int | None = None,
        *,
        maxnreg: Any = MISSING,
        ctas_per_cga: Any = MISSING,
        **constants: Any,
    ) -> CompiledKernel:
        """Compiles ahead of time for what the annotations declare; needs no GPU.  Options as for `signature`."""
        with FIRST_USE:
            signature = self.signature(num_warps, maxnreg=maxnreg, ctas_per_cga=ctas_per_cga, **constants)
            chosen = _target(target)
            version = self.renew()
            return build(version.digest, version.source, signature, chosen, assembler_for(chosen, None))

    def warmup(self, *args: Any, grid: Any = None, target: str | Target | None = None, **kwargs: Any) -> CompiledKernel:
        """Compiles the specialisation for these arguments, without launching.

        A dtype of `tl` or torch stands for a 16-byte aligned array of it, `tlx.tensor_descriptor_type(...)` for a
        descriptor.  With `target` nothing but a compiler is
        needed; without, the kernel is also loaded on the arguments' GPU, so that a launch with such arguments can be
        captured.
        """
        if grid is not None and not callable(grid):
            extents(grid)
        with FIRST_USE:
            version, _, bound = self.ahead(args, kwargs)
            chosen, gpu = _place(bound, target)
            compiled = self._compiled(version, bound, chosen, gpu)
            if gpu is not None:
                compiled.load(gpu)
        return compiled

    def explain_recompile(self, *args: Any, target: str | Target | None = None, **kwargs: Any) -> str:
        """Whether a launch with these arguments runs what this process has, reads the cache or compiles, and what is
        different from the nearest other specialisation, in this process or in the cache.

        Compiles and launches nothing.  Arguments and `target` as for `warmup`.
        """
        with FIRST_USE:
            version, _, bound = self.ahead(args, kwargs)
            chosen, gpu = _place(bound, target)
            assembler = assembler_for(chosen, gpu)
            slot = version.slots.get((chosen.name, assembler, *bound.identity))
            facts = facts_of(version.digest, bound.signature, chosen, assembler)
            return explain(self.name, facts, slot.compiled if slot else None, self._variants)

    def ahead(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], stand_for: Callable[[Any], Any] = lambda value: value
    ) -> tuple[_Version, dict[str, Any], Bound]:
        """(version, arguments by name, specialisation) of a call that is not launched on a GPU.  `stand_for` gives what
        binding sees in place of an argument."""
        version = self.renew()
        given = self._functions[1](*map(stand_for, args), **{name: stand_for(v) for name, v in kwargs.items()})
        arguments = self._binder.check(given)
        return version, arguments, self._binder.resolve(arguments, ahead=True)

    # -- launching

    @cached_property
    def _binder(self) -> Binder:
        return Binder(self.__tlxc_source__, self._num_warps, self._do_not_specialize, self._maxnreg, self._ctas_per_cga)

    @cached_property
    def _functions(self) -> tuple[Callable[..., Any], Callable[..., Given]]:
        return self._binder.generate(self)

    @cached_property
    def _calls(self) -> GuardedCalls:
        known = Specialised(self._binder.parameters, self._binder.declared, frozenset(self._binder.plain))
        return GuardedCalls(self._long_way, known, self._raise)

    @untraced
    def _first_run(self, grid: Any, /, *args: Any, **kwargs: Any) -> CompiledKernel | None:
        """Stands for what launches until that is wanted: decorating a function shall cost nothing.  A `kernel[grid]`
        from before the first launch keeps it."""
        if self._run != self._first_run:
            return self._run(grid, *args, **kwargs)
        with FIRST_USE:
            self.renew()
            compiled = self._long_way(grid, *args, **kwargs)  # wrong arguments are told before a driver is asked for
            self._run = self._calls.run if native.available() else self._long_way
            return compiled

    @untraced
    def _long_way(self, grid: Any, /, *args: Any, **kwargs: Any) -> CompiledKernel | None:
        """A launch by the generated function, from which native code learns how to do the next one like it."""
        if grid.__class__ is not tuple:
            arguments = self._binder.check(self._functions[1](*args, **kwargs))
            if is_void(self.name, arguments.values()):
                return None
            return self._run(self._extents(grid, arguments), *args, **kwargs)
        compiled = self._functions[0](grid, *args, **kwargs)
        if compiled is not None and native.available():
            self._calls.learn(self.state, compiled, args, kwargs)
        return compiled

    @staticmethod
    def _extents(grid: Any, arguments: dict[str, Any]) -> tuple[int, int, int]:
        return extents(grid(arguments) if callable(grid) else grid)

    def prepare(self, *args: Any, grid: Any, stream: Any = None, **kwargs: Any) -> Callable[[], CompiledKernel | None]:
        """A function without parameters that launches with these arguments each time it is called.

        It costs little more than the driver's part of a launch.  Arrays are kept alive and read where they are now, the
        values of descriptors are those of now.  stream: where it launches, a raw handle or a stream; None, the default,
        is torch's current stream at each call.
        """
        if simulate.active is not None:
            return partial(simulate.active.launch, self, grid, *args, **kwargs)
        with FIRST_USE:
            plan, sizes, device, arguments = self._ready(grid, args, kwargs)
            if plan is None:
                return lambda: None
            values = self._binder.values(arguments)
            handle = None if stream is None else handle_of(stream)
            # A workspace needs the kernel's context to be current, for which only the Python way provides.
            if native.available() and not plan.ready.workspace:
                return partial(prepare(plan, self._raise, values, handle), sizes)
        queue = partial(plan.stream, device) if handle is None else lambda: handle
        return partial(self._launch, plan, sizes, queue, values)

    def _hooked(self, grid: Any, /, *args: Any, **kwargs: Any) -> CompiledKernel | None:
        """A launch inside the hooks that are installed."""
        plan, sizes, device, arguments = self._ready(grid, args, kwargs)
        if plan is None:
            return None
        stream = plan.stream(device) if arguments["stream"] is None else handle_of(arguments["stream"])
        info = hooks.LaunchInfo(self.name, plan.compiled, sizes, stream, device, arguments)
        values = self._binder.values(arguments)
        return hooks.around(info, partial(self._launch, plan, sizes, lambda: stream, values))

    def _ready(
        self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Plan | None, Cluster, int, dict[str, Any]]:
        """(plan, CTAs, device, arguments by name) of a call, compiled and loaded; no plan where nothing launches."""
        version = self.renew()
        arguments = self._binder.check(self._functions[1](*args, **kwargs))
        if is_void(self.name, arguments.values()):
            return None, (0, 0, 0), 0, arguments
        bound, sizes = self._binder.resolve(arguments), self._extents(grid, arguments)
        check_cluster(sizes, bound.signature.cluster)
        device = current_device() if bound.device is None else bound.device
        if 0 in sizes:
            return None, sizes, device, arguments
        key = ("ready", *bound.identity, self._binder.launch_pdl(arguments), device)
        return version.plans.get(key) or self._plan(version, key, bound, arguments), sizes, device, arguments

    def _launch(self, plan: Plan, sizes: Cluster, stream: Callable[[], int], values: Sequence[Any]) -> CompiledKernel:
        status = plan.launch(sizes, stream(), *values)
        if status:
            raise self.refuse(status)
        compiled: CompiledKernel = plan.compiled
        return compiled

    def renew(self) -> _Version:
        """The version for the present values of the module constants; the one that launches use from now on."""
        with FIRST_USE, self._lock, no_collections():
            source = self.__tlxc_source__
            recall(source)
            if source.changed() is not None:
                source = self.__tlxc_source__ = Source(source.fn)
            digest = source.digest()
            version = self._versions.setdefault(digest, _Version(source, digest))
            version.source, version.checks = source, _checks(source)
            if self.__dict__.get("state") is not version:
                self._calls.forget()
            self.state = version
            return version

    def slow(self, grid: Any, key: Key, given: Given, values: tuple[Any, ...]) -> CompiledKernel | None:
        """A launch whose specialisation is new, whose grid is empty or wrong, or whose arguments are wrong."""
        version = self.state
        arguments = self._binder.check(given)
        plan = version.plans.get(key) if _hashable(key) else None
        if plan is None and is_void(self.name, arguments.values()):
            return None
        bound = self._binder.resolve(arguments) if plan is None else None
        sizes = extents(grid)
        if 0 in sizes:
            return None
        if plan is None and bound is not None:
            check_cluster(sizes, bound.signature.cluster)
            plan = self._plan(version, key, bound, arguments)
        assert plan is not None
        stream = given.named["stream"]
        return self._launch(plan, sizes, lambda: plan.stream(key[-1]) if stream is None else handle_of(stream), values)

    def refuse(self, status: int) -> cuda.DriverError:
        return cuda.failure(cuda.driver(), status, f"Launching {self.name}", cuda.LaunchError)

    def _raise(self, status: int) -> None:
        """What native code calls with a status of the driver."""
        raise self.refuse(status)

    def _plan(self, version: _Version, key: tuple[Any, ...], bound: Bound, arguments: Mapping[str, Any]) -> Plan:
        """Compiles, loads and remembers what a key stands for.  `arguments` are those of a launch, options included."""
        gpu, launch_pdl = cuda.device(key[-1]), self._binder.launch_pdl(arguments)
        if launch_pdl and "griddepcontrol" not in cuda.target_of(gpu).features:
            raise ArgumentError(
                f"{self.name} is launched with launch_pdl=True, but GPU {gpu.ordinal} ({gpu.name}) cannot launch grids "
                "that depend on others; that needs compute capability 9.0 or later."
            )
        current, given = torch_stream() or current_stream, arguments["stream"]
        slot_ready = partial(self._check_capture, gpu, current if given is None else lambda _: handle_of(given))
        with FIRST_USE:
            compiled = self._compiled(version, bound, cuda.target_of(gpu), gpu, slot_ready)
            if launch_pdl and not compiled.metadata["waits_for_grid"]:
                raise ArgumentError(
                    f"{self.name} is launched with launch_pdl=True, but never calls tlx.gdc_wait(), so nothing would "
                    "keep it from running beside the grid ahead of it; call tlx.gdc_wait() before memory is touched, "
                    "or leave launch_pdl out."
                )
            if not compiled.is_loaded(gpu):
                slot_ready()
            ready = ready_of(compiled, gpu, bound, launch_pdl)
        plan = version.plans[key] = Plan(ready, current, compiled)
        return plan

    def _check_capture(self, gpu: cuda.Device, stream: Callable[[int], int]) -> None:
        if cuda.is_capturing(gpu, stream(gpu.ordinal)):
            raise CaptureError(
                f"{self.name} must be compiled or loaded for these arguments, which is not possible while a CUDA graph "
                f"is being captured; call {self.name}.warmup(...) with the same arguments before the capture."
            )

    # -- for tuning

    def given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Given:
        """The arguments of a call by name, unchecked; defaults stand where none was given."""
        return self._functions[1](*args, **kwargs)

    def version(self) -> _Version:
        """The version that a launch now would use; cheap where no module constant has changed."""
        state: _Version | None = self.__dict__.get("state")
        if state is None or any(look(where) is not value for look, where, value in state.checks):
            return self.renew()
        return state

    def call(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """A launch, bound: refuses what launching refuses before it compiles."""
        version = self.version()
        arguments = self._binder.check(self.given(args, kwargs))
        bound, sizes = self._binder.resolve(arguments), self._extents(grid, arguments)
        check_cluster(sizes, bound.signature.cluster)
        return Call(version, bound, sizes)

    def compile_call(self, call: Call, gpu: cuda.Device) -> CompiledKernel:
        """The code of a call for a GPU, not loaded there."""
        return self._compiled(call.version, call.bound, cuda.target_of(gpu), gpu)

    # -- compiling

    def _compiled(
        self,
        version: _Version,
        bound: Bound,
        target: Target,
        gpu: cuda.Device | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> CompiledKernel:
        """The specialisation for a target, made once a process whatever the number of threads that ask.

        `gpu` is where it shall run, None to compile only; `before` is called before anything is compiled.
        """
        assembler = assembler_for(target, gpu)
        slot = version.slots.setdefault((target.name, assembler, *bound.identity), _Slot())
        if slot.compiled is None:
            with slot.lock:
                if slot.compiled is None:
                    before()
                    compiled = build(version.digest, version.source, bound.signature, target, assembler)
                    made = variant(self._variants, bound.signature, target.name, compiled)
                    self._variants.append(made)
                    slot.compiled = compiled
                    log(self.name, made, self._variants)
        return slot.compiled


def ready_of(compiled: CompiledKernel, gpu: cuda.Device, bound: Bound, launch_pdl: bool = False) -> Ready:
    """A specialisation on a GPU, where it is loaded if it is not yet."""
    function, record = compiled.load(gpu), compiled.record(gpu)
    return Ready(
        function,
        int(compiled.metadata["threads"]),
        compiled.shared,
        bound.kinds,
        _maps(bound.kinds, compiled),
        bound.signature.cluster,
        compiled.workspace,
        None if record is None else record.pointer,
        launch_pdl,
    )


_kernels: weakref.WeakSet[Kernel] = weakref.WeakSet()


def _forget_plans() -> None:
    """In a forked process: what was loaded before cannot be launched, and making a plan anew says why."""
    for kernel in _kernels:
        for version in kernel._versions.values():
            version.plans.clear()
        if kernel._versions:
            kernel._calls.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_plans)


def _target(target: str | Target) -> Target:
    return target if isinstance(target, Target) else get_target(str(target))


def _place(bound: Bound, target: str | Target | None) -> tuple[Target, cuda.Device | None]:
    """Where a specialisation shall run: the given target, or the GPU of its arguments, else the current one."""
    if target is not None:
        return _target(target), None
    gpu = cuda.device(bound.device if bound.device is not None and bound.device >= 0 else current_device())
    return cuda.target_of(gpu), gpu


def _maps(kinds: bytes, compiled: CompiledKernel) -> dict[int, MapShape]:
    """What the code wants of each descriptor, by its position among the values of a launch."""
    passed = [position for position, kind in enumerate(kinds) if kind != SKIP]
    return {
        position: MapShape(tuple(facts["box"]), facts["swizzle"], facts["stored"])
        for position, facts in zip(passed, compiled.metadata["params"])
        if kinds[position] == MAP
    }


def _hashable(key: Key) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True
