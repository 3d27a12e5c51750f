"""PTX to cubin: finds `ptxas`, runs it and reads its report.

No driver is needed or opened.  The assembler is a program of a Python wheel, so a machine without CUDA can compile.
Finding it is on the way of a launch whose kernel is in the cache, so what only running it needs is imported there.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from tlxc.errors import TlxcError

TIMEOUT_S = 120
_INSTALL = "pip install nvidia-cuda-nvcc-cu12==12.9.86"
_EXE = "ptxas.exe" if sys.platform == "win32" else "ptxas"


class AssemblerError(TlxcError):
    """`ptxas` is missing, or it refused a kernel's PTX.  `ptx` and `log` hold what it was given and what it printed."""

    def __init__(self, message: str, ptx: str = "", log: str = "") -> None:
        super().__init__(message)
        self.ptx, self.log = ptx, log


class AssemblerCrash(AssemblerError):
    """`ptxas` was ended by a signal.  `how`: "by SIGSEGV", say."""

    def __init__(self, message: str, ptx: str = "", log: str = "", how: str = "") -> None:
        super().__init__(message, ptx, log)
        self.how = how


@dataclass(frozen=True)
class Assembler:
    """One `ptxas`.  Two that compare equal produce the same code."""

    path: str
    stamp: int  # modification time in ns: a replaced file is another assembler

    @property
    def version(self) -> str:
        """Dotted release, as in 12.9.86; the program itself is asked only where no wheel's metadata says it."""
        return _version(self.path, self.stamp)

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])

    @property
    def identity(self) -> str:
        """Text for cache keys; no process is started for it."""
        return f"ptxas {_wheel_version(self.path) or (self.path, self.stamp)}"


@dataclass(frozen=True)
class Assembled:
    """A cubin and the assembler's report on it.  Registers and spills are per thread; sizes are bytes.

    `shared_bytes` counts only what PTX declares with a fixed size, not what the launch asks for.  `notes` holds every
    line with a performance remark (C7xxx) or a warning.
    """

    cubin: bytes
    registers: int
    spill_stores: int
    spill_loads: int
    stack_bytes: int
    shared_bytes: int
    barriers: int
    notes: tuple[str, ...]
    version: str
    path: str


def _wheel_folders() -> Iterator[Path]:
    """`nvidia` folders of the import path: the wheels of CUDA tools share this namespace package."""
    for entry in dict.fromkeys(sys.path):
        folder = Path(entry or ".") / "nvidia"
        if folder.is_dir():
            yield folder


def _newer_wheels() -> list[Path]:
    """Assemblers of the wheels from CUDA 13 on (nvidia/cu13/bin), the newest first."""
    found = [
        (int(match[1]), path)
        for folder in _wheel_folders()
        for path in folder.glob(f"cu*/bin/{_EXE}")
        if (match := re.fullmatch(r"cu(\d+)", path.parts[-3]))
    ]
    return [path for _, path in sorted(found, key=lambda pair: -pair[0])]


def _dependency_wheel() -> list[Path]:
    """The assembler of the wheel that tlxc depends on (CUDA 12)."""
    return [path for folder in _wheel_folders() if (path := folder / "cuda_nvcc" / "bin" / _EXE).is_file()]


def _on_path() -> list[Path]:
    import shutil

    found = shutil.which(_EXE)
    return [Path(found)] if found else []


def _assembler(path: Path) -> Assembler:
    return Assembler(str(path), path.stat().st_mtime_ns)


def find_ptxas(max_major: int | None = None) -> Assembler:
    """The assembler to use: `TLXC_PTXAS`, the newest CUDA wheel, the wheel that tlxc depends on, `PATH`.

    `max_major` is the CUDA major version of the driver that shall load the code: a driver need not load code of a newer
    major, so newer assemblers are passed over.  `TLXC_PTXAS` is the user's word and is taken as it is.
    """
    chosen = os.environ.get("TLXC_PTXAS")
    if chosen:
        if not os.access(chosen, os.X_OK) or os.path.isdir(chosen):
            raise AssemblerError(
                f"TLXC_PTXAS names {chosen}, which is not a program; give the path of a ptxas or unset it."
            )
        return _assembler(Path(chosen))
    passed_over = []
    for search in (_newer_wheels, _dependency_wheel, _on_path):
        for path in search():
            assembler = _assembler(path)
            if max_major is None or assembler.major <= max_major:
                return assembler
            passed_over.append(f"{path} is of CUDA {assembler.major}")
    if passed_over:
        raise AssemblerError(
            f"No ptxas fits the driver, which knows CUDA {max_major} at most ({'; '.join(passed_over)}); "
            f"run: {_INSTALL}"
        )
    raise AssemblerError(f"No ptxas was found in TLXC_PTXAS, in Python's site-packages or on PATH; run: {_INSTALL}")


@functools.cache
def _version(path: str, stamp: int) -> str:
    return _wheel_version(path) or _ask_version(path)


@functools.cache
def _wheel_version(path: str) -> str | None:
    """The version of the wheel that a program of .../site-packages/nvidia/<toolkit>/bin belongs to."""
    folder = Path(path).parent.parent
    if folder.parent.name == "nvidia":
        versions = {
            match[1]
            for info in folder.parent.parent.glob("nvidia_cuda_nvcc*.dist-info")
            if (match := re.fullmatch(r"nvidia_cuda_nvcc(?:_cu\d+)?-([\d.]+)", info.stem))
            and _folder_of(match[1]) == folder.name
        }
        if len(versions) == 1:
            return versions.pop()
    return None


def _folder_of(version: str) -> str:
    major = int(version.partition(".")[0])
    return "cuda_nvcc" if major < 13 else f"cu{major}"


def _ask_version(path: str) -> str:
    import subprocess

    try:
        output = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise AssemblerError(f"{path} could not be run: {error}.") from error
    match = re.search(r"\bV(\d+(?:\.\d+)+)", output)
    if match is None:
        raise AssemblerError(f"{path} did not print a version of ptxas; set TLXC_PTXAS to an NVIDIA ptxas.")
    return match[1]


_chosen: ContextVar[Assembler | None] = ContextVar("tlxc_assembler", default=None)


@contextmanager
def assembling_with(assembler: Assembler | None) -> Iterator[None]:
    """Compilations inside use this assembler: whoever knows the driver has chosen it.  None leaves the search order."""
    token = _chosen.set(assembler)
    try:
        yield
    finally:
        _chosen.reset(token)


def assemble(ptx: str, arch: str, assembler: Assembler | None = None) -> Assembled:
    """Assembles one kernel for `arch` (the suffixed name, as in sm_90a) at -O3.

    Raises `AssemblerError` where the assembler is missing, refuses the PTX or takes longer than `TIMEOUT_S`.
    """
    import tempfile

    assembler = assembler or _chosen.get() or find_ptxas()
    try:
        with tempfile.TemporaryDirectory(prefix="tlxc-") as folder:
            return _assemble_in(Path(folder), ptx, arch, assembler)
    except OSError as error:
        raise AssemblerError(
            f"The files of ptxas could not be kept in the temporary folder: {error}. Make room there, or set TMPDIR to "
            "another folder.",
            ptx,
        ) from error


def _assemble_in(folder: Path, ptx: str, arch: str, assembler: Assembler) -> Assembled:
    import subprocess

    source, target = folder / "kernel.ptx", folder / "kernel.cubin"
    source.write_text(ptx, encoding="utf-8")
    command = [assembler.path, f"-arch={arch}", "-O3", "-v", str(source), "-o", str(target)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise AssemblerError(
            f"{assembler.path} took longer than {TIMEOUT_S} s on this kernel and was ended.", ptx
        ) from error
    except OSError as error:
        raise AssemblerError(f"{assembler.path} could not be run: {error}.", ptx) from error
    log = (done.stdout + done.stderr).replace(str(source), "kernel.ptx")
    if done.returncode or not target.is_file():
        raise _refusal(assembler, arch, ptx, log, done.returncode)
    return parse_report(log, target.read_bytes(), assembler)


def _refusal(assembler: Assembler, arch: str, ptx: str, log: str, status: int) -> AssemblerError:
    if status < 0:
        how = f"by signal {-status}"
        text = f"ptxas {assembler.version} ({assembler.path}) was ended {how} on the PTX of this kernel for {arch}."
        return AssemblerCrash(f"{text}\n  The PTX is kept in the attribute `ptx` of this error.", ptx, log, how)
    errors = [line.strip() for line in log.splitlines() if re.search(r"\b(error|fatal)\b", line)][:3]
    shown = "\n".join(f"  {line}" for line in errors) or f"  it printed nothing and ended with status {status}"
    return AssemblerError(
        f"ptxas {assembler.version} ({assembler.path}) refused the PTX of this kernel for {arch}:\n{shown}\n"
        "  The PTX is kept in the attribute `ptx` of this error.",
        ptx,
        log,
    )


_NUMBERS = {
    "registers": r"Used (\d+) registers",
    "barriers": r"used (\d+) barriers",
    "shared_bytes": r"(\d+)(?:\+\d+)? bytes smem",
    "stack_bytes": r"(\d+) bytes stack frame",
    "spill_stores": r"(\d+) bytes spill stores",
    "spill_loads": r"(\d+) bytes spill loads",
}
_NOTE = re.compile(r"\(C7\d{3}\)|\bwarning\b", re.IGNORECASE)


def parse_report(log: str, cubin: bytes, assembler: Assembler) -> Assembled:
    """What `ptxas -v` printed, as numbers; 0 where it is silent, the largest where it names several functions."""
    numbers = {name: max(map(int, re.findall(pattern, log)), default=0) for name, pattern in _NUMBERS.items()}
    # "ptxas info    : (C7510) ..." and "ptxas kernel.ptx, line 7; warning : ...": the program's name says nothing here.
    notes = tuple(
        re.sub(r"^ptxas\s+(info\s*:\s*)?", "", line.strip()) for line in log.splitlines() if _NOTE.search(line)
    )
    return Assembled(cubin=cubin, notes=notes, version=assembler.version, path=assembler.path, **numbers)
