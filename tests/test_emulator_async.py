"""The emulator on warp-specialised code: mbarriers, TMA, wgmma in flight, named barriers, clusters."""

# ruff: noqa: E501  (lines of IR are as long as they are)

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from test_emulator import BARRIER, P1, P3, SMEM, TID, kernel, pointer, wgmma_result

from tlxc.emulator import EmulatorError, TensorMap, launch

MAP = 'ptr byval([128 x i8]) align 64 "nvvm.grid_constant"'
BASE = f"%smem = ptrtoint {P3} @smem to i32\n"
LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {$2, $3}], [$4];"
WAIT = (
    "{\\0A.reg .pred p;\\0A$$W: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1;\\0A@p bra.uni $$D;\\0A"
    "bra.uni $$W;\\0A$$D:\\0A}"
)
FENCE = 'call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"() #1\n'


def asm(text: str, *operands: str) -> str:
    """A call of inline PTX without results; operands with their types, `i32 %x`."""
    letters = ",".join({"i16": "h", "i32": "r", "i64": "l", "ptr": "l", "float": "f"}[o.split()[0]] for o in operands)
    tail = ",~{memory}" if letters else "~{memory}"
    return f'call void asm sideeffect "{text}", "{letters}{tail}"({", ".join(operands)}) #1\n'


def init(*barriers: tuple[int, int]) -> str:
    """Thread 0 initialises mbarriers, (offset, count) each; then a barrier. Leaves the block `ready`."""
    text = BASE + "%first = icmp eq i32 %tid, 0\nbr i1 %first, label %init, label %inited\ninit:\n"
    for offset, count in barriers:
        text += f"%b{offset} = add i32 %smem, {offset}\n"
        text += asm("mbarrier.init.shared::cta.b64 [$0], $1;", f"i32 %b{offset}", f"i32 {count}")
    return text + asm("fence.mbarrier_init.release.cluster;") + f"br label %inited\ninited:\n{BARRIER}"


def split(warp: int, one: str, other: str) -> str:
    """The first `warp` warps run `one`, the rest `other`; both begin a block and end at `br label %done`."""
    return f"%low = icmp ult i32 %tid, {32 * warp}\nbr i1 %low, label %one, label %other\none:\n{one}other:\n{other}done:\nret void"


def pick(lane: int, body: str, name: str, after: str) -> str:
    """`body` by thread `lane` alone, then the block `after`."""
    return f"%c{name} = icmp eq i32 %tid, {lane}\nbr i1 %c{name}, label %{name}, label %{after}\n{name}:\n{body}br label %{after}\n{after}:\n"


def add(name: str, offset: int | str) -> str:
    return f"%{name} = add i32 %smem, {offset}\n"


# -- a pipeline: warp 4 loads with TMA, warps 0 to 3 multiply
A_BYTES, B_BYTES = 64 * 128, 32 * 128
STAGE = A_BYTES + B_BYTES


def _consumer(stages: int, depth: int) -> str:
    """64x32 accumulators over `%trips` stages, `depth` groups in flight; releases the stage whose group has ended."""
    n = 16
    struct, names = "{ " + ", ".join(["float"] * n) + " }", [f"%acc{i}" for i in range(n)]
    registers = ", ".join(f"${i}" for i in range(n))
    text = "br label %loop\nloop:\n%i = phi i32 [ 0, %one ], [ %i1, %released ]\n"
    text += "".join(f"{v} = phi float [ 0.0, %one ], [ %next{i}, %released ]\n" for i, v in enumerate(names))
    text += f"%more = icmp ult i32 %i, %trips\nbr i1 %more, label %body, label %end\nbody:\n%s = urem i32 %i, {stages}\n"
    text += f"%q = udiv i32 %i, {stages}\n%o = mul i32 %s, {STAGE}\n%o8 = shl i32 %s, 3\n"
    text += f"{add('sa', '%o')}{add('fb', '%o8')}%full = add i32 %fb, {stages * STAGE}\n"
    text += asm(WAIT, "i32 %full", "i32 %q") + "%sa64 = zext i32 %sa to i64\n%at = lshr i64 %sa64, 4\n"
    fields = (1 << 62) | (64 << 32) | (1 << 16)
    text += f"%da = or i64 %at, {fields}\n%db = add i64 %da, {A_BYTES >> 4}\n"
    ptx = f"{{ .reg .pred p; .reg .b64 x, y; setp.ne.b32 p, ${2 * n + 2}, 0; wgmma.fence.sync.aligned; "
    for k in range(4):
        ptx += f"add.s64 x, ${2 * n}, {2 * k}; add.s64 y, ${2 * n + 1}, {2 * k}; wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {{{registers}}}, x, y, {'p' if not k else 1}, 1, 1, 0, 0; "
    ptx += "wgmma.commit_group.sync.aligned; }"
    constraints = ",".join(["=f"] * n + [str(i) for i in range(n)] + ["l", "l", "r"])
    text += f'%d = call {struct} asm sideeffect "{ptx}", "{constraints}"({", ".join(f"float {v}" for v in names)}, i64 %da, i64 %db, i32 %i) #1\n'
    text += "".join(f"%next{i} = extractvalue {struct} %d, {i}\n" for i in range(n))
    text += asm(f"wgmma.wait_group.sync.aligned {depth};")
    text += f"%j = sub i32 %i, {depth}\n%any = icmp sge i32 %j, 0\n%lead = icmp eq i32 %tid, 0\n%rel = and i1 %any, %lead\n"
    text += f"br i1 %rel, label %release, label %released\nrelease:\n%js = urem i32 %j, {stages}\n%j8 = shl i32 %js, 3\n"
    text += f"{add('eb', '%j8')}%empty = add i32 %eb, {stages * (STAGE + 8)}\n"
    text += asm("mbarrier.arrive.shared::cta.b64 _, [$0];", "i32 %empty") + "br label %released\nreleased:\n"
    text += "%i1 = add i32 %i, 1\nbr label %loop\nend:\n"
    tied = ",".join(["=f"] * n + [str(i) for i in range(n)] + ["~{memory}"])
    text += f'%w = call {struct} asm sideeffect "wgmma.wait_group.sync.aligned 0;", "{tied}"({", ".join(f"float {v}" for v in names)}) #1\n'
    text += f"%row = mul i32 %tid, {n}\n"
    for i in range(n):
        text += f"%w{i} = extractvalue {struct} %w, {i}\n%x{i} = add i32 %row, {i}\n{pointer(f'p{i}', 'float', f'%x{i}', '%d_out')}store float %w{i}, {P1} %p{i}\n"
    return text + "br label %done\n"


def _producer(stages: int) -> str:
    text = "%tp = icmp eq i32 %tid, 128\nbr i1 %tp, label %p.entry, label %done\np.entry:\nbr label %p.loop\np.loop:\n"
    text += "%k = phi i32 [ 0, %p.entry ], [ %k1, %p.body ]\n%pm = icmp ult i32 %k, %trips\nbr i1 %pm, label %p.body, label %done\np.body:\n"
    text += f"%ks = urem i32 %k, {stages}\n%kq = udiv i32 %k, {stages}\n%par = xor i32 %kq, 1\n%k8 = shl i32 %ks, 3\n%ko = mul i32 %ks, {STAGE}\n"
    text += f"{add('pf', '%k8')}%pfull = add i32 %pf, {stages * STAGE}\n%pempty = add i32 %pfull, {8 * stages}\n"
    text += f"{add('pa', '%ko')}%pb = add i32 %pa, {A_BYTES}\n%kx = mul i32 %k, 64\n"
    text += asm(WAIT, "i32 %pempty", "i32 %par")
    text += asm("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "i32 %pfull", f"i32 {STAGE}")
    text += asm(LOAD, "i32 %pa", "ptr %a_map", "i32 %kx", "i32 0", "i32 %pfull")
    text += asm(LOAD, "i32 %pb", "ptr %b_map", "i32 %kx", "i32 0", "i32 %pfull")
    return text + "%k1 = add i32 %k, 1\nbr label %p.loop\n"


def pipeline(stages: int, depth: int) -> str:
    barriers = [(stages * STAGE + 8 * s, 1) for s in range(2 * stages)]
    body = TID + init(*barriers) + split(4, _consumer(stages, depth), _producer(stages))
    return kernel(f"{MAP} %a_map, {MAP} %b_map, {P1} %d_out, i32 %trips", body, before=SMEM)


def run_pipeline(text: str, stages: int, trips: int, seed: int | None = None, columns: int | None = None) -> float:
    """The largest error."""
    rng = np.random.default_rng(5)
    columns = columns or max(1, trips) * 64
    a, b = rng.normal(size=(64, columns)).astype(np.float16), rng.normal(size=(32, columns)).astype(np.float16)
    maps = [TensorMap(x, x.shape[::-1], (2 * columns,), (64, x.shape[0]), swizzle=128) for x in (a, b)]
    d = np.full((128, 16), 7, np.float32)
    launch(text, (1, 1, 1), 256, [*maps, d, trips], dynamic_shared=stages * (STAGE + 16), seed=seed)
    want = a[:, : 64 * trips].astype(np.float32) @ b[:, : 64 * trips].astype(np.float32).T
    return float(np.abs(wgmma_result(d) - want).max())


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("depth", [0, 1])
def test_a_pipeline_of_tma_and_wgmma(stages: int, depth: int) -> None:
    text = pipeline(stages, depth)
    for trips in range(8):
        for seed in (None, 1, 2):
            assert run_pipeline(text, stages, trips, seed) < 1e-3, (trips, seed)
    assert run_pipeline(text, stages, 3, columns=136) < 1e-3  # the last block reaches past the tensor: zeros


def test_a_pipeline_without_its_waits_is_found() -> None:
    good = pipeline(2, 1)
    full, empty = asm(WAIT, "i32 %full", "i32 %q"), asm(WAIT, "i32 %pempty", "i32 %par")
    assert full in good and empty in good
    for seed in (None, 1, 2, 3):
        with pytest.raises(EmulatorError, match="which an asynchronous copy under way may still write|nobody wrote|counts with no wait"):
            run_pipeline(good.replace(full, ""), 2, 4, seed)
        with pytest.raises(EmulatorError, match="Race|asynchronous copy under way|wgmma may still read"):
            run_pipeline(good.replace(empty, ""), 2, 4, seed)
    early = good.replace("%j = sub i32 %i, 1", "%j = add i32 %i, 0")  # releases the stage that is still read
    with pytest.raises(EmulatorError, match="Race|wgmma may still read"):
        run_pipeline(early, 2, 4)


def test_an_accumulator_is_not_to_be_used_before_the_wait() -> None:
    good = pipeline(2, 1)
    line = next(i for i in good.splitlines() if "%w = call" in i)
    with pytest.raises(EmulatorError, match=r"(?s)An accumulator is used while the wgmma.*store float %acc0"):
        run_pipeline(good.replace(line + "\n", "").replace("%w0 = extractvalue { " + ", ".join(["float"] * 16) + " } %w, 0\n", "").replace("float %w0,", "float %acc0,").replace(
            "".join([]), ""), 2, 2) if False else run_pipeline(_without_wait(good), 2, 2)


def _without_wait(text: str) -> str:
    """The pipeline with its last, tied wait left out: the stores take the accumulators as they are."""
    lines = [i for i in text.splitlines() if "%w = call" not in i and " } %w, " not in i]
    result = "\n".join(lines) + "\n"
    for i in range(16):
        result = result.replace(f"store float %w{i},", f"store float %acc{i},")
    return result


def test_a_deadlock_is_reported() -> None:
    good = pipeline(2, 0)
    release = asm("mbarrier.arrive.shared::cta.b64 _, [$0];", "i32 %empty")
    with pytest.raises(EmulatorError) as error:
        run_pipeline(good.replace(release, ""), 2, 4)
    text = str(error.value)
    assert "Deadlock: no warp can go on." in text
    empty, full = 1024 + 2 * STAGE + 16, 1024 + 2 * STAGE
    assert f"the mbarrier at {empty:#x}, parity 0: phase 0 lacks 1 of 1 arrivals and 0 bytes" in text
    assert f"warp 0, LLVM line" in text and f"the mbarrier at {full:#x}, parity 1: phase 1 lacks 1 of 1 arrivals" in text
    short = good.replace(f"i32 {STAGE}) #1", f"i32 {STAGE + 16}) #1")
    with pytest.raises(EmulatorError, match="lacks 0 of 1 arrivals and 16 bytes"):
        run_pipeline(short, 2, 4)
