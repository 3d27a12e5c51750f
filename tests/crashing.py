"""Tasks for worker processes that do what no task should; `tests/test_pool.py` runs them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from tlxc.errors import CompileError, Location


def double(x: int) -> int:
    return 2 * x


def process() -> int:
    return os.getpid()


def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def leave() -> None:
    print("LLVM ERROR: Cannot select: t42", flush=True)
    os._exit(3)


def hang() -> None:
    time.sleep(60)


def meet(folder: str, name: str, others: int) -> bool:
    """Whether so many run at once: each leaves a file and waits for those of the others."""
    (Path(folder) / name).touch()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if len(list(Path(folder).iterdir())) == others:
            return True
        time.sleep(0.01)
    return False


def refuse() -> None:
    raise CompileError("no", found="a", allowed="b", fix="c", loc=Location("file.py", 3, 1, 2), related=[("d", None)])


def fail() -> None:
    raise ZeroDivisionError("by nothing")


def compile_and_segfault(text: str, target: str, *rest: Any) -> Any:
    """In place of `compile_text`: dies on tiles of 512 elements, in the middle of the compilation."""
    from tlxc import compiler

    if "<512x" in text:
        compiler._assemble_nvidia = lambda *arguments: segfault()
    return compiler.compile_text(text, target, *rest)
