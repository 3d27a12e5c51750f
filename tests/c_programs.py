"""C programs in tests: the compiler, the CUDA headers, and a stand-in of the driver's library that needs no GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

STAND_IN = Path(__file__).parent / "deploy"  # cuda.h and driver.c
COMPILER = next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))), None)
NO_COMPILER = "no C compiler (cc, gcc, clang) is on the PATH" if COMPILER is None or sys.platform == "win32" else ""
needs_cc = pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)


def cuda_headers() -> Path | None:
    """The folder of the cuda.h of an installed CUDA, or of a wheel of NVIDIA."""
    roots = [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")), *sorted(Path("/usr/local").glob("cuda-1[2-9]*"))]
    wheels = sorted(Path(sysconfig.get_paths()["purelib"]).glob("nvidia/*/include"))
    folders = [*(root / "include" for root in roots), *wheels]
    return next((folder for folder in folders if (folder / "cuda.h").is_file()), None)


def cc(*arguments: Any, standard: Sequence[str] = ("-std=c11", "-pedantic")) -> None:
    """Runs the compiler; a warning is an error."""
    command = [str(COMPILER), "-O1", "-Wall", "-Wextra", "-Werror", *standard, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def build_driver(folder: Path) -> None:
    """Puts the stand-in of libcuda.so into a folder."""
    cc("-shared", "-fPIC", "-I", STAND_IN, STAND_IN / "driver.c", "-o", folder / "libcuda.so", standard=["-std=gnu11"])


def build_and_run(
    source: Path, folder: Path, driver: Path, headers: Path = STAND_IN, **settings: str
) -> tuple[int, str]:
    """(exit status, output) of a C program that finds its headers in `folder` and libcuda.so in `driver`."""
    program = folder / source.stem
    cc("-I", headers, "-I", folder, source, "-o", program, f"-L{driver}", "-lcuda", f"-Wl,-rpath,{driver}")
    done = subprocess.run([program], capture_output=True, text=True, env={**os.environ, **settings}, cwd=folder)
    assert done.returncode >= 0, f"signal {-done.returncode}"
    return done.returncode, done.stdout
