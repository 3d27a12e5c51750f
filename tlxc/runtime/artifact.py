"""Artifacts: one specialisation compiled for one target, from the cache or the compiler, and loaded on devices."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from tlxc.codegen.nvptx.trap import wait_limit
from tlxc.errors import CompileError
from tlxc.frontend.signature import Signature
from tlxc.frontend.source import Source
from tlxc.runtime import cuda, trap
from tlxc.runtime.cache import default_cache, facts
from tlxc.runtime.cache import key as cache_key
from tlxc.runtime.entries import Blob, Entry
from tlxc.runtime.outlines import keep
from tlxc.runtime.workers import compile_in, current_pool
from tlxc.targets import Target

if TYPE_CHECKING:
    from tlxc.codegen.notes import Note
    from tlxc.codegen.nvptx.assemble import Assembler


class CompiledKernel:
    """One specialisation for one target.

    `asm`: text or bytes by stage ("tlxir", "llvm", "ptx", "cubin", ...).  `metadata`: launch facts and the assembler's
    report, JSON-able.  `origin`: "compiled" in this process, or read from the "cache".  `facts`: what decided the code,
    see `cache.facts`; empty where that has no name across processes, so that the kernel is not in the cache.
    """

    def __init__(self, entry: Entry, origin: str) -> None:
        self.asm: dict[str, Blob] = entry.asm
        self.metadata: dict[str, Any] = entry.metadata
        self.origin, self.facts = origin, entry.facts
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
    def notes(self) -> list[Note]:
        """What the kernel costs beyond need, at its source lines: see docs/performance.md."""
        from tlxc.codegen.notes import Note

        return [Note.of(facts) for facts in self.metadata.get("notes", ())]

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
    known = facts_of(digest, signature, target, assembler)
    if known is None:
        return CompiledKernel(_compile(source, signature, target, assembler), "compiled")
    cache, key = default_cache(), cache_key(known)
    entry = cache.load(key)
    if entry is not None:
        keep(source)
        return CompiledKernel(entry, "cache")
    entry = replace(_compile(source, signature, target, assembler), facts=known)
    cache.store(key, entry)
    keep(source)
    return CompiledKernel(entry, "compiled")


def facts_of(digest: str, signature: Signature, target: Target, assembler: Assembler | None) -> dict[str, str] | None:
    """What decides the code, see `cache.facts`; None for code that the cache does not keep."""
    if wait_limit(os.environ) is not None:
        return None
    return facts(digest, signature, target, assembler.identity if assembler else "")


def assembler_for(target: Target, gpu: cuda.Device | None) -> Assembler | None:
    """The one whose code the GPU's driver can load; any where nothing is to be launched; None for AMD."""
    if target.vendor != "nvidia":
        return None
    from tlxc.codegen.nvptx.assemble import find_ptxas

    return find_ptxas(cuda.cuda_version()[0] if gpu else None)


def _compile(source: Source, signature: Signature, target: Target, assembler: Assembler | None) -> Entry:
    from tlxc.codegen.nvptx.assemble import assembling_with
    from tlxc.compiler import compile_kernel

    pool, limit = current_pool(), wait_limit(os.environ)
    try:
        if pool is not None:
            made = compile_in(pool, source, signature, target, assembler, limit)
        else:
            with assembling_with(assembler):
                made = compile_kernel(source, signature, target, limit)
    except CompileError as error:
        raise error.with_traceback(None)  # noqa: B904  (it is the same error; the compiler's frames tell a user nothing)
    return Entry(made.metadata, made.asm)
