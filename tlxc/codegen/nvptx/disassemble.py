"""Cubin to SASS text with `nvdisasm`, a program of a Python wheel.  Reading and tests need it, compiling does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tlxc.errors import TlxcError

TIMEOUT_S = 60
_INSTALL = "pip install nvidia-cuda-nvdisasm"
_EXE = "nvdisasm.exe" if sys.platform == "win32" else "nvdisasm"


class DisassemblerError(TlxcError):
    """`nvdisasm` is missing, or it could not read a cubin."""


def find_nvdisasm() -> str:
    """`TLXC_NVDISASM`, the newest one among the wheels of the import path, or that of PATH."""
    chosen = os.environ.get("TLXC_NVDISASM")
    if chosen:
        if not os.access(chosen, os.X_OK) or os.path.isdir(chosen):
            raise DisassemblerError(
                f"TLXC_NVDISASM names {chosen}, which is not a program; give the path of an nvdisasm or unset it."
            )
        return chosen
    found = [
        path
        for entry in dict.fromkeys(sys.path)
        for pattern in (f"nvidia/cu*/bin/{_EXE}", f"nvidia/cuda_nvdisasm/bin/{_EXE}")
        for path in sorted(Path(entry or ".").glob(pattern), reverse=True)
    ]
    path = str(found[0]) if found else shutil.which(_EXE)
    if path is None:
        raise DisassemblerError(
            f"No nvdisasm was found in TLXC_NVDISASM, in Python's site-packages or on PATH; run: {_INSTALL}"
        )
    return path


def disassemble(cubin: bytes) -> str:
    """SASS of every function of the cubin, without headers and debug sections."""
    program = find_nvdisasm()
    with tempfile.TemporaryDirectory(prefix="tlxc-") as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(cubin)
        try:
            done = subprocess.run([program, "-c", str(file)], capture_output=True, text=True, timeout=TIMEOUT_S)
        except (OSError, subprocess.SubprocessError) as error:
            raise DisassemblerError(f"{program} could not be run: {error}.") from error
    if done.returncode:
        said = done.stderr.strip() or f"status {done.returncode}"
        raise DisassemblerError(f"{program} could not read this cubin: {said}")
    return done.stdout
