"""Matrix multiply on NVIDIA: `mma.sync` from registers and `wgmma` from shared memory.

Sources: PTX ISA, "Warp-level matrix instructions" and "Asynchronous warpgroup level matrix instructions" (fragments,
descriptors).  wgmma is waited for inside the op: a `dot` is complete when it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from tlxc.codegen.simt.buffer import buffer_type
from tlxc.codegen.simt.lowering import Lowering, layout_of, register_of
from tlxc.errors import InternalError
from tlxc.ir.core import Op, Value
from tlxc.ir.memory import Memory
from tlxc.ir.types import element_of, shape_of

_CONVERGENT = " #1"
STEP_K = 16  # of one instruction on 16-bit elements
GROUP = 4  # warps of a warpgroup


def dot(low: Lowering, op: Op) -> None:
    {"wgmma": wgmma, "mma.sync": mma_sync}[op.attrs["impl"]](low, op)


# ------------------------------------------------------------------------------------------------ mma.sync
def mma_sync(low: Lowering, op: Op) -> None:
    """m16n8k16; this thread's registers at lane 0 of warp 0 name the instruction tiles it takes part in."""
    w = low.w
    a, b, c = op.inputs
    pairs_a, pairs_b = _pairs(low, a, 1), _pairs(low, b, 0)
    where = register_of(layout_of(op.result))
    acc = list(low.get(c))
    k = shape_of(a.type)[1]
    kind = str(element_of(a.type))
    name = f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"
    text = f"{name} {{$0,$1,$2,$3}}, {{$4,$5,$6,$7}}, {{$8,$9}}, {{$10,$11,$12,$13}};"
    constraints = "=f,=f,=f,=f,r,r,r,r,r,r,0,1,2,3"
    struct = "{ float, float, float, float }"
    for row, col in sorted(where):
        if row & 8 or col & 1:
            continue
        regs = [where[row + i, col + j] for i in (0, 8) for j in (0, 1)]
        for k0 in range(0, k, STEP_K):
            left = [pairs_a[row + i, k0 + j] for j in (0, 8) for i in (0, 8)]
            right = [pairs_b[k0 + j, col] for j in (0, 8)]
            args = [("i32", x) for x in left + right] + [("float", acc[r]) for r in regs]
            out = w.asm(struct, text, constraints, args)
            for i, r in enumerate(regs):
                acc[r] = w.assign(f"extractvalue {struct} {out}, {i}")
    low.set(op.result, acc)


def _pairs(low: Lowering, v: Value, along: int) -> dict[tuple[int, int], str]:
    """Neighbours along K (dimension `along`) packed into i32, keyed by the coordinate of the even one."""
    w, names, where = low.w, low.get(v), register_of(layout_of(v))
    t = low.llvm(v)
    out = {}
    for coords, r in where.items():
        if coords[along] & 1:
            continue
        other = tuple(x + 1 if d == along else x for d, x in enumerate(coords))
        vector = w.assign(f"insertelement <2 x {t}> poison, {t} {names[r]}, i32 0")
        vector = w.assign(f"insertelement <2 x {t}> {vector}, {t} {names[where[other]]}, i32 1")
        out[coords[0], coords[1]] = w.assign(f"bitcast <2 x {t}> {vector} to i32")
    return out


# ------------------------------------------------------------------------------------------------ wgmma
@dataclass(frozen=True)
class Operand:
    """How a swizzled buffer is described to wgmma.  `rows` is M or N: bytes between rows' groups and K steps.

    `stride` is the byte offset field (SBO) and `leading` the leading one (LBO); `transposed`: M or N is contiguous.
    """

    width: int  # of the swizzle, bytes
    transposed: bool
    leading: int
    stride: int
    block: int  # elements of the contiguous dimension in one column block
    block_bytes: int  # bytes from one column block to the next

    @property
    def fields(self) -> int:
        """Descriptor without its start address: LBO>>4 at bit 16, SBO>>4 at bit 32, swizzle mode at bit 62."""
        return (self.leading >> 4) << 16 | (self.stride >> 4) << 32 | {128: 1, 64: 2, 32: 3}[self.width] << 62

    def offset(self, row: int, k: int) -> int:
        """Bytes from the start of the buffer to the instruction's tile at (row of M or N, k)."""
        contiguous, other = (row, k) if self.transposed else (k, row)
        return contiguous // self.block * self.block_bytes + contiguous % self.block * 2 + other * self.width


def operand(mem: Memory, k_dim: int) -> Operand:
    """The operand form of a swizzled 16-bit buffer whose K extent is dimension `k_dim`."""
    fast = max(range(2), key=lambda d: 1 in mem.bases[d][:1])
    slow = 1 - fast
    block = 1 << mem.bits[fast]
    width = 2 * block
    if mem.bits[slow] != 3 or width not in (32, 64, 128) or mem.strides[slow] != 8 * block:
        raise InternalError(f"wgmma cannot read a buffer laid out as {mem}")
    block_bytes = 2 * mem.strides[fast]
    transposed = fast != k_dim
    return Operand(width, transposed, block_bytes if transposed else 16, 8 * width, block, block_bytes)


def _descriptor(low: Lowering, buf: Value, form: Operand, warpgroup_bytes: int) -> str:
    """64-bit descriptor of the buffer's first tile for this warpgroup."""
    w = low.w
    address = w.assign("ptrtoint ptr addrspace(3) @smem to i32")
    address = w.add(address, low.scalar(buf))
    if warpgroup_bytes:
        group = w.assign(f"lshr i32 {low.warp}, 2")
        address = w.add(address, w.assign(f"mul i32 {group}, {warpgroup_bytes}"))
    start = w.assign(f"and i32 {w.assign(f'lshr i32 {address}, 4')}, {0x3FFF}")
    return w.assign(f"or i64 {w.assign(f'zext i32 {start} to i64')}, {_signed64(form.fields)}")


def _signed64(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x


def wgmma(low: Lowering, op: Op) -> None:
    w = low.w
    a, b, c = op.inputs
    (m, k), n = shape_of(a.type), shape_of(b.type)[1]
    left, right = operand(buffer_type(a)[1], 1), operand(buffer_type(b)[1], 0)
    groups = low.module.num_warps // GROUP
    desc_a = _descriptor(low, a, left, left.offset(64, 0) if groups > 1 else 0)
    desc_b = _descriptor(low, b, right, 0)
    where = register_of(layout_of(op.result))
    acc = _through(low, "wgmma.fence.sync.aligned;", low.get(c))
    for row in range(0, m, 64 * groups):
        regs = [where[row + 8 * (j >> 1 & 1), (j & 1) + 8 * (j >> 2)] for j in range(n // 2)]
        steps = [(left.offset(row, k0) >> 4, right.offset(0, k0) >> 4) for k0 in range(0, k, STEP_K)]
        flags = (int(left.transposed), int(right.transposed))
        out = _issue(low, n, str(element_of(a.type)), steps, flags, [acc[r] for r in regs], desc_a, desc_b)
        for r, x in zip(regs, out):
            acc[r] = x
    w.call("void", "llvm.nvvm.wgmma.commit_group.sync.aligned", [], _CONVERGENT)
    low.set(op.result, _through(low, "wgmma.wait_group.sync.aligned 0;", acc))


def _issue(
    low: Lowering,
    n: int,
    kind: str,
    steps: list[tuple[int, int]],
    flags: tuple[int, int],
    acc: list[str],
    a: str,
    b: str,
) -> list[str]:
    """All K steps of one m64 tile in one asm; the accumulators are tied, so that they never move."""
    count = len(acc)
    regs = ",".join(f"${i}" for i in range(count))
    name = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{kind}.{kind}"
    lines = [
        f"add.s64 da, ${2 * count}, {step_a}; add.s64 db, ${2 * count + 1}, {step_b}; "
        f"{name} {{{regs}}}, da, db, p, 1, 1, {flags[0]}, {flags[1]};"
        for step_a, step_b in steps
    ]
    text = "{ .reg .b64 da, db; .reg .pred p; setp.ne.b32 p, 1, 0; " + " ".join(lines) + " }"
    constraints = ",".join(["=f"] * count + [str(i) for i in range(count)] + ["l", "l"])
    struct = f"{{ {', '.join(['float'] * count)} }}"
    out = low.w.asm(struct, text, constraints, [("float", x) for x in acc] + [("i64", a), ("i64", b)])
    return [low.w.assign(f"extractvalue {struct} {out}, {i}") for i in range(count)]


def _through(low: Lowering, text: str, acc: list[str]) -> list[str]:
    """An instruction that orders the accumulators: they go through it, so none is written below the fence or read above
    the wait."""
    count = len(acc)
    struct = f"{{ {', '.join(['float'] * count)} }}"
    constraints = ",".join(["=f"] * count + [str(i) for i in range(count)]) + ",~{memory}"
    out = low.w.asm(struct, text, constraints, [("float", x) for x in acc])
    return [low.w.assign(f"extractvalue {struct} {out}, {i}") for i in range(count)]
