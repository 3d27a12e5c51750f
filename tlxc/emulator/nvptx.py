"""NVVM intrinsics (`llvm.nvvm.*`), by the names of LLVM 22."""

from __future__ import annotations

from collections.abc import Callable
from re import Match
from typing import Any

import numpy as np

from tlxc.emulator import barriers, matrix, numerics
from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.generic import Factory, Handler, nothing, values
from tlxc.emulator.machine import Cta
from tlxc.emulator.parse import Instruction
from tlxc.emulator.pending import Token
from tlxc.emulator.values import Array, StructType

_WORD = np.dtype(np.uint32)


def _simple(function: Callable[[Cta, list[Any]], Any]) -> Factory:
    """A handler that needs nothing of the call but its arguments."""
    return lambda call, match, attributes: function


# -- special registers
def special_register(name: str) -> Callable[[Cta], Array] | None:
    """The value of a PTX special register over all lanes, named as in PTX without the `%` (`tid.x`)."""
    name = name.replace("cluster_", "cluster.")
    if name in _REGISTERS:
        return lambda cta: np.broadcast_to(np.asarray(_REGISTERS[name](cta)).astype(_WORD), (cta.lanes,))
    return None


_REGISTERS: dict[str, Callable[[Cta], Any]] = {
    "tid.x": lambda cta: cta.lane_ids,
    "tid.y": lambda cta: 0,
    "tid.z": lambda cta: 0,
    "ntid.x": lambda cta: cta.lanes,
    "ntid.y": lambda cta: 1,
    "ntid.z": lambda cta: 1,
    "laneid": lambda cta: cta.lane_ids % 32,
    "warpid": lambda cta: cta.warp_ids,
    "nwarpid": lambda cta: cta.warps,
    "warpsize": lambda cta: 32,
    "cluster.ctarank": lambda cta: cta.rank,
    "cluster.nctarank": lambda cta: cta.cluster.size,
    "clock64": lambda cta: cta.tick(),
    "lanemask.lt": lambda cta: (1 << (cta.lane_ids % 32)) - 1,
    "lanemask.le": lambda cta: (2 << (cta.lane_ids % 32)) - 1,
    "lanemask.eq": lambda cta: 1 << (cta.lane_ids % 32),
}


def _axis(read: Callable[[Cta, int], int], axis: int) -> Callable[[Cta], int]:
    return lambda cta: read(cta, axis)


_BY_AXIS: dict[str, Callable[[Cta, int], int]] = {
    "ctaid": lambda cta, axis: cta.ctaid[axis],
    "nctaid": lambda cta, axis: cta.nctaid[axis],
    "cluster.ctaid": lambda cta, axis: cta.ctaid[axis] % cta.cluster.shape[axis],
    "cluster.nctaid": lambda cta, axis: cta.cluster.shape[axis],
    "clusterid": lambda cta, axis: cta.ctaid[axis] // cta.cluster.shape[axis],
    "nclusterid": lambda cta, axis: cta.nctaid[axis] // cta.cluster.shape[axis],
}
_REGISTERS |= {
    f"{name}.{letter}": _axis(read, at) for name, read in _BY_AXIS.items() for at, letter in enumerate("xyz")
}


def _sreg(call: Instruction, match: Match[str], attributes: str) -> Handler:
    read = special_register(match[1])
    if read is None:
        raise EmulatorError(f"The special register %{match[1]} is not known to the emulator.")
    return lambda cta, args: read(cta)


# -- barriers
def _arrive(cta: Cta, args: list[Any]) -> tuple[()]:
    for number, count, warps in barriers.by_number(cta, *args):
        barriers.arrive(cta, number, count, warps)
    return ()


def member_mask(cta: Cta, mask: Array, name: str) -> None:
    """Every executing lane must be in its mask, and every lane of the mask must execute."""
    active = cta.by_warp(cta.active)
    present = np.packbits(active, axis=1, bitorder="little").view(np.uint32)[:, 0].astype(np.int64)
    wanted = cta.by_warp(mask.astype(np.int64))
    own = (wanted >> np.arange(32)) & 1
    wrong = active & ((own == 0) | ((wanted & ~present[:, None]) != 0))
    if wrong.any():
        lane = int(np.argmax(wrong.reshape(-1)))
        raise EmulatorError(
            f"{name} in lane {lane} has the member mask {int(mask[lane]):#x}, but the lanes executing it are "
            f"{int(present[lane // 32]):#x}; all lanes of the mask, and only they, must execute it together."
        )


def _warp_sync(cta: Cta, args: list[Any]) -> tuple[()]:
    member_mask(cta, args[0], "bar.warp.sync")
    return ()


# -- shuffles and votes
def shuffle_source(mode: str, lane: Array, operand: Array, clamp: Array) -> tuple[Array, Array]:
    """(source lane, in range) of shfl.sync, all within a warp; the source is the lane itself when out of range."""
    segment = (clamp >> 8) & 31
    limit = (lane & segment) | (clamp & 31 & ~segment)
    offset = operand & 31
    source = {
        "up": lane - offset,
        "down": lane + offset,
        "bfly": lane ^ offset,
        "idx": (lane & segment) | (offset & ~segment),
    }[mode]
    inside = source >= limit if mode == "up" else source <= limit
    return np.where(inside, source, lane), inside


def shuffle(cta: Cta, mode: str, mask: Array, value: Array, operand: Array, clamp: Array) -> tuple[Array, Array]:
    """(value, in range) per lane."""
    name = f"shfl.sync.{mode}"
    member_mask(cta, mask, name)
    lane = cta.lane_ids % 32
    source, inside = shuffle_source(mode, lane, operand.astype(np.int64), clamp.astype(np.int64))
    at = cta.lane_ids - lane + source
    silent = cta.active & ~cta.active[at]
    if silent.any():
        first = int(np.argmax(silent))
        raise EmulatorError(f"{name}: lane {first} reads lane {int(at[first])}, which does not execute it.")
    return value[at], inside


def _shfl(call: Instruction, match: Match[str], attributes: str) -> Handler:
    mode, with_predicate = match[1], isinstance(call.type, StructType)

    def run(cta: Cta, args: list[Any]) -> Any:
        value, inside = shuffle(cta, mode, *args)
        return (value, inside) if with_predicate else value

    return run


def ballot(cta: Cta, predicate: Array) -> Array:
    """Bits of the executing lanes of each warp whose predicate holds, the same in all lanes of the warp."""
    bits = np.packbits(cta.by_warp(cta.active & predicate), axis=1, bitorder="little").view(np.uint32)[:, 0]
    return np.repeat(bits, 32)


def vote(cta: Cta, mode: str, mask: Array, predicate: Array) -> Array:
    member_mask(cta, mask, f"vote.{mode}.sync")
    yes = ballot(cta, predicate)
    if mode == "ballot":
        return yes
    executing = ballot(cta, np.ones(cta.lanes, bool))
    return {"any": yes != 0, "all": yes == executing, "uni": (yes == 0) | (yes == executing)}[mode]


def _vote(call: Instruction, match: Match[str], attributes: str) -> Handler:
    mode = match[1]
    return lambda cta, args: vote(cta, mode, args[0], args[1])


_REDUCTIONS: dict[str, tuple[Any, Any]] = {
    "add": (np.add, np.uint32),
    "umin": (np.minimum, np.uint32),
    "umax": (np.maximum, np.uint32),
    "min": (np.minimum, np.int32),
    "max": (np.maximum, np.int32),
    "and": (np.bitwise_and, np.uint32),
    "or": (np.bitwise_or, np.uint32),
    "xor": (np.bitwise_xor, np.uint32),
}


def _redux(call: Instruction, match: Match[str], attributes: str) -> Handler:
    function, dtype = _REDUCTIONS[match[1]]

    def run(cta: Cta, args: list[Any]) -> Array:
        member_mask(cta, args[1], "redux.sync")
        result = np.zeros(cta.lanes, np.uint32)
        for warp in np.unique(cta.warp_ids[cta.active]):
            lanes = cta.active & (cta.warp_ids == warp)
            result[lanes] = function.reduce(args[0][lanes].view(dtype), dtype=dtype).view(np.uint32)
        return result

    return run


def elect(cta: Cta, mask: Array) -> tuple[Array, Array]:
    """The lowest executing lane of each warp is elected."""
    member_mask(cta, mask, "elect.sync")
    first = np.repeat(cta.by_warp(cta.active).argmax(axis=1), 32)
    return first.astype(np.uint32), (cta.lane_ids % 32) == first


# -- approximate math: exact to float32 here, the hardware's error is not modelled
APPROXIMATE: dict[str, Callable[[Array], Array]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "rsqrt": lambda v: (1.0 / np.sqrt(v.astype(np.float64))).astype(v.dtype),
    "sqrt": np.sqrt,
    "rcp": lambda v: (1.0 / v).astype(v.dtype),
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
}


def approximate(name: str, ftz: bool) -> Callable[[Array], Array]:
    function = APPROXIMATE[name]
    if not ftz:
        return lambda v: numerics.unary(function, v)
    return lambda v: numerics.flush(function(numerics.flush(v)))


def _approx(call: Instruction, match: Match[str], attributes: str) -> Handler:
    function = approximate(match[1], bool(match[2]))
    return lambda cta, args: function(args[0])


# -- matrices
def _ldmatrix(call: Instruction, match: Match[str], attributes: str) -> Handler:
    count, transposed = int(match[1]), bool(match[2])

    def run(cta: Cta, args: list[Any]) -> Any:
        words = matrix.load_matrix(cta, args[0], count, transposed)
        return words[0] if count == 1 else tuple(words)

    return run


def _stmatrix(call: Instruction, match: Match[str], attributes: str) -> Handler:
    transposed = bool(match[2])

    def run(cta: Cta, args: list[Any]) -> tuple[()]:
        matrix.store_matrix(cta, args[0], args[1:], transposed)
        return ()

    return run


def words(value: Array) -> Array:
    """A 32-bit value of any type (scalar or small vector) as (lanes,) of uint32."""
    return np.ascontiguousarray(value).view(np.uint32).reshape(len(value))


def _mma(call: Instruction, match: Match[str], attributes: str) -> Handler:
    """`.f32.f32` has f16 operands, `.f16.f16` also an f16 accumulator in pairs; otherwise the suffix is the type."""
    k, suffix = int(match[1]), match[2]
    kind = {"f32.f32": "f16", "f16.f16": "f16"}.get(suffix, suffix)
    per_register = 32 // matrix.element_bits(kind)
    a_count, b_count = 16 * k // (32 * per_register), 8 * k // (32 * per_register)
    name = f"mma.m16n8k{k}.{suffix}"

    def run(cta: Cta, args: list[Any]) -> Any:
        a, b, c = args[:a_count], args[a_count : a_count + b_count], args[a_count + b_count :]
        pairs = c[0].ndim == 2
        if pairs:
            c = [half for pair in c for half in pair.T]
        elif kind in ("s8", "u8"):
            c = [v.view(np.int32) for v in c]
        d = matrix.mma(cta, [words(v) for v in a], [words(v) for v in b], c, kind, kind, name)
        if pairs:
            return tuple(np.stack(d[i : i + 2], axis=1) for i in (0, 2))
        return tuple(v.view(np.uint32) if v.dtype == np.int32 else v for v in d)

    return run


# -- asynchronous operations
def proxy_fence(cta: Cta, args: list[Any]) -> tuple[()]:
    cta.cluster.clocks.proxy_fence(np.unique(cta.agents[cta.active]))
    return ()


def product_tokens(cta: Cta) -> dict[int, Token]:
    """What the products that the executing warp groups issue now wait for."""
    groups = np.unique(cta.warp_ids[cta.active]) // 4
    queues = {int(g): cta.shared.queue(4 * int(g) + cta.first_warp) for g in groups}
    return {group: Token(queue, queue.serial) for group, queue in queues.items()}


def wgmma_commit(cta: Cta) -> None:
    for warp in cta.active_warps("wgmma.commit_group", group=4)[::4]:
        cta.shared.commit_async(int(warp) + cta.first_warp)


def wgmma_wait(cta: Cta, pending: int) -> None:
    for warp in cta.active_warps("wgmma.wait_group", group=4)[::4]:
        cta.shared.wait_async(int(warp) + cta.first_warp, pending)


def _wgmma_wait(cta: Cta, args: list[Any]) -> tuple[()]:
    wgmma_wait(cta, cta.uniform(args[0], "The count of wgmma.wait_group"))
    return ()


def copy_async(cta: Cta, shared: Array, source: Array, size: int, given: Array | None, mask: Array) -> None:
    """cp.async of `size` bytes, of which only the first `given` are read; the rest is written as zeros. The bytes are
    read now and land at the wait."""
    rows = np.zeros((cta.lanes, size), np.uint8)
    if given is None:
        rows[:] = cta.load(1, source, size, size, mask)
    else:
        for length in np.unique(given[mask & cta.active]):
            if length:
                part = mask & (given == length)
                rows[part, :length] = cta.load(1, source, int(length), size, part)[part]
    wrong = mask & cta.active & ((shared & np.uint64(size - 1)) != 0)
    if wrong.any():
        raise EmulatorError(
            f"cp.async in lane {int(np.argmax(wrong))}: the shared address is not a multiple of {size} bytes."
        )
    cta.start_copy(shared, rows, mask & cta.active)


def _cp_async(call: Instruction, match: Match[str], attributes: str) -> Handler:
    size = int(match[1])

    def run(cta: Cta, args: list[Any]) -> tuple[()]:
        copy_async(cta, args[0], args[1], size, args[2] if len(args) > 2 else None, cta.active)
        return ()

    return run


# Groups are kept per warp, so a warp must commit and wait as a whole.
def commit_copies(cta: Cta) -> None:
    cta.commit_copies(cta.active_warps("cp.async.commit_group"))


def wait_copies(cta: Cta, pending: int) -> None:
    cta.finish_copies(pending, cta.active_warps("cp.async.wait_group"))


def wait_all_copies(cta: Cta) -> None:
    commit_copies(cta)
    wait_copies(cta, 0)


def _cp_wait(cta: Cta, args: list[Any]) -> tuple[()]:
    wait_copies(cta, cta.uniform(args[0], "The count of cp.async.wait.group"))
    return ()


def _effect(function: Callable[[Cta], None]) -> Factory:
    def handler(cta: Cta, args: list[Any]) -> tuple[()]:
        function(cta)
        return ()

    return _simple(handler)


_N = r"llvm\.nvvm\."
INTRINSICS: dict[str, Factory] = {
    _N + r"read\.ptx\.sreg\.(.*)": _sreg,
    _N + r"barrier0|llvm\.nvvm\.barrier\.cta\.sync(?:\.aligned)?\.(?:all|count)": nothing,  # the gate has done all
    _N + r"barrier\.cta\.arrive(?:\.aligned)?\.count": _simple(_arrive),
    _N + r"bar\.warp\.sync": _simple(_warp_sync),
    _N + r"shfl\.sync\.(idx|bfly|up|down)\.[if]32p?": _shfl,
    _N + r"vote\.(any|all|uni|ballot)\.sync": _vote,
    _N + r"redux\.sync\.(\w+)": _redux,
    _N + r"activemask": _simple(lambda cta, args: ballot(cta, np.ones(cta.lanes, bool))),
    _N + r"elect\.sync": _simple(lambda cta, args: elect(cta, args[0])),
    _N + r"(ex2|lg2|rsqrt|sqrt|rcp|tanh|sin|cos)\.approx\.(ftz\.)?f(?:32)?": _approx,
    _N + r"(sqrt|rcp)\.rn\.(ftz\.)?f": _approx,
    _N + r"fma\.rn\.(?:f|f16|bf16|f16x2|bf16x2)": values(numerics.fma),
    _N + r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.b16\.p3": _ldmatrix,
    _N + r"stmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.b16\.p3": _stmatrix,
    _N + r"mma\.m16n8k(\d+)\.row\.col\.(f32\.f32|f16\.f16|bf16|tf32|s8|u8)": _mma,
    _N + r"fence\.proxy\.async.*": _simple(proxy_fence),
    _N + r"(?:membar\..*|fence\.(?:acq_rel|sc|mbarrier).*|wgmma\.fence\.sync\.aligned|griddepcontrol\..*)": nothing,
    _N + r"(?:setmaxnreg\..*|prefetch.*|nanosleep)": nothing,
    _N + r"wgmma\.commit_group\.sync\.aligned": _effect(wgmma_commit),
    _N + r"wgmma\.wait_group\.sync\.aligned": _simple(_wgmma_wait),
    _N + r"cp\.async\.c[ag]\.shared\.global\.(4|8|16)(?:\.s)?": _cp_async,
    _N + r"cp\.async\.commit\.group": _effect(commit_copies),
    _N + r"cp\.async\.wait\.group": _simple(_cp_wait),
    _N + r"cp\.async\.wait\.all": _effect(wait_all_copies),
}
