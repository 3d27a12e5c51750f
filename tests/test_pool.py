"""Worker processes: parallel work, errors, deaths by signal; compilations in them, and what is left of a crash."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import crashing
import pytest
from click.testing import CliRunner

import tlxc
from tlxc import compiler, tl
from tlxc.cli import main
from tlxc.codegen.nvptx.assemble import Assembler, find_ptxas
from tlxc.compiler import compile_kernel
from tlxc.errors import CompileError, InternalError, Location
from tlxc.ir.parser import parse_module
from tlxc.runtime import artifact
from tlxc.runtime.pool import Pool, PoolClosed, WorkerDied
from tlxc.runtime.workers import CompilerCrash, compile_in, compiling_in
from tlxc.targets import get_target

H200 = get_target("sm_90")


def good(x: tl.ptr(tl.float32, align=16), BLOCK: tl.constexpr = 128):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) + 1.0)


def bad(x: tl.ptr(tl.float32, align=16), BLOCK: tl.constexpr = 512):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) * 2.0)


def wrong(x: tl.ptr(tl.float32)):
    tl.store(x + tl.arange(0, 128), tl.zeros((64,), tl.float32))


def test_results_come_back_and_workers_stay() -> None:
    with Pool(1) as pool:
        assert [pool.run(crashing.double, i) for i in range(4)] == [0, 2, 4, 6]
        assert pool.run(crashing.process) == pool.run(crashing.process) != os.getpid()


def test_workers_run_at_once(tmp_path: Path) -> None:
    with Pool(2) as pool, ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda name: pool.run(crashing.meet, str(tmp_path), name, 2), "ab")) == [True, True]


def test_a_task_that_kills_its_worker_kills_nothing_else() -> None:
    with Pool(1) as pool:
        first = pool.run(crashing.process)
        with pytest.raises(WorkerDied) as error:
            pool.run(crashing.segfault)
        assert str(error.value) == "A worker process ended by SIGSEGV."
        with pytest.raises(WorkerDied) as error:
            pool.run(crashing.leave)
        assert str(error.value) == (
            "A worker process ended with status 3. It printed:\nLLVM ERROR: Cannot select: t42"
        )
        assert pool.run(crashing.process) not in (first, os.getpid())


def test_a_task_that_hangs_is_ended() -> None:
    with Pool(1, limit_s=1) as pool, pytest.raises(WorkerDied, match="ended after the 1 s that a task may take"):
        pool.run(crashing.hang)


def test_errors_come_back_whole() -> None:
    with Pool(1) as pool:
        with pytest.raises(CompileError) as error:
            pool.run(crashing.refuse)
        assert error.value == CompileError("no", "a", "b", "c", Location("file.py", 3, 1, 2), [("d", None)])
        with pytest.raises(InternalError, match=r"(?s)A worker process failed:.*ZeroDivisionError: by nothing"):
            pool.run(crashing.fail)


def test_leaving_ends_workers_in_the_middle_of_a_task() -> None:
    caught: list[BaseException] = []

    def ask(pool: Pool) -> None:
        try:
            pool.run(crashing.hang)
        except PoolClosed as error:
            caught.append(error)

    with Pool(1) as pool:
        pool.run(crashing.process)
        thread = threading.Thread(target=ask, args=(pool,))
        thread.start()
        while pool._idle:
            pass
    thread.join(10)
    assert [str(e) for e in caught] == ["The pool of worker processes was left before this task was done."]
    with pytest.raises(PoolClosed):
        pool.run(crashing.process)


# -- compilations


def test_a_worker_compiles_to_the_same_code() -> None:
    kernel = tlxc.kernel(good)
    with Pool(1) as pool:
        made = compile_in(pool, kernel.__tlxc_source__, kernel.signature(), H200, None)
    here = compile_kernel(kernel.__tlxc_source__, kernel.signature(), H200)
    assert made.asm == here.asm
    assert list(made.metadata["timings"]) == list(here.metadata["timings"])
    assert {k: v for k, v in made.metadata.items() if k != "timings"} == {
        k: v for k, v in here.metadata.items() if k != "timings"
    }


def test_an_error_in_the_kernel_is_told_as_ever() -> None:
    kernel = tlxc.kernel(wrong)
    with pytest.raises(CompileError) as here:
        compile_kernel(kernel.__tlxc_source__, kernel.signature(), H200)
    with Pool(1) as pool, pytest.raises(CompileError) as there:
        compile_in(pool, kernel.__tlxc_source__, kernel.signature(), H200, None)
    assert str(there.value) == str(here.value)


def test_an_error_without_a_line_stands_at_the_kernel() -> None:
    kernel = tlxc.kernel(good)
    signature = kernel.signature(num_warps=32, BLOCK=4096)
    target = get_target("gfx950")  # a CTA has 16 warps at most
    with Pool(1) as pool, pytest.raises(CompileError, match=r"test_pool.py:\d+:1: error: num_warps=32 is more than"):
        compile_in(pool, kernel.__tlxc_source__, signature, target, None)


def test_a_crash_leaves_a_file_and_a_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiler, "compile_text", crashing.compile_and_segfault)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kernels = {fn: tlxc.kernel(fn) for fn in (good, bad)}
    sources = {fn: kernel.__tlxc_source__ for fn, kernel in kernels.items()}
    with Pool(1) as pool:
        compile_in(pool, sources[good], kernels[good].signature(), H200, None)
        with pytest.raises(CompilerCrash) as error:
            compile_in(pool, sources[bad], kernels[bad].signature(), H200, find_ptxas())
        compile_in(pool, sources[good], kernels[good].signature(), H200, None)
    file = error.value.file
    assert file.parent.parent == tmp_path and file.match("tlxc-crash-*/bad.sm_90.*.tlxir")
    line = bad.__code__.co_firstlineno
    command = f"TLXC_PTXAS={find_ptxas().path} tlxc compile {file} -t sm_90 -o {file.parent}"
    assert str(error.value) == (
        f"Compiling bad ({__file__}:{line}) for sm_90 failed: its worker process ended by SIGSEGV.\n"
        f"Its tile IR is kept in {file}; this compiles it again:\n"
        f"  {command}"
    )
    assert parse_module(file.read_text()).name == "bad"
    again = command.replace("tlxc compile", f"{sys.executable} -m tlxc compile")
    root = Path(tlxc.__file__).parents[1]
    done = subprocess.run(again, shell=True, cwd=root, capture_output=True, text=True)
    assert done.stdout.startswith("bad sm_90: ") and done.returncode == 0, done.stderr
    whole = compile_kernel(sources[bad], kernels[bad].signature(), H200)
    assert (file.parent / "bad.sm_90.cubin").read_bytes() == whole.binary


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for the assembler")
def test_a_crash_of_the_assembler_is_one_of_the_compiler(tmp_path: Path) -> None:
    program = tmp_path / "ptxas"
    program.write_text('#!/bin/sh\n[ "$1" = --version ] && echo V12.9.86 && exit\necho lost >&2\nkill -SEGV $$\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    kernel = tlxc.kernel(good)
    with Pool(1) as pool, pytest.raises(CompilerCrash) as error:
        compile_in(
            pool, kernel.__tlxc_source__, kernel.signature(), H200, Assembler(str(program), program.stat().st_mtime_ns)
        )
    message = str(error.value)
    assert "for sm_90 failed: the assembler ended by signal 11.\nIt printed:\n  lost\nIts tile IR is kept in" in message
    assert f"TLXC_PTXAS={program} tlxc compile {error.value.file} -t sm_90" in message


def test_launches_compile_in_the_pool_of_their_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TLXC_CACHE_DIR", str(tmp_path))
    here: list[Any] = []
    compile_here = compiler.compile_kernel
    monkeypatch.setattr(compiler, "compile_kernel", lambda *args: here.append(args) or compile_here(*args))
    with Pool(1) as pool, compiling_in(pool):
        tlxc.kernel(good).compile("sm_90", BLOCK=256)
    assert not here and len(list(tmp_path.glob("*.tlxc"))) == 1
    tlxc.kernel(good).compile("sm_90", BLOCK=512)
    assert len(here) == 1
    assert artifact.current_pool() is None


# -- tlxc compile FILE.tlxir


def tlxir(tmp_path: Path) -> Path:
    file = tmp_path / "good.tlxir"
    kernel = tlxc.kernel(good)
    file.write_text(compiler.print_module(compiler.build(kernel.__tlxc_source__, kernel.signature(), H200)))
    return file


def test_a_file_of_tile_ir_compiles(tmp_path: Path) -> None:
    file = tlxir(tmp_path)
    result = CliRunner().invoke(main, ["compile", str(file), "-t", "sm_90", "-t", "gfx950", "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert [line.partition(":")[0] for line in result.output.splitlines()] == ["good sm_90", "good gfx950"]
    whole = compile_kernel(tlxc.kernel(good).__tlxc_source__, tlxc.kernel(good).signature(), H200)
    assert (tmp_path / "good.sm_90.cubin").read_bytes() == whole.binary
    assert '"requires": {\n        "align": 16' in (tmp_path / "good.sm_90.json").read_text()


def test_a_file_of_tile_ir_takes_no_options(tmp_path: Path) -> None:
    file = tlxir(tmp_path)
    result = CliRunner().invoke(main, ["compile", str(file), "-t", "sm_90", "-D", "BLOCK=1", "--num-warps", "4"])
    assert result.exit_code == 1
    assert result.output == (
        f"{file} is tile IR, whose constants and options are fixed; leave out -D and num_warps, or give the Python "
        "file of the kernel.\n"
    )


def test_a_file_that_is_no_tile_ir(tmp_path: Path) -> None:
    file = tmp_path / "no.tlxir"
    file.write_text("module @x(\n!")
    result = CliRunner().invoke(main, ["compile", str(file), "-t", "sm_90"])
    assert result.output == f"{file} could not be read as tile IR: line 2: cannot read '!'.\n"
    result = CliRunner().invoke(main, ["compile", str(tmp_path / "none.tlxir"), "-t", "sm_90"])
    assert result.exit_code == 1 and "No such file" in result.output
