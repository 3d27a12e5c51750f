"""Where the program runs: the grid, the tasks of a CTA, threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.types import Scalar, Tensor, int1, int32, int64, uint32, uint64

from .context import current
from .core import as_tensor, builder, builtin, describe, literal_int, tensor
from .handles import require_feature
from .math import truth

REGISTER_STEP = 8
REGISTERS = (24, 256)  # least and most that a thread may have
_UNSIGNED: dict[Any, Any] = {int32: uint32, int64: uint64}


def _grid(kind: str, axis: int) -> tensor:
    return tensor(builder().emit(kind, type=Scalar(int32), axis=_axis(kind, axis)))


def _axis(kind: str, axis: Any) -> int:
    a = literal_int(axis, f"the axis of {kind}")
    if a not in (0, 1, 2):
        raise CompileError(f"a grid has no axis {a}", allowed="0, 1 or 2")
    return a


@builtin
def program_id(axis: int) -> tensor:
    """The index of this program in the grid along `axis` (0, 1 or 2): an int32 scalar from 0 to num_programs(axis) - 1.

    Targets: all.  Errors: an axis that is not a compile-time 0, 1 or 2.
    Instruction: a read of `%ctaid` (PTX ISA, "Special Registers"), `workgroup_id`.
    """
    return _grid("program_id", axis)


@builtin
def num_programs(axis: int) -> tensor:
    """The number of programs in the grid along `axis` (0, 1 or 2): an int32 scalar.

    Targets: all.  Errors: an axis that is not a compile-time 0, 1 or 2.
    Instruction: a read of `%nctaid` (PTX ISA, "Special Registers"); on AMD a load from the implicit arguments.
    """
    return _grid("num_programs", axis)


# ------------------------------------------------------------------------------------------------------------- tasks
@dataclass(frozen=True)
class TaskRegion:
    """What `async_tasks(...)` says of the tasks inside it."""

    exclusive: bool = False


@dataclass(frozen=True)
class TaskSpec:
    """What one `async_task(...)` says.  `num_warps`: of each copy, None for the default task, which has those of the
    kernel; `num_regs`: registers of a thread, 0 for none; `start_warp`: absolute, of the first copy."""

    num_warps: int | None
    num_regs: int
    replicate: int
    start_warp: int | None

    @property
    def default(self) -> bool:
        return self.num_warps is None


@builtin
def async_tasks(exclusive: bool = False) -> TaskRegion:
    """`with tlx.async_tasks():` holds tasks that run at once, each on warps of its own: `with tlx.async_task(...)`
    statements, and compile-time `if`s around them, and nothing else.  Exactly one task is the default one.

    All warps have seen what happened before the region, and what the tasks did is seen after it; between tasks nothing
    is ordered but by barriers.  Names that a task assigns are its own.  `exclusive`: promises that the kernel has no
    other region.  Targets: sm_90 and later.  Errors: other statements; none or two default tasks; nested regions.
    Instruction: a branch on the warp index, and a barrier of the CTA at both ends.
    """
    if not isinstance(exclusive, bool):
        raise CompileError("exclusive is a compile-time bool", found=describe(exclusive))
    return TaskRegion(exclusive)


@builtin
def async_task(
    task: Any = None,
    *,
    num_warps: int | None = None,
    num_regs: int | None = None,
    registers: int | None = None,
    replicate: int = 1,
    warp_group_start_id: int | None = None,
) -> TaskSpec:
    """`with tlx.async_task("default"):`, run by the warps that the kernel has anyway, or
    `with tlx.async_task(num_warps=N):`, run by N more.

    `num_regs` (or `registers`): registers of a thread of the task, a multiple of 8 from 24 to 256.  `replicate`: copies
    of the task, each on warps of its own; `tlx.async_task_replica_id()` tells them apart.  Copies that differ only in
    numbers share their code.
    `warp_group_start_id`: the first warp of the first copy, counted in the CTA; copies follow each other.  Tasks in one
    group of 4 warps, that of a default task of 1 or 2 warps too, share the largest of their registers.
    All arguments are compile-time.  Targets: sm_90 and later.
    Errors: a list of ids; neither "default" nor num_warps; values out of range; warps that overlap.
    Instruction: `setmaxnreg` where registers are asked for (PTX ISA, "setmaxnreg").
    """
    if isinstance(task, (tuple, list)):
        raise CompileError(
            "async_task does not take a list of ids",
            found=f"async_task({list(task)!r})",
            fix='write one tlx.async_task("default") and tlx.async_task(num_warps=N) for the others',
        )
    if (task is None) == (num_warps is None) or task not in (None, "default"):
        raise CompileError(
            "async_task is the default task or says its number of warps",
            found=f"task={task!r}, num_warps={num_warps!r}",
            allowed='async_task("default") or async_task(num_warps=N)',
        )
    warps = None if num_warps is None else _task_warps(num_warps)
    copies = literal_int(replicate, "replicate")
    if copies < 1:
        raise CompileError("replicate counts the copies of a task", found=str(copies), allowed="1, 2, ...")
    return TaskSpec(warps, _registers(num_regs, registers), copies, _start(warp_group_start_id, warps))


def _task_warps(num_warps: Any) -> int:
    n = literal_int(num_warps, "num_warps of async_task")
    most = current().target.max_warps
    if not 1 <= n <= most or n & (n - 1):
        raise CompileError(
            "num_warps of async_task is a power of two",
            found=str(n),
            allowed=f"1, 2, 4, ... up to {most}",
            fix="use replicate, or several tasks, for other sums",
        )
    return n


def _registers(num_regs: Any, registers: Any) -> int:
    if num_regs is not None and registers is not None:
        raise CompileError("num_regs and registers are one argument", fix="give num_regs alone")
    given = registers if num_regs is None else num_regs
    if given is None:
        return 0
    n, (least, most) = literal_int(given, "num_regs"), REGISTERS
    if n % REGISTER_STEP or not least <= n <= most:
        raise CompileError(
            f"num_regs must be divisible by {REGISTER_STEP}" if n % REGISTER_STEP else "num_regs is out of range",
            found=str(n),
            allowed=f"multiples of {REGISTER_STEP} from {least} to {most}",
        )
    return n


def _start(start: Any, warps: int | None) -> int | None:
    """The first warp; a task of 4 warps or more begins a warpgroup, a smaller one lies inside one."""
    if start is None:
        return None
    n = literal_int(start, "warp_group_start_id")
    if warps is None:
        raise CompileError("the default task starts at warp 0", found=f"warp_group_start_id={n}", fix="leave it out")
    if n < 0 or (n % 4 and n % 4 + warps > 4):
        raise CompileError(
            "a task stays inside one group of 4 warps or begins one",
            found=f"warp_group_start_id={n} with {warps} warps",
            fix="start it at a multiple of 4",
        )
    return n


@builtin
def async_task_replica_id() -> int:
    """Which copy of its task this is: a compile-time int from 0 to replicate - 1.

    Targets: sm_90 and later.  Errors: use outside a task.  No instruction.
    """
    task = current().task
    if task is None:
        fix = "call it in `with tlx.async_task(...)`"
        raise CompileError("async_task_replica_id exists only inside a task", fix=fix)
    return task.replica


@builtin
def get_bufidx_phase(accum_cnt: Any, NUM_BUFFERS: int) -> tuple[Any, Any]:
    """The buffer and the parity of the trip `accum_cnt` of a loop over NUM_BUFFERS buffers:
    (accum_cnt % NUM_BUFFERS, (accum_cnt // NUM_BUFFERS) & 1), as numbers of the same type.

    A count is not negative; at run time it is divided as an unsigned number, which takes fewer instructions.
    Targets: all.  Errors: a run-time NUM_BUFFERS.  Instruction: a few integer instructions.
    """
    n = literal_int(NUM_BUFFERS, "NUM_BUFFERS")
    unsigned = _UNSIGNED.get(accum_cnt.dtype) if isinstance(accum_cnt, tensor) else None
    if unsigned is None:
        return accum_cnt % n, (accum_cnt // n) & 1
    count = accum_cnt.to(unsigned)
    return (count % n).to(accum_cnt.dtype), ((count // n) & 1).to(accum_cnt.dtype)


# ----------------------------------------------------------------------------------------------------------- threads
@builtin
def thread_id(axis: int) -> tensor:
    """The index of the thread in its CTA along `axis`: an int32 that differs between threads, so no branch takes it.

    Targets: sm_90 and later.  Errors: an axis that is not a compile-time 0, 1 or 2.
    Instruction: a read of `%tid` (PTX ISA, "Special Registers").
    """
    require_feature("elect", "thread_id")
    return tensor(builder().emit("thread_id", type=Scalar(int32, "thread"), axis=_axis("thread_id", axis)))


@builtin
def clock64() -> tensor:
    """The cycle counter of the SM, an int64 that differs between threads; subtract two readings.

    Targets: sm_90 and later.  Instruction: a read of `%clock64` (PTX ISA, "Special Registers").
    """
    require_feature("elect", "clock64")
    return tensor(builder().emit("clock64", type=Scalar(int64, "thread")))


@builtin
def vote_ballot_sync(mask: int, pred: Any) -> tensor:
    """Which lanes of the warp hold a true: bit i of the int32 is the vote of lane i, 0 for lanes outside `mask`.

    `mask`: a compile-time 32-bit mask of lanes; all lanes of the warp execute it all the same.  `pred`: a scalar, for
    a value of the warp; or a tile, of which a lane votes true where any element that it holds is, for a tile that holds
    in each element the word of the warp whose thread holds it, so that it depends on the layout.  Numbers count as true
    unless they are 0.  Targets: sm_90 and later.  Errors: a run-time mask, or one without lanes; pointers.
    Instruction: `vote.sync.ballot.b32` (PTX ISA, "vote.sync").
    """
    require_feature("elect", "vote_ballot_sync")
    lanes = literal_int(mask, "the mask of vote_ballot_sync") & 0xFFFFFFFF
    if not lanes:
        raise CompileError(
            "the mask of vote_ballot_sync names no lane",
            found=str(mask),
            allowed="1 to 0xFFFFFFFF, a bit for each lane",
            fix="write 0xFFFFFFFF for the whole warp",
        )
    x = as_tensor(pred)
    vote = x if x.number == int1 else x != 0
    kind = Tensor(x.shape, int32) if x.shape else Scalar(int32, "warp")
    return tensor(builder().emit("vote", vote.value, type=kind, mask=lanes))


@builtin
def warp_any(x: Any) -> tensor:
    """Whether any of the bools that a warp holds is true: a bool on which the threads of a warp agree.

    `x`: a bool tile, or a scalar; numbers count as true unless they are 0.  `if` on the result lets each warp take its
    own branch.  In it stands arithmetic, reductions included, on elements that the warp holds: the rows of its part of
    the tile `x`.  Loads, stores, barriers and products are refused there, and results that lie in the warps otherwise
    than `x`.  Which rows share a warp is the compiler's choice, so both branches must be right for all rows.
    `tlx.warp_any(x > limit[:, None])` takes one maximum for each limit and no comparison for each element.
    Targets: sm_90 and later.  Errors: pointers; `while` on the result.
    Instruction: `vote.sync.any.pred` (PTX ISA, "vote.sync").
    """
    return _warp_vote("any", x)


@builtin
def warp_all(x: Any) -> tensor:
    """Whether all bools that a warp holds are true: a bool on which the threads of a warp agree; see tlx.warp_any.

    Targets: sm_90 and later.  Errors: pointers; `while` on the result.
    Instruction: `vote.sync.all.pred` (PTX ISA, "vote.sync").
    """
    return _warp_vote("all", x)


def _warp_vote(mode: str, x: Any) -> tensor:
    require_feature("elect", f"warp_{mode}")
    return tensor(builder().emit("warp_vote", truth(x).value, type=Scalar(int1, "warp"), mode=mode))
