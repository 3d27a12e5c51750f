"""Artifacts: one specialisation compiled for one target, from the cache or the compiler, and loaded on devices."""

from __future__ import annotations

import os
import threading
from math import prod
from typing import TYPE_CHECKING, Any

from tlxc.codegen.nvptx.trap import wait_limit
from tlxc.errors import CompileError
from tlxc.frontend.signature import Signature
from tlxc.frontend.source import Source
from tlxc.runtime import cuda, trap
from tlxc.runtime.cache import Blob, Entry, default_cache
from tlxc.runtime.cache import key as cache_key
from tlxc.targets import Target

if TYPE_CHECKING:
    from tlxc.codegen.nvptx.assemble import Assembler


class CompiledKernel:
    """One specialisation for one target.

    `asm`: text or bytes by stage ("tlxir", "llvm", "ptx", "cubin", ...).  `metadata`: launch facts and the assembler's
    report, JSON-able.
    """

    def __init__(self, entry: Entry) -> None:
        self.asm: dict[str, Blob] = entry.asm
        self.metadata: dict[str, Any] = entry.metadata
        self._lock = threading.Lock()
        self._loaded: dict[int, cuda.Function] = {}
        self._records: dict[int, trap.Record] = {}

    @property
    def name(self) -> str:
        return str(self.metadata["name"])

    @property
    def target(self) -> str:
        return str(self.metadata["target"])

    @property
    def num_warps(self) -> int:
        return int(self.metadata["num_warps"])

    @property
    def maxnreg(self) -> int | None:
        """Registers that a thread may use at most; None where the assembler was free."""
        return self.metadata.get("maxnreg")

    @property
    def cluster(self) -> tuple[int, int, int]:
        """CTAs of a cluster along x, y and z."""
        x, y, z = self.metadata["cluster"]
        return (x, y, z)

    @property
    def shared(self) -> int:
        """Dynamic shared memory of a CTA in bytes."""
        return int(self.metadata["shared"])

    @property
    def workspace(self) -> int:
        """Global memory of a CTA in bytes that a launch passes after the arguments; 0 where the kernel takes none."""
        return int(self.metadata.get("workspace", 0))

    @property
    def registers(self) -> int | None:
        """Registers of a thread."""
        return self.metadata.get("registers")

    @property
    def spill_bytes(self) -> int | None:
        """Bytes that a thread stores and loads because registers ran out."""
        return self.metadata.get("spill_bytes")

    @property
    def timings(self) -> dict[str, float]:
        """Milliseconds that each stage of the compilation took, when it was compiled; in the order that they ran."""
        return dict(self.metadata.get("timings", {}))

    @property
    def notes(self) -> list[str]:
        """Performance remarks of the assembler."""
        return list(self.metadata.get("notes", ()))

    def __repr__(self) -> str:
        return f"<{self.name} for {self.target}: {self.registers} registers, {self.shared} bytes shared>"

    def is_loaded(self, gpu: cuda.Device) -> bool:
        return gpu.context in self._loaded

    def load(self, gpu: cuda.Device) -> cuda.Function:
        """The kernel on a device; loaded at the first call and kept."""
        with self._lock:
            if gpu.context not in self._loaded:
                cubin = self.asm["cubin"]
                assert isinstance(cubin, bytes)
                if "wait_sites" in self.metadata:
                    self._records[gpu.context] = trap.new_record(self.metadata, gpu)
                self._loaded[gpu.context] = cuda.load(cubin, self.name, gpu, self.shared, prod(self.cluster))
            return self._loaded[gpu.context]

    def record(self, gpu: cuda.Device) -> trap.Record | None:
        """Where a wait of the loaded kernel that gives up says so; None where waits have no limit."""
        return self._records.get(gpu.context)


def build(
    digest: str, source: Source, signature: Signature, target: Target, assembler: Assembler | None
) -> CompiledKernel:
    """From the cache on disk, or compiled and stored there.  `digest` is that of the source as it is now.

    Code whose waits are limited tells source lines, which the digest leaves out: each process compiles it anew.
    """
    limited = wait_limit(os.environ) is not None
    key = None if limited else cache_key(digest, signature, target, assembler.identity if assembler else "")
    cache = default_cache()
    entry = cache.load(key) if key else None
    if entry is None:
        entry = _compile(source, signature, target, assembler)
        if key:
            cache.store(key, entry)
    return CompiledKernel(entry)


def assembler_for(target: Target, gpu: cuda.Device | None) -> Assembler | None:
    """The one whose code the GPU's driver can load; any where nothing is to be launched; None for AMD."""
    if target.vendor != "nvidia":
        return None
    from tlxc.codegen.nvptx.assemble import find_ptxas

    return find_ptxas(cuda.cuda_version()[0] if gpu else None)


def _compile(source: Source, signature: Signature, target: Target, assembler: Assembler | None) -> Entry:
    from tlxc.codegen.nvptx.assemble import assembling_with
    from tlxc.compiler import compile_kernel

    try:
        with assembling_with(assembler):
            made = compile_kernel(source, signature, target, wait_limit(os.environ))
    except CompileError as error:
        raise error.with_traceback(None)  # noqa: B904  (it is the same error; the compiler's frames tell a user nothing)
    return Entry(made.metadata, made.asm)
