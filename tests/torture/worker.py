"""One process of the torture test: threads that launch the same kernels, capture, fork, and compare every result.

worker.py table            prints the code of every specialisation, as the stand-in driver wants to know it
worker.py run SECONDS THREADS SEED RESULT [zygote] [full-disk]

Exit status 0 where everything was right; RESULT is then JSON with counts.  What went wrong is told on stderr.
"""

from __future__ import annotations

import collections
import errno
import faulthandler
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tlxc
from tlxc import tl
from tlxc.runtime import cuda, forks
from tlxc.runtime.kernel import CaptureError

LENGTH, BLOCK = 1024, 256
FACTORS, WARPS = (0, 1, 2, 3), (1, 4)
GRACE_S = 90  # a slow machine gets so much longer before this counts as a hang


def fresh() -> Any:
    """The kernel as a new process has it: compiled or read from the cache at its first launch."""

    def combine(x, out, n, s, FACTOR: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < n
        tl.store(out + at, tl.load(x + at, mask=inside) * FACTOR + s, mask=inside)

    return tlxc.kernel(combine)


def print_table() -> None:
    kernel = fresh()
    for factor, warps, n in itertools.product(FACTORS, WARPS, (16, 17)):
        made = kernel.warmup(
            tl.float32, tl.float32, n, 1.0, FACTOR=factor, BLOCK=BLOCK, num_warps=warps, target="sm_90"
        )
        value = 0xCBF29CE484222325
        for byte in made.asm["cubin"]:
            value = (value ^ byte) * 0x100000001B3 % (1 << 64)
        print(f"{value:x} {factor} {BLOCK} {32 * warps}")


class Thread:
    """What one thread does: random steps, each of which is checked."""

    def __init__(self, seed: int, shared: list[Any], counts: collections.Counter[str], devices: int) -> None:
        from card import Array, Stream

        self.random, self.shared, self.counts = random.Random(seed), shared, counts
        self.gpus = [cuda.device(ordinal) for ordinal in range(devices)]
        self.streams = [Stream(gpu) for gpu in self.gpus]
        self.x = [Array(stream, LENGTH) for stream in self.streams]
        self.out = [Array(stream, LENGTH) for stream in self.streams]
        self.values = np.array([self.random.randrange(-1000, 1000) for _ in range(LENGTH)], np.float32)
        for x in self.x:
            x.write(self.values)

    def step(self) -> None:
        kind = self.random.choices((self.launch, self.prepared, self.capture, self.fork), (200, 10, 10, 1))[0]
        kind(self.random.randrange(len(self.gpus)))
        self.counts[kind.__name__] += 1

    def kernel(self) -> Any:
        """A kernel that other threads launch too, or now and then one that nobody has."""
        number = self.random.randrange(len(self.shared))
        if self.random.random() < 0.05:
            self.shared[number] = fresh()
        return self.shared[number]

    def arguments(self, device: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        n = self.random.randrange(2, LENGTH)
        if self.random.random() < 0.5:
            n = max(n // 16 * 16, 16)
        given = (self.x[device], self.out[device], n, float(self.random.randrange(-100, 100)))
        factor, warps = self.random.choice(FACTORS), self.random.choice(WARPS)
        stream = self.streams[device].handle.value
        return given, {"FACTOR": factor, "BLOCK": BLOCK, "num_warps": warps, "stream": stream}

    def check(self, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        _, out, n, s = given
        expected = np.full(LENGTH, np.nan, np.float32)
        expected[:n] = self.values[:n] * named["FACTOR"] + s
        np.testing.assert_array_equal(out.read(), expected, f"{given} {named}")

    def launch(self, device: int) -> None:
        given, named = self.arguments(device)
        self.out[device].write(np.full(LENGTH, np.nan))
        self.kernel()[_grid(given)](*given, **named)
        self.check(given, named)

    def prepared(self, device: int) -> None:
        given, named = self.arguments(device)
        launch = self.kernel().prepare(*given, grid=_grid(given), **named)
        for _ in range(3):
            self.out[device].write(np.full(LENGTH, np.nan))
            launch()
            self.check(given, named)

    def capture(self, device: int) -> None:
        """A launch of what is ready becomes part of the graph; one of what is not is refused and does it no harm."""
        kernel, (given, named) = self.kernel(), self.arguments(device)
        grid = _grid(given)
        kernel.warmup(*given, **named)

        def launches() -> None:
            try:
                fresh()[grid](*given, **named)
            except CaptureError:
                kernel[grid](*given, **named)
            else:
                raise AssertionError("a kernel was compiled or loaded during a capture")

        graph = self.streams[device].captured(launches)
        self.out[device].write(np.full(LENGTH, np.nan))
        graph.replay()
        self.check(given, named)

    def fork(self, device: int) -> None:
        """A child of a process that uses CUDA cannot launch, and is told so."""
        kernel, (given, named) = self.kernel(), self.arguments(device)
        prepared = kernel.prepare(*given, grid=_grid(given), **named)
        child = timed_fork()
        if not child:
            tried = (partial(kernel[(1,)], *given, **named), partial(fresh()[(1,)], *given, **named), prepared)
            os._exit(not all(map(_is_refused, tried)))
        end = time.monotonic() + GRACE_S
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > end:
                os.kill(child, signal.SIGABRT)
                raise AssertionError(f"the forked child {child} hangs")
            time.sleep(0.01)
        assert ended[1] == 0, f"a launch in the forked child raised no ForkError: status {ended[1]}"


def timed_fork() -> int:
    """os.fork(), which waits for threads that compile, but not for ever."""
    began = time.monotonic()
    child = os.fork()
    assert time.monotonic() - began < forks.WAIT_S, "a fork waited for a thread that did not get on"
    return child


def _grid(given: tuple[Any, ...]) -> tuple[int]:
    return (tlxc.cdiv(given[2], BLOCK),)


def _is_refused(launch: Callable[[], Any]) -> bool:
    """Whether a launch raises `ForkError`."""
    try:
        launch()
    except cuda.ForkError:
        return True
    except BaseException:
        traceback.print_exc()
    return False


def work(seconds: float, threads: int, seed: int, result: Path) -> int:
    """Runs the threads until the time is over; the exit status."""
    end = time.monotonic() + seconds
    faulthandler.dump_traceback_later(seconds + GRACE_S, exit=True)
    devices = min(cuda.device_count(), 2)
    shared, counts, failures = [fresh() for _ in range(4)], collections.Counter[str](), []

    def body(number: int) -> None:
        try:
            thread = Thread(seed * 1000 + number, shared, counts, devices)
            while time.monotonic() < end and not failures:
                thread.step()
        except BaseException:
            failures.append(traceback.format_exc())

    running = [threading.Thread(target=body, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for failure in failures:
        print(failure, file=sys.stderr)
    result.write_text(json.dumps({**counts, "devices": devices}))
    return int(bool(failures))


def forked(seconds: float, threads: int, seed: int, result: Path) -> int:
    """The same in a child that is forked while this process compiles and has not yet used CUDA."""
    stop = threading.Event()

    def compile_() -> None:
        while not stop.is_set():
            fresh().warmup(tl.float32, tl.float32, 16, 1.0, FACTOR=random.random(), BLOCK=BLOCK, target="sm_90")

    compiling = [threading.Thread(target=compile_) for _ in range(3)]
    for thread in compiling:
        thread.start()
    time.sleep(0.5)
    child = timed_fork()
    if not child:
        os._exit(work(seconds, threads, seed, result))
    stop.set()
    for thread in compiling:
        thread.join()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def fill_disk() -> None:
    """Every other file of the cache meets a full disk."""
    write = Path.write_bytes

    def write_bytes(self: Path, data: bytes) -> int:
        if self.suffix == ".tmp" and random.random() < 0.5:
            write(self, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, data)

    Path.write_bytes = write_bytes  # type: ignore[method-assign]


def main() -> int:
    mode, *rest = sys.argv[1:]
    if mode == "table":
        print_table()
        return 0
    faulthandler.enable()
    seconds, threads, seed, result, *options = rest
    if "full-disk" in options:
        fill_disk()
    run = forked if "zygote" in options else work
    return run(float(seconds), int(threads), int(seed), Path(result))


if __name__ == "__main__":
    raise SystemExit(main())
