"""The emulator on warp-specialised code: mbarriers, TMA, wgmma in flight, named barriers, clusters."""

# ruff: noqa: E501  (lines of IR are as long as they are)

from __future__ import annotations

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
    text += (
        f"%more = icmp ult i32 %i, %trips\nbr i1 %more, label %body, label %end\nbody:\n%s = urem i32 %i, {stages}\n"
    )
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
    text += (
        f"%j = sub i32 %i, {depth}\n%any = icmp sge i32 %j, 0\n%lead = icmp eq i32 %tid, 0\n%rel = and i1 %any, %lead\n"
    )
    text += (
        f"br i1 %rel, label %release, label %released\nrelease:\n%js = urem i32 %j, {stages}\n%j8 = shl i32 %js, 3\n"
    )
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
        with pytest.raises(
            EmulatorError, match="which an asynchronous copy under way may still write|nobody wrote|counts with no wait"
        ):
            run_pipeline(good.replace(full, ""), 2, 4, seed)
        with pytest.raises(EmulatorError, match="Race|asynchronous copy under way|wgmma may still read|1 arrivals at"):
            run_pipeline(good.replace(empty, ""), 2, 4, seed)
    early = good.replace("%j = sub i32 %i, 1", "%j = add i32 %i, 0")  # releases the stage that is still read
    with pytest.raises(EmulatorError, match="Race|wgmma may still read"):
        run_pipeline(early, 2, 4)


def test_an_accumulator_is_not_to_be_used_before_the_wait() -> None:
    good = pipeline(2, 1)
    with pytest.raises(EmulatorError, match=r"(?s)An accumulator is used while the wgmma.*store float %acc0"):
        run_pipeline(_without_wait(good), 2, 2)
    assert run_pipeline(_without_wait(pipeline(2, 0)), 2, 2) < 1e-3  # nothing is under way after the loop


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
    assert "warp 0, LLVM line" in text and f"the mbarrier at {full:#x}, parity 1: phase 1 lacks 1 of 1 arrivals" in text
    short = good.replace(f"i32 {STAGE}) #1", f"i32 {STAGE + 16}) #1")
    with pytest.raises(EmulatorError, match="lacks 0 of 1 arrivals and 16 bytes"):
        run_pipeline(short, 2, 4)


# -- TMA alone: thread 0 copies, everybody waits
TILE = 16 * 64  # bytes of a box of 16 rows


def _copy_through(store: str, swizzle: int) -> str:
    """Loads a box of 16 rows at (%x, %y) of one map and stores it to the other one's."""
    body = TID + init((TILE, 1)) + f"%full = add i32 %smem, {TILE}\n"
    load = asm("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "i32 %full", f"i32 {TILE}")
    load += asm(LOAD, "i32 %smem", "ptr %from", "i32 %x", "i32 %y", "i32 %full")
    body += pick(0, load, "load", "wait") + asm(WAIT, "i32 %full", "i32 0")
    send = asm(store, "ptr %to", "i32 %x", "i32 %y", "i32 %smem") + asm("cp.async.bulk.commit_group;")
    body += pick(0, send + asm("cp.async.bulk.wait_group 0;"), "send", "sent")
    if swizzle:  # the 16-byte piece of row 5 that byte 16 of its columns went to
        body += f"%row = getelementptr i8, {P3} @smem, i32 {_swizzled(5 * 64 + 16, swizzle)}\n"
        body += f"%v = load i32, {P3} %row\nstore i32 %v, {P1} %out\n"
    return kernel(f"{MAP} %from, {MAP} %to, i32 %x, i32 %y, {P1} %out", body + "ret void", before=SMEM)


def _swizzled(offset: int, swizzle: int) -> int:
    return offset ^ ((offset >> 7 & {32: 1, 64: 3, 128: 7}[swizzle]) << 4)


STORE = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [$0, {$1, $2}], [$3];"


@pytest.mark.parametrize("swizzle", [0, 64, 128])
def test_tma_clips_what_lies_outside(swizzle: int) -> None:
    rng = np.random.default_rng(3)
    source = rng.integers(0, 1 << 30, (40, 24)).astype(np.int32)
    text, out = _copy_through(STORE, swizzle), np.zeros(1, np.int32)
    for x, y in ((0, 0), (8, 8), (16, 32), (100, 0)):
        target = np.full((40, 24), -1, np.int32)
        maps = [TensorMap(t, (20, 37), (96,), (16, 16), swizzle=swizzle) for t in (source, target)]
        launch(text, (1, 1, 1), 64, [*maps, x, y, out], dynamic_shared=TILE + 8)
        want = np.full((40, 24), -1, np.int32)
        rows, columns = slice(max(y, 0), min(y + 16, 37)), slice(max(x, 0), max(0, min(x + 16, 20)))
        want[rows, columns] = source[rows, columns]
        assert (target == want).all(), (x, y)
        if (x, y) == (0, 0) and swizzle:
            assert out[0] == source[5, 4]
    with pytest.raises(EmulatorError, match="may end beyond its tensor, not begin before"):
        launch(text, (1, 1, 1), 64, [*maps, -8, -3, out], dynamic_shared=TILE + 8)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("add", np.float32), ("add", np.int32), ("max", np.float16), ("min", np.int32), ("or", np.uint32)],
)
def test_tma_reduces(name: str, dtype: type) -> None:
    rng = np.random.default_rng(4)
    source, target = ((rng.normal(size=(16, 64 // np.dtype(dtype).itemsize)) * 100).astype(dtype) for _ in range(2))
    function = {"add": np.add, "max": np.maximum, "min": np.minimum, "or": np.bitwise_or}[name]
    want = function(target, source)
    maps = [TensorMap(t, t.shape[::-1], (64,), t.shape[::-1]) for t in (source, target)]
    reduce = STORE.replace("cp.async", "cp.reduce.async").replace("shared::cta.", f"shared::cta.{name}.")
    launch(_copy_through(reduce, 0), (1, 1, 1), 64, [*maps, 0, 0, np.zeros(1, np.int32)], dynamic_shared=TILE + 8)
    assert (target == want).all()


def test_tma_checks_its_source_and_its_end() -> None:
    source, target = np.zeros((16, 16), np.int32), np.zeros((16, 16), np.int32)
    maps = [TensorMap(t, (16, 16), (64,), (16, 16)) for t in (source, target)]
    good, rest = _copy_through(STORE, 0), [0, 0, np.zeros(1, np.int32)]
    wait, commit = asm("cp.async.bulk.wait_group 0;"), asm("cp.async.bulk.commit_group;")
    fill = f"store i32 1, {P3} @smem\n"
    cases = {
        good.replace(wait, ""): "ends while a bulk copy still reads",
        good.replace(commit, commit + fill): "which a bulk copy may still read",
        good.replace(commit, fill).replace(wait, ""): "which a bulk copy may still read",
        good.replace("send:\n", f"send:\n{fill}"): "no fence.proxy.async stands between",
        good.replace(asm(WAIT, "i32 %full", "i32 0"), ""): "asynchronous copy under way may still write",
        good.replace(" = add i32 %smem, 1024\n%cload", " = add i32 %smem, 1032\n%cload"): "where none is initialised",
        good.replace(
            "\nwait:\n", f"\nwait:\n%m = getelementptr i8, {P3} @smem, i32 {TILE}\nstore i8 0, {P3} %m\n"
        ): "part of an mbarrier",
    }
    for text, message in cases.items():
        assert text != good
        with pytest.raises(EmulatorError, match=message):
            launch(text, (1, 1, 1), 64, [*maps, *rest], dynamic_shared=TILE + 16)
    read = good.replace(wait, asm("cp.async.bulk.wait_group.read 0;") + fill)
    launch(read, (1, 1, 1), 64, [*maps, *rest], dynamic_shared=TILE + 16)


def test_tensor_maps_are_validated() -> None:
    array = np.zeros((32, 64), np.float16)
    bad = {
        "a multiple of 16 is needed": {"box": (4, 8)},
        "exceed the swizzle": {"swizzle": 64, "box": (64, 8)},
        "strides are multiples of 16": {"strides_bytes": (72,)},
        "1 to 256 per dimension": {"box": (64, 257)},
        "element strides other than 1": {"elem_strides": (1, 2)},
        "reaches byte": {"shape": (64, 33)},
        "differ in rank": {"box": (64,)},
    }
    for message, change in bad.items():
        given = {"array": array, "shape": (64, 32), "strides_bytes": (128,), "box": (64, 8), **change}
        with pytest.raises(EmulatorError, match=message):
            TensorMap(**given)


# -- named barriers between tasks
def test_named_barriers_hand_over_between_tasks() -> None:
    """Warps 0 and 1 write for warps 2 and 3, who only wait; then the other way round, with other numbers."""
    where = pointer("s", "i32", "%tid", "@smem", P3)
    body = (
        TID
        + where
        + "%far = xor i32 %tid, 64\n"
        + pointer("r", "i32", "%far", "@smem", P3)
        + pointer("o", "i32", "%tid", "%out")
    )
    arrive = "call void @llvm.nvvm.barrier.cta.arrive.aligned.count(i32 {0}, i32 128) #1\n"
    one = (
        f"store i32 %tid, {P3} %s\n{arrive.format(1)}"
        + asm("bar.sync 2, 128;")
        + f"%v = load i32, {P3} %r\nstore i32 %v, {P1} %o\nbr label %done\n"
    )
    other = (
        asm("bar.sync 1, 128;")
        + f"%w = load i32, {P3} %r\nstore i32 %w, {P1} %o\nstore i32 %tid, {P3} %s\n"
        + asm("bar.arrive 2, 128;")
        + "br label %done\n"
    )
    before = SMEM + "declare void @llvm.nvvm.barrier.cta.arrive.aligned.count(i32, i32)\n"
    text = kernel(f"{P1} %out", body + split(2, one, other), before=before)
    for seed in (None, 1, 2, 3):
        out = np.zeros(128, np.uint32)
        launch(text, (1, 1, 1), 128, [out], dynamic_shared=512, seed=seed)
        assert (out == np.arange(128) ^ 64).all()
        with pytest.raises(EmulatorError, match="Race|nobody wrote"):
            launch(text.replace(asm("bar.sync 1, 128;"), ""), (1, 1, 1), 128, [out], dynamic_shared=512, seed=seed)
    with pytest.raises(EmulatorError, match="barrier 2 for 128 threads, of which 64 have not arrived"):
        launch(text.replace(asm("bar.arrive 2, 128;"), ""), (1, 1, 1), 128, [out], dynamic_shared=512)
    with pytest.raises(EmulatorError, match=r"used for \d+ threads and for \d+ at the same"):
        launch(
            text.replace(asm("bar.arrive 2, 128;"), asm("bar.arrive 2, 96;")), (1, 1, 1), 128, [out], dynamic_shared=512
        )


def test_one_instruction_may_name_several_barriers() -> None:
    """Pairs of warps meet at barriers of their own; half of a barrier's warps are missing in the bad one."""
    body = TID + "%pair = lshr i32 %tid, 6\n%id = add i32 %pair, 1\n" + pointer("s", "i32", "%tid", "@smem", P3)
    body += (
        "%near = xor i32 %tid, 32\n" + pointer("r", "i32", "%near", "@smem", P3) + pointer("o", "i32", "%tid", "%out")
    )
    body += f"store i32 %tid, {P3} %s\n" + asm("bar.sync $0, 64;", "i32 %id")
    text = kernel(f"{P1} %out", body + f"%v = load i32, {P3} %r\nstore i32 %v, {P1} %o\nret void", before=SMEM)
    for seed in (None, 1, 2):
        out = np.zeros(128, np.uint32)
        launch(text, (1, 1, 1), 128, [out], dynamic_shared=512, seed=seed)
        assert (out == np.arange(128) ^ 32).all()
        with pytest.raises(EmulatorError, match="Race|nobody wrote"):
            launch(
                text.replace("xor i32 %tid, 32", "xor i32 %tid, 64"),
                (1, 1, 1),
                128,
                [out],
                dynamic_shared=512,
                seed=seed,
            )


def test_warps_may_take_different_ways() -> None:
    """Each warp goes round its own number of times, then all meet; warp 3 spins until warp 0 has written global memory."""
    body = (
        TID
        + "%w = lshr i32 %tid, 5\n%n = mul i32 %w, 70\nbr label %loop\nloop:\n%i = phi i32 [ 0, %entry ], [ %i1, %next ]\n"
    )
    body += "%m = icmp ult i32 %i, %n\nbr i1 %m, label %next, label %out\nnext:\n%i1 = add i32 %i, 1\nbr label %loop\nout:\n"
    body += f"%three = icmp eq i32 %w, 3\nbr i1 %three, label %spin, label %flag\nspin:\n%f = load volatile i32, {P1} %flags\n"
    body += "%z = icmp eq i32 %f, 0\nbr i1 %z, label %spin, label %meet\nflag:\n%lead = icmp eq i32 %tid, 0\n"
    body += f"br i1 %lead, label %set, label %meet\nset:\nstore i32 1, {P1} %flags\nbr label %meet\nmeet:\n{BARRIER}ret void"
    for seed in (None, 1):
        flags = np.zeros(1, np.uint32)
        launch(kernel(f"{P1} %flags", body), (1, 1, 1), 128, [flags], seed=seed)
        assert flags[0] == 1


# -- clusters
CLUSTER = asm("barrier.cluster.arrive.aligned;\\0Abarrier.cluster.wait.aligned;")
RANK = "%rank = call i32 @llvm.nvvm.read.ptx.sreg.cluster.ctarank()\n%peer = xor i32 %rank, 1\n"
SREGS = "".join(
    f"declare i32 @llvm.nvvm.read.ptx.sreg.{n}()\n" for n in ("cluster.ctarank", "cluster.nctarank", "clusterid.x")
)
CLUSTER_BEFORE = SMEM + SREGS
REMOTE_ARRIVE = (
    "{\\0A.reg .b32 r;\\0Amapa.shared::cluster.u32 r, $0, $1;\\0Ambarrier.arrive.shared::cluster.b64 _, [r];\\0A}"
)


def run_pair(text: str, args: list[object], shared: int, seed: int | None = None) -> None:
    launch(text, (4, 1, 1), 64, args, dynamic_shared=shared, cluster=(2, 1, 1), seed=seed)


def _remote_store(arrive: str, wait: str) -> str:
    """Each thread writes into the peer's memory, thread by thread tells its mbarrier, and reads what it was sent."""
    body = (
        TID
        + RANK
        + init((512, 64))
        + CLUSTER
        + "%full = add i32 %smem, 512\n%o = shl i32 %tid, 2\n%mine = add i32 %smem, %o\n"
    )
    body += "%id = call i32 @llvm.nvvm.read.ptx.sreg.clusterid.x()\n%hi = mul i32 %rank, 1000\n%v0 = add i32 %tid, %hi\n%id4 = mul i32 %id, 10000\n%v = add i32 %v0, %id4\n"
    body += asm(
        "{\\0A.reg .b32 r;\\0Amapa.shared::cluster.u32 r, $0, $1;\\0Ast.shared::cluster.b32 [r], $2;\\0A}",
        "i32 %mine",
        "i32 %peer",
        "i32 %v",
    )
    body += arrive + wait + pointer("s", "i32", "%tid", "@smem", P3) + f"%x = load i32, {P3} %s\n"
    body += "%cta = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n%c64 = shl i32 %cta, 6\n%at = add i32 %c64, %tid\n"
    return body + pointer("g", "i32", "%at", "%out") + f"store i32 %x, {P1} %g\n{CLUSTER}ret void"


def test_remote_stores_and_arrivals() -> None:
    arrive, wait = asm(REMOTE_ARRIVE, "i32 %full", "i32 %peer"), asm(WAIT, "i32 %full", "i32 0")
    text = kernel(f"{P1} %out", _remote_store(arrive, wait), before=CLUSTER_BEFORE)
    tid, cta = np.arange(64), np.arange(4)[:, None]
    for seed in (None, 1, 2, 3):
        out = np.zeros((4, 64), np.uint32)
        run_pair(text, [out], 520, seed)
        assert (out == tid + 1000 * (1 - cta % 2) + 10000 * (cta // 2)).all()
        for bad in (
            text.replace(wait, ""),
            text.replace("arrive.shared::cluster.b64", "arrive.relaxed.cluster.shared::cluster.b64"),
        ):
            with pytest.raises(EmulatorError, match="Race|nobody wrote"):
                run_pair(bad, [out], 520, seed)
    with pytest.raises(
        EmulatorError, match="after that CTA has ended|Race on the mbarrier|nobody wrote|none is initialised|no barrier"
    ):
        run_pair(text.replace(CLUSTER, ""), [out], 520)
    with pytest.raises(EmulatorError, match="does not divide into clusters"):
        launch(text, (3, 1, 1), 64, [out], cluster=(2, 1, 1))


def test_the_fence_of_initialised_mbarriers() -> None:
    """A relaxed arrival at the cluster's barrier passes on initialised mbarriers after their fence, and nothing else."""
    text = kernel(
        f"{P1} %out", _remote_store(asm(REMOTE_ARRIVE, "i32 %full", "i32 %peer"), asm(WAIT, "i32 %full", "i32 0")),
        before=CLUSTER_BEFORE,
    )  # fmt: skip
    relaxed = text.replace(CLUSTER, CLUSTER.replace("cluster.arrive.", "cluster.arrive.relaxed."), 1)
    out = np.zeros((4, 64), np.uint32)
    run_pair(relaxed, [out], 520)
    assert (out[0] == np.arange(64) + 1000).all()
    with pytest.raises(EmulatorError, match="Race on the mbarrier"):
        run_pair(relaxed.replace(asm("fence.mbarrier_init.release.cluster;"), ""), [out], 520)


def test_asynchronous_remote_stores_and_copies() -> None:
    """st.async of one word per thread, and a bulk copy of the CTA's own memory into the peer's."""
    text = (
        TID
        + RANK
        + init((1024, 1))
        + CLUSTER
        + "%full = add i32 %smem, 1024\n%o = shl i32 %tid, 2\n%mine = add i32 %smem, %o\n"
    )
    text += "%v = add i32 %rank, %tid\n" + pointer("own", "i32", "%tid", "@smem", P3)
    text += pick(
        0, asm("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "i32 %full", "i32 512"), "expect", "go"
    )
    text += asm("{\\0A.reg .b32 r, m;\\0Amapa.shared::cluster.u32 r, $0, $2;\\0Amapa.shared::cluster.u32 m, $1, $2;\\0A"
                "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [r], $3, [m];\\0A}", "i32 %mine", "i32 %full", "i32 %peer", "i32 %v")  # fmt: skip
    fill = (
        f"%t9 = mul i32 %v, 9\n%far = getelementptr i8, {P3} %own, i32 512\nstore i32 %t9, {P3} %far\n{FENCE}{BARRIER}"
    )
    copy = asm("{\\0A.reg .b32 r, m, s;\\0Aadd.u32 s, $0, 512;\\0Aadd.u32 r, $0, 256;\\0Amapa.shared::cluster.u32 r, r, $2;\\0Amapa.shared::cluster.u32 m, $1, $2;\\0A"
               "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [r], [s], 256, [m];\\0A}", "i32 %smem", "i32 %full", "i32 %peer")  # fmt: skip
    text += fill + pick(0, copy, "copy", "copied") + asm(WAIT, "i32 %full", "i32 0")
    text += f"%near = getelementptr i8, {P3} %own, i32 256\n%a = load i32, {P3} %own\n%b = load i32, {P3} %near\n%sum = add i32 %a, %b\n"
    text += "%cta = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n%c64 = shl i32 %cta, 6\n%at = add i32 %c64, %tid\n"
    text += pointer("g", "i32", "%at", "%out") + f"store i32 %sum, {P1} %g\n{CLUSTER}ret void"
    module = kernel(f"{P1} %out", text, before=CLUSTER_BEFORE)
    for seed in (None, 1, 2):
        out = np.zeros((4, 64), np.uint32)
        run_pair(module, [out], 1032, seed)
        assert (out == 10 * (np.arange(64) + 1 - np.arange(4)[:, None] % 2)).all()
    with pytest.raises(EmulatorError, match="no fence.proxy.async stands between"):
        run_pair(module.replace(FENCE, ""), [out], 1032)
    with pytest.raises(EmulatorError, match="may still write|nobody wrote"):
        run_pair(module.replace(asm(WAIT, "i32 %full", "i32 0"), ""), [out], 1032)


def test_multicast_writes_to_every_cta_of_the_mask() -> None:
    """Each CTA loads half of a 32-row tile into both; each expects the whole."""
    body = TID + RANK + init((2 * TILE, 1)) + CLUSTER + f"%full = add i32 %smem, {2 * TILE}\n%y = mul i32 %rank, 16\n"
    body += f"%half = mul i32 %rank, {TILE}\n%to = add i32 %smem, %half\n"
    load = asm("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "i32 %full", f"i32 {2 * TILE}")
    multicast = LOAD.replace("bytes [", "bytes.multicast::cluster [").replace("[$4]", "[$4], $5")
    load += asm(multicast, "i32 %to", "ptr %from", "i32 0", "i32 %y", "i32 %full", "i16 3")
    body += pick(0, load, "load", "wait") + asm(WAIT, "i32 %full", "i32 0")
    body += "%cta = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n%c = mul i32 %cta, 512\n%at = add i32 %c, %tid\n"
    for row in range(8):
        body += f"%i{row} = add i32 %tid, {64 * row}\n{pointer(f's{row}', 'i32', f'%i{row}', '@smem', P3)}%v{row} = load i32, {P3} %s{row}\n"
        body += f"%o{row} = add i32 %at, {64 * row}\n{pointer(f'g{row}', 'i32', f'%o{row}', '%out')}store i32 %v{row}, {P1} %g{row}\n"
    module = kernel(f"{MAP} %from, {P1} %out", body + CLUSTER + "ret void", before=CLUSTER_BEFORE)
    source = np.arange(512, dtype=np.int32).reshape(32, 16)
    for seed in (None, 1, 2):
        out = np.zeros((4, 512), np.int32)
        run_pair(module, [TensorMap(source, (16, 32), (64,), (16, 16)), out], 2 * TILE + 8, seed)
        assert (out == source.reshape(-1)).all()
    lonely = module.replace(f"i32 {2 * TILE}) #1", f"i32 {TILE}) #1")  # each waits for the bytes of one of the two
    with pytest.raises(EmulatorError, match="may still write|nobody wrote|under way|pending bytes|Deadlock"):
        run_pair(lonely, [TensorMap(source, (16, 32), (64,), (16, 16)), out], 2 * TILE + 8)
    with pytest.raises(EmulatorError, match="multicast mask is 0x7 in a cluster of 2"):
        run_pair(module.replace("i16 3)", "i16 7)"), [TensorMap(source, (16, 32), (64,), (16, 16)), out], 2 * TILE + 8)


# -- the intrinsics' spellings
def test_intrinsics_of_barriers_and_copies() -> None:
    calls = {
        "void @llvm.nvvm.mbarrier.init.shared": f"{P3}, i32",
        "i64 @llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta": f"{P3}, i32",
        "i64 @llvm.nvvm.mbarrier.arrive.scope.cta.space.cta": f"{P3}, i32",
        "i1 @llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta": f"{P3}, i32",
        "i1 @llvm.nvvm.mbarrier.test.wait.parity.scope.cta.space.cta": f"{P3}, i32",
        "ptr addrspace(7) @llvm.nvvm.mapa.shared.cluster": f"{P3}, i32",
        "void @llvm.nvvm.mbarrier.arrive.scope.cluster.space.cluster": "ptr addrspace(7), i32",
        "void @llvm.nvvm.cp.async.bulk.tensor.g2s.tile.2d": f"ptr addrspace(7), {P3}, ptr, i32, i32, i16, i64, i1, i1, i32",
        "void @llvm.nvvm.cp.async.bulk.tensor.s2g.tile.2d": f"{P3}, ptr, i32, i32, i64, i1",
        "void @llvm.nvvm.cp.async.bulk.commit.group": "",
        "void @llvm.nvvm.cp.async.bulk.wait.group": "i32",
        "void @llvm.nvvm.cp.async.bulk.global.to.shared.cta": f"{P3}, {P3}, {P1}, i32, i64, i1",
        "void @llvm.nvvm.cp.async.bulk.shared.cta.to.global": f"{P1}, {P3}, i32, i64, i1",
        "void @llvm.nvvm.barrier.cluster.arrive.aligned": "",
        "void @llvm.nvvm.barrier.cluster.wait.aligned": "",
        "void @llvm.nvvm.setmaxnreg.dec.sync.aligned.u32": "i32 immarg",
        "void @llvm.nvvm.fence.mbarrier_init.release.cluster": "",
        "void @llvm.nvvm.prefetch.tensormap.p0": "ptr",
        "void @llvm.nvvm.griddepcontrol.wait": "",
        "{ i32, i1 } @llvm.nvvm.elect.sync": "i32",
    }
    declares = "".join(f"declare {name}({types})\n" for name, types in calls.items())
    sites = {name.split("llvm.nvvm.")[1]: f"call {name}" for name in calls}
    full, other = (
        f"%{n} = getelementptr i8, {P3} @smem, i32 {o}\n" for n, o in (("full", 2 * TILE), ("other", 2 * TILE + 8))
    )

    def call(name: str, *args: str) -> str:
        return f"{sites[name]}({', '.join(args)}) #1\n"

    def wait(name: str, barrier: str, kind: str = "try") -> str:
        test = call(f"mbarrier.{kind}.wait.parity.scope.cta.space.cta", f"{P3} %{barrier}", "i32 0")
        return f"br label %{name}\n{name}:\n%r{name} = {test}br i1 %r{name}, label %{name}.done, label %{name}\n{name}.done:\n"

    body = (
        TID
        + full
        + other
        + f"%second = getelementptr i8, {P3} @smem, i32 {TILE}\n%w = lshr i32 %tid, 5\n%z = icmp eq i32 %w, 0\n"
    )
    body += (
        "%e = "
        + call("elect.sync", "i32 -1")
        + "%one = extractvalue { i32, i1 } %e, 1\n%lead = and i1 %z, %one\nbr i1 %lead, label %init, label %inited\ninit:\n"
    )
    body += call("mbarrier.init.shared", f"{P3} %full", "i32 1") + call("mbarrier.init.shared", f"{P3} %other", "i32 3")
    body += (
        call("prefetch.tensormap.p0", "ptr %from")
        + call("fence.mbarrier_init.release.cluster")
        + "br label %inited\ninited:\n"
    )
    body += call("griddepcontrol.wait") + call("setmaxnreg.dec.sync.aligned.u32", "i32 40")
    body += (
        call("barrier.cluster.arrive.aligned")
        + call("barrier.cluster.wait.aligned")
        + "br i1 %lead, label %load, label %loaded\nload:\n"
    )
    body += "%t = " + call("mbarrier.arrive.expect.tx.scope.cta.space.cta", f"{P3} %full", f"i32 {2 * TILE}")
    body += f"%dst = addrspacecast {P3} @smem to ptr addrspace(7)\n"
    body += call(
        "cp.async.bulk.tensor.g2s.tile.2d",
        "ptr addrspace(7) %dst",
        f"{P3} %full",
        "ptr %from",
        "i32 0",
        "i32 0",
        "i16 0",
        "i64 0",
        "i1 false",
        "i1 false",
        "i32 0",
    )
    body += call(
        "cp.async.bulk.global.to.shared.cta",
        f"{P3} %second",
        f"{P3} %full",
        f"{P1} %in",
        f"i32 {TILE}",
        "i64 0",
        "i1 false",
    )
    body += "%t2 = " + call("mbarrier.arrive.scope.cta.space.cta", f"{P3} %other", "i32 2")
    body += (
        "%peer = "
        + call("mapa.shared.cluster", f"{P3} %other", "i32 0")
        + call("mbarrier.arrive.scope.cluster.space.cluster", "ptr addrspace(7) %peer", "i32 1")
    )
    body += (
        "br label %loaded\nloaded:\n"
        + wait("wa", "full")
        + wait("wb", "other", "test")
        + "br i1 %lead, label %store, label %end\nstore:\n"
    )
    body += call("cp.async.bulk.tensor.s2g.tile.2d", f"{P3} @smem", "ptr %to", "i32 0", "i32 0", "i64 0", "i1 false")
    body += call(
        "cp.async.bulk.shared.cta.to.global", f"{P1} %out", f"{P3} %second", f"i32 {TILE}", "i64 0", "i1 false"
    )
    body += (
        call("cp.async.bulk.commit.group") + call("cp.async.bulk.wait.group", "i32 0") + "br label %end\nend:\nret void"
    )
    text = kernel(f"{MAP} %from, {MAP} %to, {P1} %in, {P1} %out", body, before=SMEM + declares)
    source, data = np.arange(256, dtype=np.int32).reshape(16, 16), np.arange(256, dtype=np.int32) * 3
    target, out = np.zeros_like(source), np.zeros_like(data)
    maps = [TensorMap(t, (16, 16), (64,), (16, 16)) for t in (source, target)]
    launch(text, (1, 1, 1), 64, [*maps, data, out], dynamic_shared=2 * TILE + 16)
    assert (target == source).all() and (out == data).all()
    never = text.replace("%other, i32 2)", "%other, i32 1)")
    with pytest.raises(EmulatorError, match="mbarrier.test_wait has failed"):
        launch(never, (1, 1, 1), 64, [*maps, data, out], dynamic_shared=2 * TILE + 16)
    declared = text.replace('"nvvm.maxntid"="128"', '"nvvm.maxntid"="128" "nvvm.cluster_dim"="2,1,1"')
    with pytest.raises(EmulatorError, match="does not divide into clusters"):
        launch(declared, (1, 1, 1), 64, [*maps, data, out])
    with pytest.raises(EmulatorError, match=r"gives clusters of \(4, 1, 1\) CTAs, the kernel declares \(2, 1, 1\)"):
        launch(declared, (4, 1, 1), 64, [*maps, data, out], cluster=(4, 1, 1))
