"""Matrix multiply on NVIDIA: `mma.sync` from registers and `wgmma` from shared memory.

Sources: PTX ISA, "Warp-level matrix instructions" and "Asynchronous warpgroup level matrix instructions" (fragments,
descriptors).  wgmma is waited for inside the op: a `dot` is complete when it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from tlxc.codegen.simt.buffer import buffer_type, offset_terms
from tlxc.codegen.simt.lowering import Lower, Lowering, layout_of, register_of
from tlxc.errors import InternalError
from tlxc.ir.core import Op, Value
from tlxc.ir.memory import CORE, Memory
from tlxc.ir.types import Tensor, element_of, shape_of

STEP_K = 16  # of one mma.sync on 16-bit elements
STEP_BYTES = 32  # along K, of one wgmma
GROUP = 4  # warps of a warpgroup
_MODES = {CORE: 0, 128: 1, 64: 2, 32: 3}
_KINDS = {"f32": "tf32"}  # what wgmma calls an element, where it is another name


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
    for row, col in sorted(where):
        if row & 8 or col & 1:
            continue
        regs = [where[row + i, col + j] for i in (0, 8) for j in (0, 1)]
        for k0 in range(0, k, STEP_K):
            left = [pairs_a[row + i, k0 + j] for j in (0, 8) for i in (0, 8)]
            right = [pairs_b[k0 + j, col] for j in (0, 8)]
            args = [("i32", x) for x in left + right] + [("float", acc[r]) for r in regs]
            for r, x in zip(regs, w.asm_values(["float"] * 4, text, constraints, args)):
                acc[r] = x
    low.set(op.result, acc)


def _pairs(low: Lowering, v: Value, along: int) -> dict[tuple[int, ...], str]:
    """Neighbours along K (dimension `along`) packed into i32, keyed by the coordinate of the even one."""
    w, names, where = low.w, low.get(v), register_of(layout_of(v))
    t = low.llvm(v)
    out: dict[tuple[int, ...], str] = {}
    for coords, r in where.items():
        if coords[along] & 1:
            continue
        other = tuple(x + 1 if d == along else x for d, x in enumerate(coords))
        pair, vector = w.vector([names[r], names[where[other]]], t)
        out[coords[0], coords[1]] = w.assign(f"bitcast {pair} {vector} to i32")
    return out


# ------------------------------------------------------------------------------------------------ wgmma
@dataclass(frozen=True)
class Operand:
    """How a buffer is described to wgmma.  `rows` is M or N: bytes between rows' groups and K steps.

    `stride` is the byte offset field (SBO) and `leading` the leading one (LBO); `transposed`: M or N is contiguous.
    """

    width: int  # of the swizzle, bytes; CORE without one
    transposed: bool
    leading: int
    stride: int
    block: int  # elements of the contiguous dimension in one column block
    block_bytes: int  # bytes from one column block to the next
    elem: int  # bytes

    @property
    def fields(self) -> int:
        """Descriptor without its start address: LBO>>4 at bit 16, SBO>>4 at bit 32, swizzle mode at bit 62."""
        return (self.leading >> 4) << 16 | (self.stride >> 4) << 32 | _MODES[self.width] << 62

    def offset(self, row: int, k: int) -> int:
        """Bytes from the start of the buffer to the instruction's tile at (row of M or N, k)."""
        contiguous, other = (row, k) if self.transposed else (k, row)
        return contiguous // self.block * self.block_bytes + contiguous % self.block * self.elem + other * self.width


def operand(mem: Memory, k_dim: int, elem: int) -> Operand:
    """The operand form of a buffer whose K extent is dimension `k_dim`; only 16-bit elements may be contiguous along
    the other one."""
    fast = max(range(2), key=lambda d: 1 in mem.bases[d][:1])
    slow = 1 - fast
    block = 1 << mem.bits[fast]
    width, transposed = elem * block, fast != k_dim
    atom = mem.bits[slow] == 3 and width in _MODES and mem.strides[slow] == 8 * block
    if not atom or (transposed and elem != 2):
        raise InternalError(f"wgmma cannot read a buffer laid out as {mem}")
    block_bytes, group = elem * mem.strides[fast], 8 * width
    if width == CORE:  # leading: the next 8 of K, stride: the next 8 of M or N
        leading, stride = (group, block_bytes) if transposed else (block_bytes, group)
    else:
        leading, stride = block_bytes if transposed else 16, group
    return Operand(width, transposed, leading, stride, block, block_bytes, elem)


def _descriptor(low: Lowering, buf: Value, form: Operand, warpgroup_bytes: int) -> str:
    """64-bit descriptor of the buffer's first tile for this warpgroup.

    What no loop changes comes first: the masked start with the field above it.  Run-time multiples of 16 bytes are
    added to it, which cannot carry: all of shared memory is less than 2**14 of them.
    """
    w = low.w
    fixed, terms = offset_terms(low, buf)
    if warpgroup_bytes:
        terms = [*terms, (w.assign(f"lshr i32 {low.warp}, 2"), warpgroup_bytes)]
    address = w.add(w.assign("ptrtoint ptr addrspace(3) @smem to i32"), str(fixed))
    for name, step in terms:
        if step % 16:
            address = w.add(address, w.assign(f"mul i32 {name}, {step}"))
    start = w.assign(f"and i32 {w.assign(f'lshr i32 {address}, 4')}, {0x3FFF}")
    start = w.assign(f"or i32 {start}, {form.fields & 0xFFFFFFFF}")
    for name, step in terms:
        if step % 16 == 0:
            start = w.add(start, w.assign(f"mul i32 {name}, {step >> 4}"))
    above = form.fields >> 32 << 32
    return w.assign(f"or i64 {w.assign(f'zext i32 {start} to i64')}, {above - (1 << 64) if above >> 63 else above}")


def wgmma(low: Lowering, op: Op) -> None:
    """A synchronous dot: fence, K steps of every m64 tile, commit and wait in one asm: nothing slips between."""
    low.set(op.result, _multiply(low, op, "wgmma.wait_group.sync.aligned 0;"))


def async_dot(low: Lowering, op: Op) -> None:
    """The same without the wait; the result is pending."""
    low.set(op.result, _multiply(low, op, ""))


def async_dot_wait(low: Lowering, op: Op) -> None:
    """The values go through the wait, so that no use of them can rise above it."""
    w = low.w
    names = [x for v in op.inputs for x in low.get(v)]
    # Registers that a dot still reads are named by the wait, so that they live until then.
    pendings = op.attrs["pendings"]
    reading = [x for block, words in low.in_flight if block == w.block for x in words]
    low.in_flight = low.in_flight[len(low.in_flight) - pendings :] if pendings else []
    constraints = ["=f"] * len(names) + [str(i) for i in range(len(names))] + ["r"] * len(reading) + ["~{memory}"]
    args = [("float", x) for x in names] + [("i32", x) for x in reading]
    text = f"wgmma.wait_group.sync.aligned {pendings};"
    out = w.asm_values(["float"] * len(names), text, ",".join(constraints), args)
    for result, source in zip(op.results, op.inputs):
        count = len(low.get(source))
        low.set(result, out[:count])
        out = out[count:]


def _multiply(low: Lowering, op: Op, wait: str) -> list[str]:
    """Accumulators after acc + a @ b.  They are tied through the asm, so that they never move; without acc they are
    outputs only, and the first K step overwrites them, as it does where use_acc is false."""
    a, b, start, use = (*op.operands, None)[:4]
    assert a is not None and b is not None
    acc = low.get(start) if start is not None else None
    (m, k), n = shape_of(a.type), shape_of(b.type)[1]
    groups = low.num_warps // GROUP
    where = register_of(layout_of(op.result))
    rows = range(0, m, 64 * groups)
    order = [where[row + 8 * (j >> 1 & 1), (j & 1) + 8 * (j >> 2)] for row in rows for j in range(n // 2)]
    count = len(order)
    elem = element_of(b.type).bytes
    step = STEP_BYTES // elem
    right = operand(buffer_type(b)[1], 0, elem)
    source = _Registers(low, a) if isinstance(a.type, Tensor) else _Shared(low, a, groups)
    inputs = [("i64", _descriptor(low, b, right, 0)), *source.inputs]
    first = count * (1 if acc is None else 2)  # operand number of the first input after the accumulators
    keep = "0"  # what the first K step leaves of the accumulators; predicate q
    if use is not None:
        keep = f"${first + len(inputs)}"
        inputs.append(("i32", low.w.assign(f"zext i1 {low.scalar(use)} to i32")))
    name = f"wgmma.mma_async.sync.aligned.m64n{n}k{step}.f32.{_kind(a)}.{_kind(b)}"
    lines = [f"{{ .reg .b64 da, db; .reg .pred p, q; setp.ne.b32 p, 1, 0; setp.ne.b32 q, {keep}, 0;"]
    if not (low.fenced == low.w.block and _in_place(a, start)):
        lines.append("wgmma.fence.sync.aligned;")
    for tile, row in enumerate(rows):
        regs = ",".join(f"${tile * n // 2 + i}" for i in range(n // 2))
        for k0 in range(0, k, step):
            scale = "q" if (acc is None or use is not None) and k0 == 0 else "p"
            load, left = source.step(row, k0, first + 1)
            flags = [f", {int(t)}" for t in (*source.transposed, right.transposed) if elem == 2]
            lines.append(
                f"{load}add.s64 db, ${first}, {right.offset(0, k0) >> 4}; "
                f"{name} {{{regs}}}, {left}, db, {scale}, 1, 1{''.join(flags)};"
            )
    lines.append(f"wgmma.commit_group.sync.aligned; {wait} }}")
    constraints = [*["=f" if acc is not None else "=&f"] * count]
    constraints += [str(i) for i in range(count)] if acc is not None else []
    constraints += ["l" if t == "i64" else "r" for t, _ in inputs] + ["~{memory}"]
    args = [("float", acc[r]) for r in order] if acc is not None else []
    low.fenced = "" if wait else low.w.block
    if not wait:
        low.in_flight.append((low.w.block, source.held))
    out = [""] * count
    values = low.w.asm_values(["float"] * count, " ".join(lines), ",".join(constraints), args + inputs)
    for r, x in zip(order, values):
        out[r] = x
    return out


def _in_place(a: Value, start: Value | None) -> bool:
    """Whether the registers of a dot were written before the dot in front of it: in another block, or as its result."""
    if start is None or (isinstance(a.type, Tensor) and a.op is not None):
        return False
    return start.op is None or start.op.kind == "async_dot"


def _kind(v: Value) -> str:
    name = str(element_of(v.type))
    return _KINDS.get(name, name)


class _Shared:
    """Operand A in shared memory: a descriptor, moved on by an immediate for each step."""

    def __init__(self, low: Lowering, a: Value, groups: int) -> None:
        self.form = operand(buffer_type(a)[1], 1, element_of(a.type).bytes)
        self.transposed = (self.form.transposed,)
        self.inputs = [("i64", _descriptor(low, a, self.form, self.form.offset(64, 0) if groups > 1 else 0))]
        self.held: list[str] = []  # registers that the dot reads while it runs

    def step(self, row: int, k0: int, first: int) -> tuple[str, str]:
        """(instructions before, operand) of a tile's step; its inputs begin at operand `first`."""
        return f"add.s64 da, ${first}, {self.form.offset(row, k0) >> 4}; ", "da"


class _Registers:
    """Operand A in registers: four words along K and M for each tile and step, of one element or a pair along K."""

    def __init__(self, low: Lowering, a: Value) -> None:
        elem = element_of(a.type).bytes
        words = _pairs(low, a, 1) if elem == 2 else _single(low, a)
        self.half = STEP_BYTES // elem // 2
        self.transposed: tuple[bool, ...] = ()  # there is no flag
        self.number = {coords: i for i, coords in enumerate(words)}
        self.held = list(words.values())
        self.inputs = [("i32", x) for x in self.held]

    def step(self, row: int, k0: int, first: int) -> tuple[str, str]:
        words = [f"${first + self.number[row + i, k0 + j]}" for j in (0, self.half) for i in (0, 8)]
        return "", "{" + ",".join(words) + "}"


def _single(low: Lowering, v: Value) -> dict[tuple[int, ...], str]:
    """32-bit elements as i32, keyed by coordinate."""
    names = low.get(v)
    return {xy: low.w.assign(f"bitcast float {names[r]} to i32") for xy, r in register_of(layout_of(v)).items()}


LOWERINGS: dict[str, Lower] = {"dot": dot, "async_dot": async_dot, "async_dot_wait": async_dot_wait}
