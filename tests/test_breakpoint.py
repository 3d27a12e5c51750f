"""`breakpoint()` in kernels: what the simulator shows, its prompt, and that compiled code does not know it."""

from __future__ import annotations

import inspect
import io
from typing import Any

import numpy as np
import pytest

import tlxc
from tlxc import tl, tlx
from tlxc.compiler import compile_kernel
from tlxc.errors import CompileError
from tlxc.ir.core import Op, Value
from tlxc.ir.table import VerifyError, check_row
from tlxc.ir.types import Barrier, Scalar, int32
from tlxc.targets import get_target

Array = np.ndarray[Any, Any]


@tlxc.kernel(do_not_specialize=("steps",))
def ring(x, out, steps, STAGES: tl.constexpr = 2, AT: tl.constexpr = 2):
    buf = tlx.local_alloc((64,), tl.float32, STAGES)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES)
    at = tl.arange(0, 64)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(empty[stage], phase ^ 1)  # producer
                tlx.barrier_expect_bytes(full[stage], 256)
                tlx.async_descriptor_load(x, buf[stage], [i * 64], full[stage])  # copy
        with tlx.async_task(num_warps=4):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(full[stage], phase)
                tile = tlx.local_load(buf[stage])
                unused = tile * 2
                both = (unused, i)  # noqa: F841
                if i == AT:
                    breakpoint()  # here
                tl.store(out + i * 64 + at, tile)
                tlx.barrier_arrive(empty[stage])


def line(kernel: Any, mark: str) -> int:
    lines, first = inspect.getsourcelines(kernel.fn)
    (found,) = [first + i for i, text in enumerate(lines) if text.rstrip().endswith(f"# {mark}")]
    return found


def run(**options: Any) -> None:
    x, out = np.arange(384, dtype=np.float32), np.zeros(384, np.float32)
    with tlxc.simulate(schedule="round-robin") as sim:
        ring[1](tlxc.TensorDescriptor.from_tensor(x, [64]), out, 6, **options)
    assert not sim.reports
    np.testing.assert_array_equal(out, x)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *lines: str, **options: Any) -> str:
    """What is printed when these lines are typed."""
    monkeypatch.setattr("sys.stdin", Terminal("\n".join(lines) + "\n"))
    run(**options)
    return capsys.readouterr().out


def test_without_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything is printed, and the kernel goes on."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    run()
    shown = capsys.readouterr().out
    assert shown.startswith(f"breakpoint in task 1, line {line(ring, 'here')}\n  {__file__}:{line(ring, 'here')}:")
    tile = "float32 [64] [128., 129., 130., ..., 189., 190., 191.]"
    doubled = "float32 [64] [256., 258., 260., ..., 378., 380., 382.]"
    for wanted in (
        "STAGES = 2", "steps = 6", "i = 2", "stage = 0", "phase = 1", f"tile = {tile}", f"unused = {doubled}",
        f"both = ({doubled}, 2)", "at = int32 [64] [ 0, 1, 2, ..., 61, 62, 63]", "task 1: here",
        "full[0]: phase 2 open; 1 of 1 arrivals and 0 bytes pending",
    ):  # fmt: skip
        assert f"  {wanted}\n" in shown, shown
    assert "  buf = float32 [2, 64] [[128., 129., 130., ..., 189., 190., 191.], [" in shown


def test_who_waits_where(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One stage: the producer waits until the tile that is looked at is released."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    run(STAGES=1, AT=0)
    shown = capsys.readouterr().out
    waits = f"  default task: barrier_wait at line {line(ring, 'producer')} of empty[0] wants phase 0; completed -1; "
    assert waits + "1 of 1 arrivals and 0 bytes pending; arrived: nobody; owing: barrier_arrive at line" in shown, shown
    assert "  empty[0]: phase 0 open; 1 of 1 arrivals and 0 bytes pending; waited for by default task\n" in shown


def test_prompt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown = typed(
        monkeypatch, capsys, "tile.sum() / 64", "both[1]", "buf[stage, :3]", "full[0].phase", "mean = tile.mean()",
        "p mean", "", "nothing", "1 +", "where", "variables", "tasks", "barriers", "help", "continue",
    )  # fmt: skip
    first, *answers = shown.split("(tlxc) ")
    assert f"breakpoint in task 1, line {line(ring, 'here')}" in first
    for answer, wanted in zip(
        answers,
        ("159.5", "2", "array([128., 129., 130.], dtype=float32)", "2", "", "159.5", "", "NameError: name 'nothing'"),
    ):
        assert wanted in answer, shown
    assert "SyntaxError" in answers[8]
    assert answers[9].startswith("breakpoint in task 1") and "  steps = 6\n" in answers[10]
    assert "  task 1: here\n" in answers[11] and "  empty[0]: phase" in answers[12]
    assert all(name in answers[13] for name in ("barriers", "continue", "off", "quit", "tasks", "variables", "where"))


@tlxc.kernel
def each(out):
    first = tl.program_id(0)
    breakpoint()
    tl.store(out + first, 1.0)


@pytest.mark.parametrize(("command", "stops"), [("continue", 3), ("off", 1)])
def test_going_on(
    command: str, stops: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(f"{command}\n" * 3))
    out = np.zeros(3, np.float32)
    with tlxc.simulate():
        each[3](out)
    assert out.all() and capsys.readouterr().out.count("breakpoint in main of CTA") == stops


@pytest.mark.parametrize("text", ["quit\n", ""])
def test_quit(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(text))
    with tlxc.simulate(), pytest.raises(KeyboardInterrupt):
        each[1](np.zeros(1, np.float32))


def test_turned_off(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    run()
    assert capsys.readouterr().out == ""


@tlxc.kernel
def product(a, b, out, STOP: tl.constexpr):
    x = tlx.local_alloc((64, 64), tl.float16, 1)
    y = tlx.local_alloc((64, 64), tl.float16, 1)
    bar = tlx.alloc_barriers(1)
    tlx.barrier_expect_bytes(bar[0], 2 * 64 * 64 * 2)
    tlx.async_descriptor_load(a, x[0], [0, 0], bar[0])
    tlx.async_descriptor_load(b, y[0], [0, 0], bar[0])
    tlx.barrier_wait(bar[0], 0)
    acc = tlx.async_dot(x[0], y[0])  # dot
    if STOP:
        breakpoint()
    acc = tlx.async_dot_wait(0, acc)
    if STOP:
        breakpoint()
    tlx.local_store(x[0], acc.to(tl.float16))
    tlx.async_descriptor_store(out, x[0], [0, 0])
    tlx.async_descriptor_store_wait(0)


def test_a_product_under_way(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is no use of the accumulator, which the wait must see first."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    a, b, out = (np.ones((64, 64), np.float16) for _ in range(3))
    blocks = [tlxc.TensorDescriptor.from_tensor(x, [64, 64]) for x in (a, b, out)]
    with tlxc.simulate() as sim:
        product[1](*blocks, True)
    assert not sim.reports and (out == 64).all()
    first, second = capsys.readouterr().out.split("breakpoint in main")[1:]
    assert f"  acc = the result of async_dot at line {line(product, 'dot')}, which is under way\n" in first
    assert "  acc = float32 [64, 64] [[64., 64., 64., ..., 64., 64., 64.]," in second


@tlxc.kernel
def compiled(x: tl.ptr(tl.float32, align=16), y: tl.ptr(tl.float32, align=16), STOP: tl.constexpr):
    at = tl.arange(0, 256)
    tile = tl.load(x + at)
    unused = tile * 3 + at.to(tl.float32)  # noqa: F841
    if STOP:
        breakpoint()
    tl.store(y + at, tile + 1)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_compiled_code_does_not_know_it(target: str) -> None:
    texts = []
    for stop in (False, True):
        made = compile_kernel(compiled.__tlxc_source__, compiled.signature(STOP=stop), get_target(target))
        texts.append(made.asm["llvm"])
    assert texts[0] == texts[1]


@tlxc.kernel
def outer_tiles(x, out):
    at = tl.arange(0, 64)
    loaded = tl.load(x + at)
    tl.store(out + at, loaded)
    breakpoint()
    buf = tlx.local_alloc((64,), tl.float32, 1)
    bar = tlx.alloc_barriers(1)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            breakpoint()
            tlx.local_store(buf[0], tl.load(x + at))
            tlx.barrier_arrive(bar[0])
        with tlx.async_task(num_warps=4):
            tlx.barrier_wait(bar[0], 0)
            breakpoint()
            tl.store(out + at, tlx.local_load(buf[0]))


def test_tiles_from_outside_of_a_task(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A task holds those that it computes again, not one that was loaded."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    with tlxc.simulate():
        outer_tiles[1](x, out)
    shown = capsys.readouterr().out.split("breakpoint in ")[1:]
    assert [text.partition(",")[0] for text in shown] == ["default task", "default task", "task 1"]
    assert all("  at = int32" in text for text in shown)
    assert ["  loaded = " in text for text in shown] == [True, False, False]


@tlxc.kernel
def with_arguments(out):
    breakpoint(out)


def test_arguments() -> None:
    with tlxc.simulate(), pytest.raises(CompileError) as caught:
        with_arguments[1](np.zeros(1, np.float32))
    assert ": error: breakpoint() takes no arguments in a kernel\n" in str(caught.value)
    assert "  found: `breakpoint(out)`\n" in str(caught.value)
    assert "  fix: write breakpoint(): its prompt knows every variable that has a value there" in str(caught.value)


@pytest.mark.parametrize(
    ("operands", "attrs", "message"),
    [
        ([Value(Scalar(int32))], {"names": (), "constants": ()}, "breakpoint: one name for each operand"),
        (
            [Value(Barrier(2))],
            {"names": ("b",), "constants": ()},
            "breakpoint: b is a scalar or a tile, found barrier<2>",
        ),
        ([], {"names": (), "constants": ("n",)}, "breakpoint: `constants` are pairs of a name and a value"),
        ([], {"names": ()}, "breakpoint: attribute constants is missing"),
    ],
)
def test_verifier(operands: list[Value], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(VerifyError) as caught:
        check_row(Op("breakpoint", operands, (), attrs))
    assert str(caught.value) == message
