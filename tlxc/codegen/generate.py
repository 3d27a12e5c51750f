"""One module to LLVM IR text: the kernel's shell around the lowered body, and what each vendor refuses."""

from __future__ import annotations

from math import prod

from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op, Param
from tlxc.ir.table import OPS
from tlxc.ir.types import Descriptor, Pointer, Scalar, Tensor, int1, shape_of
from tlxc.passes.axis import AxisInfo, analyse
from tlxc.targets import Target, all_targets
from tlxc.targets.target import FEATURES

from .amdgpu.emitter import AmdgpuEmitter
from .llvm_text import Writer, memory_type
from .nvptx import barrier, cluster, copies, descriptors, matrices, mma, tma, trap
from .nvptx.emitter import NvptxEmitter
from .simt import buffer, control, convert, math, memory, reduce, shape, task, tasks  # noqa: F401  (fill LOWER)
from .simt.emitter import Emitter
from .simt.lowering import LOWER, Lower, Lowering

EMITTERS: dict[str, type[Emitter]] = {"nvidia": NvptxEmitter, "amd": AmdgpuEmitter}
# Ops that only a vendor's own table lowers.
VENDOR_OPS: dict[str, dict[str, Lower]] = {
    "nvidia": {
        **mma.LOWERINGS,
        **barrier.LOWERINGS,
        **tma.LOWERINGS,
        **descriptors.LOWERINGS,
        **copies.LOWERINGS,
        **cluster.LOWERINGS,
        "local_load": matrices.local_load,
        "local_store": matrices.local_store,
    },
    "amd": {},
}
# Ops that a vendor has no lowering of, with the sentence the user sees.
_NVIDIA_ONLY = {
    "barrier": "mbarriers and named barriers",
    "tma": "TMA and asynchronous copies",
    "mma": "matrix multiplications",
    "cluster": "clusters",
    "task": "asynchronous tasks",
}
_EVERYWHERE = frozenset({"barrier", "program_id", "num_programs"})
REFUSED: dict[str, dict[str, str]] = {
    "nvidia": {},
    "amd": {
        kind: f"{_NVIDIA_ONLY[r.family]} are not available on AMD targets yet"
        for kind, r in OPS.items()
        if r.family in _NVIDIA_ONLY and kind not in _EVERYWHERE
    }
    | {
        **dict.fromkeys(("vote", "warp_vote"), "votes of a warp are not available on AMD targets yet"),
        "prefetch": "prefetches are not available on AMD targets yet",
    }
    | {
        kind: "gathers from shared memory are not available on AMD targets yet"
        for kind in ("local_gather", "local_scatter")
    },
}


# Op -> the feature that a target of NVIDIA must have for it
NEEDS: dict[str, str] = {
    **{kind: "cluster" for kind, r in OPS.items() if r.family == "cluster"},
    **{kind: "tma" for kind in (*tma.LOWERINGS, *descriptors.LOWERINGS)},
    **dict.fromkeys(("async_load", "async_load_commit", "async_load_wait"), "cp.async"),
    **dict.fromkeys(("bulk_load", "bulk_store", "fence_async_shared"), "bulk"),
    **dict.fromkeys(("alloc_barriers", "barrier_view", "barrier_wait", "barrier_arrive", "barrier_expect"), "mbarrier"),
    **dict.fromkeys(("async_dot", "async_dot_wait"), "wgmma"),
    "grid_dependency": "griddepcontrol",
}

# Of one tile in one thread.  Four times the registers that there are: beyond it compilers run for minutes.
MAX_ELEMENTS = 1024
# Words of PTX that may not name a kernel
_RESERVED = ("_", "WARP_SZ")


def check_supported(module: Module, target: Target) -> None:
    """Invariant after it: every op has a lowering for the target, every option of the module means something, and every
    tile can be compiled."""
    if module.maxnreg is not None and target.vendor != "nvidia":
        raise CompileError(
            "maxnreg is an option of NVIDIA targets",
            found=f"maxnreg={module.maxnreg} for target {target.name}",
            allowed="maxnreg=None on AMD targets",
            fix="leave maxnreg out where the target is AMD's",
        )
    if not (module.name.isascii() and module.name.isidentifier()) or module.name in _RESERVED:
        raise CompileError(
            f"a kernel cannot be called `{module.name}`",
            allowed="names of ASCII letters, digits and _, which assemblers read; neither `_` nor `WARP_SZ`",
            fix="rename the function",
        )
    refused = REFUSED[target.vendor]
    for op in module.walk():
        if op.kind in refused:
            raise CompileError(refused[op.kind], found=f"target {target.name}", allowed="NVIDIA targets", loc=op.loc)
        feature = NEEDS.get(op.kind)
        if feature and target.vendor == "nvidia" and feature not in target.features:
            raise _lacking(op, feature, target)
        for result in op.results:
            if isinstance(result.type, Tensor):
                _check_size(op, prod(shape_of(result.type)), module.num_warps * target.warp_size)


def _lacking(op: Op, feature: str, target: Target) -> CompileError:
    return CompileError(
        f"{op.kind} needs {feature}: {FEATURES[feature]}",
        found=f"target {target.name}, which has none",
        allowed=", ".join(t.name for t in all_targets() if feature in t.features),
        fix="compile for another target, or write tl.dot, which every NVIDIA target has" if feature == "wgmma" else "",
        loc=op.loc,
    )


def _check_size(op: Op, elements: int, threads: int) -> None:
    if elements > MAX_ELEMENTS * threads:
        raise CompileError(
            "this tile is too large for its threads",
            found=f"{elements} elements, which are {elements // threads} for each of {threads} threads",
            allowed=f"{MAX_ELEMENTS} elements a thread; what does not fit into registers is spilled to memory",
            fix="use a smaller tile or more warps",
            loc=op.loc,
        )


def implemented(vendor: str) -> frozenset[str]:
    """Op kinds with a lowering; `yield` is read by the op that owns the region, `buffer_overlap` by a pass."""
    return frozenset(LOWER) | frozenset(VENDOR_OPS[vendor]) | {"yield", "buffer_overlap"}


def _argument(p: Param, index: int) -> str:
    """The SSA name of a parameter, distinct from every name that the writer makes."""
    return f"%arg.{p.name if p.name.isascii() else index}"


def _parameter(p: Param, name: str) -> str:
    if isinstance(p.type, Descriptor):
        return f'ptr byval([128 x i8]) align 64 "nvvm.grid_constant" {name}'
    if isinstance(p.type, Pointer):
        return f"ptr addrspace(1) align {max(p.align, p.type.dtype.bytes)} {name}"
    return f"{memory_type(p.type.dtype)} {name}"  # type: ignore[union-attr]


def generate(module: Module, target: Target, info: AxisInfo | None = None) -> str:
    """LLVM IR text of a module whose tensors have layouts and whose buffers have offsets; `info` if that is at hand."""
    writer = Writer()
    emitter = EMITTERS[target.vendor](target, writer)
    writer.start("entry")
    low = Lowering(module, target, emitter, VENDOR_OPS[target.vendor], info or analyse(module))
    names = [_argument(p, i) for i, p in enumerate(module.params)]
    for p, name in zip(module.params, names):
        low.set(p.value, [writer.assign(f"icmp ne i8 {name}, 0") if p.type == Scalar(int1) else name])
    low.region(module.body)
    writer.emit("ret void")
    params = [_parameter(p, name) for p, name in zip(module.params, names)]
    if descriptors.workspace_of(module):
        params.append(f"{descriptors.PARAMETER_TYPE} align {descriptors.MAP_BYTES} {descriptors.PARAMETER}")
    if trap.is_limited(module):
        params.append(f"{trap.PARAMETER_TYPE} align {trap.RECORD_BYTES} {trap.PARAMETER}")
    head = emitter.kernel_head(module.name, params)
    types = [f"{name} = type {text}" for text, name in writer.structs.items()]
    lines = [*emitter.header(module), *types, *writer.declares.values(), f"{head} {{", *writer.lines, "}"]
    return "\n".join([*lines, *emitter.attributes(module)]) + "\n"
