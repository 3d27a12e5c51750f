"""Kernels that hang, explained: the records of waits that gave up (see `codegen.nvptx.trap`).

Records lie in pinned host memory, which stays readable when a trap has ended all use of the GPU.  Each loaded kernel
has one of its own, for as long as the process lives.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tlxc.codegen.nvptx.trap import RECORD_BYTES, VARIABLE, WORDS, locations
from tlxc.errors import source_excerpt
from tlxc.runtime import cuda

_PAGE = 4096


@dataclass(frozen=True)
class Record:
    """The record of one kernel on one GPU: at `address` for the host, at `pointer` for the GPU.  `metadata` is that of
    the kernel."""

    metadata: Mapping[str, Any]
    gpu: cuda.Device
    address: int
    pointer: int
    process: int

    def words(self) -> dict[str, int]:
        """What the GPU wrote, by name; all zero while no wait has given up."""
        return dict(zip(WORDS, (ctypes.c_uint32 * len(WORDS)).from_address(self.address)))


_lock = threading.Lock()
_free: list[int] = []  # addresses in pinned pages of this process
_records: list[Record] = []


def new_record(metadata: Mapping[str, Any], gpu: cuda.Device) -> Record:
    """A record, zero, for a kernel that is being loaded."""
    with _lock, cuda.in_context(gpu):
        if any(record.process != os.getpid() for record in _records):  # a fork: pinned memory stayed with the parent
            _records.clear()
            _free.clear()
        if not _free:
            page = _pinned_page()
            _free.extend(range(page, page + _PAGE, RECORD_BYTES))
        address = _free.pop()
        pointer = int(cuda.call("cuMemHostGetDevicePointer", address, 0))
        record = Record(metadata, gpu, address, pointer, os.getpid())
        _records.append(record)
    return record


def _pinned_page() -> int:
    """`_PAGE` bytes of host memory, zero, that the GPUs of all contexts reach."""
    module = cuda.driver()
    page = int(cuda.call("cuMemHostAlloc", _PAGE, module.CU_MEMHOSTALLOC_PORTABLE | module.CU_MEMHOSTALLOC_DEVICEMAP))
    ctypes.memset(page, 0, _PAGE)
    return page


def explain_trap() -> str:
    """What the waits say that gave up: kernel, CTA, thread, barrier, phase and source line.

    Call it after an error of CUDA; the GPU needs not work any more.  Waits give up only in kernels that were compiled
    while the environment variable `TLXC_TRAP_ON_TIMEOUT` held a number of cycles.
    """
    if not _records:
        return (
            f"No kernel that could tell was loaded: set {VARIABLE} to the clock cycles after which a wait on an "
            "mbarrier gives up, as in 2000000000 (about a second), before the process starts."
        )
    return _timeouts() or "No wait on an mbarrier has given up."


def _timeouts() -> str:
    """The waits that gave up, or nothing."""
    return "\n".join(_describe(record) for record in _records if record.words()["site"])


cuda.witnesses.append(_timeouts)


def _describe(record: Record) -> str:
    words, facts = record.words(), record.metadata
    site = facts["wait_sites"][words["site"] - 1]
    place, *callers = locations(site)
    cta = (words["x"], words["y"], words["z"])
    lines = [
        f"kernel {facts['name']} on GPU {record.gpu.ordinal}, CTA {cta}, thread {words['thread']}: waited more than "
        f"{facts['trap_cycles']} cycles at {place} on {_barrier(site, words['offset'])} for phase {words['phase']}, "
        "which did not complete",
        source_excerpt(place),
    ]
    for caller in callers:
        lines += [f"  called from {caller}", source_excerpt(caller)]
    return "\n".join(filter(None, lines))


def _barrier(site: Mapping[str, Any], offset: int) -> str:
    text = f"barrier `{site['barrier']}`" if site["barrier"] else "a barrier"
    if site["offset"] is None:  # not known before it runs which array the barrier is of
        return f"{text} at byte {offset} of shared memory"
    return f"{text} (entry {(offset - site['offset']) // 8} of {site['count']}, the first being 0)"
