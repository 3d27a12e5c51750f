"""Launches that native code decides alone are those that the long way would make."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest
from fake_driver import Array, FakeDriver, Launch, bfloat16, float16, float32, install, install_compiler

import tlxc
from tlxc import TensorDescriptor, tl, tlx
from tlxc.runtime import artifact, cuda
from tlxc.runtime.descriptor import DescriptorError

FACTOR = 2


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TLXC_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    install_compiler(monkeypatch)
    return install(monkeypatch)


def kernel(**options: Any) -> Any:
    def fn(x, y, n, s, wide: tl.divisible(tl.int64, 8) = 8, plain=3, BLOCK: tl.constexpr = 64):  # type: ignore[no-untyped-def]
        tlx.gdc_wait()
        return x + y + n * s * FACTOR

    return tlxc.kernel(do_not_specialize=["plain"], **options)(fn)


class Counted:
    """A kernel, and how many of its launches went the long way."""

    def __init__(self, made: Any) -> None:
        self.kernel, self.long = made, 0
        long_way = made._long_way

        def counting(*args: Any, **kwargs: Any) -> Any:
            self.long += 1
            return long_way(*args, **kwargs)

        made._long_way = counting

    def __call__(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> Any:
        return self.kernel[grid](*args, **kwargs)


X, Y = Array(float16, address=0x1000), Array(float32, address=0x2000)


def test_the_second_call_takes_the_short_way(fake: FakeDriver) -> None:
    launch, fake.parameters = Counted(kernel()), 6
    for n in (5, 7, -3):
        assert launch(X, Y, n, 1.5).metadata["threads"] == 128
    assert launch.long == 1
    assert [found.words for found in fake.launches] == [
        [0x1000, 0x2000, n & (1 << 64) - 1, 0x3FC00000, 8, 3] for n in (5, 7, -3)
    ]


def test_a_launcher_from_before_the_first_launch_takes_the_short_way(fake: FakeDriver) -> None:
    launch, fake.parameters = Counted(kernel()), 6
    early = launch.kernel[(1,)]
    for n in (5, 7, -3):
        early(X, Y, n, 1.5)
    assert launch.long == 1 and len(fake.launches) == 3


# What each argument may be, equal and unequal specialisations mixed.
POOLS: dict[str, list[Any]] = {
    "x": [X, Array(float16, address=0x1008), Array(bfloat16), Array(float16, device=1), None, 3],
    "y": [Y, Array(float32, address=0x7000), Array(float32, address=0x7004), Array(float32, device=1), 2.0],
    "n": [5, 7, 16, 0, 1, True, False, 2**31, -(2**31), 2**31 - 16, -(2**31) - 1, 2**63, 2**64 - 1, 1.0, None],
    "s": [1.5, 2.0, float("nan"), 1, 7, X],
    "wide": [8, 16, -8, 2**40, 0],
    "plain": [3, 1, 16, 2**31, True],
    "BLOCK": [64, 32, 1, True, 1.0, "1", (1, 2), (1.0, 2), (True, 2), 0.0, -0.0, None, tl.float16],
    "num_warps": [4, 8],
    "ctas_per_cga": [None, (1,), (2, 1, 1)],
    "launch_pdl": [False, True, 1, None],
    "stream": [None, 0, 0x99],
}


SHAPES = [(), ("BLOCK",), ("num_warps", "launch_pdl", "stream"), ("wide", "plain", "ctas_per_cga")]


def same_launch(found: Launch, wanted: Launch) -> bool:
    """Equal but for the function's handle."""
    fields = ("grid", "block", "shared", "stream", "words", "launch_pdl")
    return all(getattr(found, name) == getattr(wanted, name) for name in fields)


def outcome(fake: FakeDriver, launch: Any) -> Any:
    """What a call did: its launch and the code that it ran, or its error."""
    before = len(fake.launches)
    try:
        compiled = launch()
    except tlxc.TlxcError as error:
        return type(error), str(error)
    return fake.launches[before:], compiled and compiled.asm["cubin"]


def test_random_calls_launch_what_a_fresh_kernel_would(fake: FakeDriver) -> None:
    """A fresh kernel always goes the long way; it finds on disk what the other one compiled."""
    random_, counted, short, launched = random.Random(0), Counted(kernel()), 0, 0
    fake.parameters = 6
    for _ in range(1500):
        # Few shapes of calls, and mostly the first of a pool, so that calls of one kind come again.
        names = ["x", "y", "n", "s", *random_.choice(SHAPES)]
        call = {name: POOLS[name][0] if random_.random() < 0.9 else random_.choice(POOLS[name]) for name in names}
        fake.parameters = 6 - sum(call[name] is None or type(call[name]) is int and call[name] == 1
                                  for name in ("x", "y", "n", "s"))  # fmt: skip
        positional = random_.choice([4, 4, 2])
        args, kwargs = list(call.values())[:positional], dict(list(call.items())[positional:])
        grid = random_.choice([(1,), (2,), (2, 3), (0,), 4, lambda meta: (2,)])
        before = counted.long
        found = outcome(fake, lambda: counted(*args, grid=grid, **kwargs))  # noqa: B023
        wanted = outcome(fake, lambda: kernel()[grid](*args, **kwargs))  # noqa: B023
        if isinstance(found[0], list) and isinstance(wanted[0], list):
            assert len(found[0]) == len(wanted[0]) and all(map(same_launch, found[0], wanted[0])), (args, kwargs)
            assert found[1] == wanted[1], (args, kwargs)
            launched += bool(found[0])
        else:
            assert found == wanted, (args, kwargs)
        short += counted.long == before
    assert launched > 500 and short > 200


def test_constants_are_learned_with_their_types(fake: FakeDriver) -> None:
    launch, fake.parameters = Counted(kernel()), 6
    constants = ((1, 2), (1.0, 2), (True, 2), 0.0, -0.0, 1, True)
    codes = [launch(X, Y, 5, 1.5, BLOCK=block).asm["cubin"] for block in constants]
    assert len(set(codes)) == launch.long == 7


def test_dependent_launches(fake: FakeDriver) -> None:
    launch, fake.parameters = Counted(kernel()), 6
    for dependent in (True, False, True, False):
        launch(X, Y, 5, 1.5, launch_pdl=dependent)
    launch.kernel.prepare(X, Y, 5, 1.5, grid=1, launch_pdl=True)()
    launch(X, Y, 5, 1.5)
    assert [found.launch_pdl for found in fake.launches] == [True, False, True, False, True, False]
    assert launch.long == 3 and len(fake.loads) == 1
    with pytest.raises(tlxc.TlxcError, match="launch_pdl is 1; it may be True or False."):
        launch(X, Y, 5, 1.5, launch_pdl=1)


def test_a_dependent_launch_of_a_kernel_that_does_not_wait(fake: FakeDriver) -> None:
    @tlxc.kernel
    def fill(x):  # type: ignore[no-untyped-def]
        tl.store(x, 1.0)

    fill[(1,)](X)
    with pytest.raises(tlxc.TlxcError) as error:
        fill[(1,)](X, launch_pdl=True)
    assert str(error.value) == (
        "fill is launched with launch_pdl=True, but never calls tlx.gdc_wait(), so nothing would keep it from running "
        "beside the grid ahead of it; call tlx.gdc_wait() before memory is touched, or leave launch_pdl out."
    )
    assert len(fake.launches) == 1


def test_a_module_constant_that_changes_ends_what_was_learned(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, fake.parameters = Counted(kernel()), 6
    first = [launch(X, Y, 5, 1.5) for _ in range(2)]
    monkeypatch.setitem(globals(), "FACTOR", 3)
    second = [launch(X, Y, 5, 1.5) for _ in range(3)]
    assert launch.long == 2 and len({id(c) for c in first}) == len({id(c) for c in second}) == 1
    assert first[0] is not second[0]


def test_a_grid_that_is_no_tuple_is_made_one(fake: FakeDriver) -> None:
    launch, fake.parameters = Counted(kernel()), 6
    for grid in (2, [2], lambda meta: (meta["n"] - 3,)):
        launch(X, Y, 5, 1.5, grid=grid)
    assert [found.grid for found in fake.launches] == [(2, 1, 1)] * 3


def test_many_kinds_of_calls_do_not_pile_up(fake: FakeDriver) -> None:
    launch, fake.parameters = Counted(kernel()), 6
    for block in (*range(2, 100), *[200] * 20):
        launch(X, Y, 5, 1.5, BLOCK=block)
    assert len(launch.kernel._calls._plans) == 9
    before = launch.long
    launch(X, Y, 5, 1.5, BLOCK=200)  # what comes often is learned in the end
    assert launch.long == before


def test_descriptors_are_encoded_by_native_code(fake: FakeDriver) -> None:
    launch, fake.parameters, fake.current = Counted(kernel()), 6, 0x1000
    for address, shape in ((0x1000, [64, 64]), (0x1010, [128, 256]), (0x2000, (8, 64))):
        x = TensorDescriptor(Array(address=address), shape, [512, 1], [8, 64])
        launch(x, Y, 5, 1.5)
    assert launch.long == 1
    assert [found.words[0] for found in fake.launches] == [0x1000, 0x1010, 0x2000]
    assert [m["shape"] for m in fake.maps] == [[64, 64], [256, 128], [64, 8]]
    assert all(m["strides"] == [1024, 0] and m["box"] == [64, 8] and m["swizzle"] == 3 for m in fake.maps)
    x.padding = "nan"
    launch(x, Y, 5, 1.5)
    assert (launch.long, fake.maps[-1]["fill"]) == (2, 1)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"shape": [0, 64]}, "Dimension 0 of a TensorDescriptor has 0 elements"),
        ({"shape": [64]}, "1 dimensions, 2 strides"),
        ({"strides": [512, 2]}, "The last stride of a TensorDescriptor is 2"),
        ({"strides": [0, 1]}, "a stride of 0 elements"),
        ({"base": Array(address=0x1008)}, "is at address 0x1008"),
        ({"base": Array(device=1)}, "on different devices, `x` on cuda:1 and `y` on cuda:0"),
        ({"base": Array(device=-1)}, "CPU tensor"),
    ],
)
def test_wrong_descriptors_are_refused_after_right_ones(fake: FakeDriver, change: dict[str, Any], text: str) -> None:
    launch, fake.parameters, fake.current = kernel(), 6, 0x1000
    x = TensorDescriptor(Array(address=0x1000), [64, 64], [512, 1], [8, 64])
    for _ in range(2):
        launch[(1,)](x, Y, 5, 1.5)
    for name, value in change.items():
        setattr(x, name, value)
    with pytest.raises((DescriptorError, tlxc.TlxcError), match=text):
        launch[(1,)](x, Y, 5, 1.5)
    assert len(fake.launches) == 2


def test_rows_that_a_store_would_overrun_are_refused_by_native_code_too(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_ = artifact._compile

    def storing(*args: Any) -> Any:
        entry = compile_(*args)
        entry.metadata["params"][0]["stored"] = True
        return entry

    monkeypatch.setattr(artifact, "_compile", storing)
    launch, fake.parameters, fake.current = kernel(), 6, 0x1000
    x = TensorDescriptor(Array(address=0x1000), [64, 64], [512, 1], [8, 64])
    for _ in range(2):
        launch[(1,)](x, Y, 5, 1.5)
    x.shape = [64, 60]
    with pytest.raises(DescriptorError, match="whose rows are 120 bytes"):
        launch[(1,)](x, Y, 5, 1.5)
    assert len(fake.launches) == 2


def test_a_workspace_is_allocated_in_the_context_of_the_kernel(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Native code does not make it current, so it allocates nothing where another one is."""
    compile_ = artifact._compile

    def with_workspace(*args: Any) -> Any:
        entry = compile_(*args)
        entry.metadata["workspace"] = 256
        return entry

    monkeypatch.setattr(artifact, "_compile", with_workspace)
    launch, fake.parameters, fake.current = Counted(kernel()), 7, 0x9999
    for wanted in (1, 2):
        launch(X, Y, 5, 1.5, grid=(2,))
        assert launch.long == wanted
    launch.kernel.prepare(X, Y, 5, 1.5, grid=(2,))()
    fake.current = 0x1000
    for _ in range(2):
        launch(X, Y, 5, 1.5, grid=(2,))
    assert launch.long == 2 and len(fake.launches) == 5
    addresses = [0x701000 + 0x2000 * i for i in range(5)]
    assert [found.words[6] for found in fake.launches] == addresses
    assert fake.memory == [m for at in addresses for m in (("alloc", 512, 0), ("free", at, 0))]


def test_errors_of_the_driver_and_of_streams(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, fake.parameters = kernel(), 6
    for _ in range(2):
        launch[(1,)](X, Y, 5, 1.5)
    fake.status = 719
    with pytest.raises(cuda.LaunchError, match="Launching fn failed with CUDA_ERROR_LAUNCH_FAILED"):
        launch[(1,)](X, Y, 5, 1.5)
    fake.status = 0
    for stream in ("s", -1, True, 1.0):
        with pytest.raises(tlxc.TlxcError) as error:
            launch[(1,)](X, Y, 5, 1.5, stream=stream)
        assert str(error.value) == (
            f"stream is {stream!r}; give a raw handle as an integer, a torch.cuda.Stream or an object with "
            "__cuda_stream__."
        )


def test_python_code_that_runs_in_between_may_change_everything(fake: FakeDriver) -> None:
    """An array whose address is asked for forgets the plans, as another thread might."""

    class Spiteful(Array):
        def data_ptr(self) -> int:
            made._calls.forget()
            return super().data_ptr()

    made, fake.parameters = kernel(), 6
    for _ in range(5):
        made[(1,)](Spiteful(float16), Y, 5, 1.5)
    assert len(fake.launches) == 5


def test_exceptions_of_arrays_are_not_swallowed(fake: FakeDriver) -> None:
    class Failing(Array):
        fails = False

        def data_ptr(self) -> int:
            if self.fails:
                raise RuntimeError("no storage")
            return super().data_ptr()

    made, fake.parameters, x = kernel(), 6, Failing(float16)
    for _ in range(2):
        made[(1,)](x, Y, 5, 1.5)
    x.fails = True
    with pytest.raises(RuntimeError, match="no storage"):
        made[(1,)](x, Y, 5, 1.5)
    assert len(fake.launches) == 2


# -- prepared launches


def test_a_prepared_launch(fake: FakeDriver) -> None:
    made, fake.parameters = kernel(), 6
    launch = made.prepare(X, Y, 5, 1.5, grid=lambda meta: (meta["n"], 2), num_warps=8)
    queued = made.prepare(X, Y, 5, 1.5, grid=3, stream=0x77)
    for go in (launch, queued, launch):
        assert go() is not None
    assert [(found.grid, found.stream, found.block[0]) for found in fake.launches] == [
        ((5, 2, 1), 0, 256), ((3, 1, 1), 0x77, 128), ((5, 2, 1), 0, 256),
    ]  # fmt: skip
    assert all(found.words == [0x1000, 0x2000, 5, 0x3FC00000, 8, 3] for found in fake.launches)
    assert made.prepare(X, Y, 5, 1.5, grid=(0,))() is None and len(fake.launches) == 3


def test_a_prepared_launch_keeps_its_tensor_map(fake: FakeDriver) -> None:
    made, fake.parameters = kernel(), 6
    x = TensorDescriptor(Array(address=0x1000), [64, 64], [512, 1], [8, 64])
    launch = made.prepare(x, Y, 5, 1.5, grid=1)
    x.base = Array(address=0x9000)
    launch()
    assert fake.launches[0].words[0] == 0x1000


def test_prepare_refuses_as_a_launch_does(fake: FakeDriver) -> None:
    made = kernel()
    for args, options, text in (
        ((X, Y, 5), {}, "missing argument `s`"),
        ((Array(device=-1), Y, 5, 1.5), {}, "is a CPU tensor"),
        ((X, Y, 5, 1.5), {"grid": (-1,)}, "along x it may have 0 to"),
        ((X, Y, 5, 1.5), {"grid": 3, "ctas_per_cga": (2,)}, "must be a multiple of the 2 CTAs of a cluster"),
        ((X, Y, 5, 1.5), {"stream": "s"}, "stream is 's'"),
    ):
        with pytest.raises(tlxc.TlxcError, match=text):
            made.prepare(*args, **{"grid": 1, **options})
    made, fake.status, fake.parameters = kernel(), 719, 6
    with pytest.raises(cuda.LaunchError, match="Launching fn failed"):
        made.prepare(X, Y, 5, 1.5, grid=1)()


# -- hooks


def test_hooks_see_every_launch(fake: FakeDriver) -> None:
    seen: list[Any] = []

    @contextlib.contextmanager
    def hook(info: Any) -> Any:
        seen.append(("before", len(fake.launches), info))
        yield
        seen.append(("after", len(fake.launches)))

    made, fake.parameters = kernel(), 6
    for _ in range(2):
        made[(1,)](X, Y, 5, 1.5)
    remove, remove_other = tlxc.launch_hook(hook), tlxc.launch_hook(lambda info: seen.append(info.name))
    try:
        compiled = made[lambda meta: (meta["n"],)](X, Y, 5, 1.5, num_warps=8, stream=0x55)
        assert made[(0,)](X, Y, 5, 1.5) is None
    finally:
        remove()
        remove_other()
        remove()
    made[(1,)](X, Y, 5, 1.5)
    (_, before, info), name, after = seen
    assert (before, name, after) == (2, "fn", ("after", 3)) and len(fake.launches) == 4
    assert (info.name, info.compiled, info.grid, info.stream, info.device) == ("fn", compiled, (5, 1, 1), 0x55, 0)
    assert (info.arguments["x"], info.arguments["BLOCK"], info.arguments["num_warps"]) == (X, 64, 8)
    assert (fake.launches[2].stream, fake.launches[2].block) == (0x55, (256, 1, 1))


def test_a_hook_that_fails_launches_nothing(fake: FakeDriver) -> None:
    def hook(info: Any) -> None:
        raise ValueError("no")

    remove = tlxc.launch_hook(hook)
    try:
        with pytest.raises(ValueError, match="no"):
            kernel()[(1,)](X, Y, 5, 1.5)
    finally:
        remove()
    with pytest.raises(tlxc.TlxcError, match="A launch hook is a function of a LaunchInfo, not 5"):
        tlxc.launch_hook(5)  # type: ignore[arg-type]
    assert not fake.launches
