"""What came of trying configurations: trials, and their records on disk, which later processes choose by.

A record is an entry of a cache of its own: whole or absent, verified when it is read, never executed.  What it says is
still only believed as far as it names configurations that the program has now.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import tlxc
from tlxc.runtime import cuda
from tlxc.runtime.artifact import CompiledKernel, assembler_for
from tlxc.runtime.cache import PACKAGE, Cache, Entry, default_folder, size_limit, stamp
from tlxc.runtime.config import Config

FORMAT = 1
FOLDER = "tuning"  # inside the folder of the cache


@dataclass
class Trial:
    """One configuration: the median of its times in microseconds, or the `reason` why it has none.

    `fatal`: trying it cost the process its GPU, so it is never tried again.  Registers are those of a thread; sizes are
    bytes, `shared` of a CTA, `spilled` stored and loaded by a thread.
    """

    config: str
    us: float | None = None
    reason: str = ""
    fatal: bool = False
    registers: int | None = None
    shared: int | None = None
    spilled: int | None = None

    def describe(self, code: CompiledKernel) -> None:
        """Takes the resources over from the code."""
        self.registers, self.shared, self.spilled = code.registers, code.shared, code.spill_bytes


@dataclass
class Record:
    """The trials of a kernel for one kind of arguments on one card, one for each configuration, in their order.

    `best`: position among the trials; None where tuning did not come to its end.  `facts` says what for, by name;
    `identity` is what decides whether it applies.
    """

    identity: str
    facts: dict[str, Any]
    trials: list[Trial] = field(default_factory=list)
    best: int | None = None
    date: str = ""


def facts_of(
    name: str, source_digest: str, gpu: cuda.Device, key: Mapping[str, Any], arrays: Mapping[str, str]
) -> dict[str, Any]:
    """What decides which configuration is best, JSON-able, but for the configurations themselves."""
    import llvmlite

    assembler = assembler_for(cuda.target_of(gpu), gpu)
    return {
        "kernel": name,
        "source": source_digest,
        "card": gpu.name,
        "capability": ".".join(map(str, gpu.capability)),
        "driver": "CUDA {}.{}".format(*cuda.cuda_version()),
        "versions": {
            "tlxc": tlxc.__version__,
            "compiler": stamp(PACKAGE)[:12],
            "llvmlite": llvmlite.__version__,
            "assembler": assembler.identity if assembler else "",
        },
        "key": {name: repr(value) for name, value in key.items()},
        "arrays": dict(arrays),
    }


def identity_of(facts: Mapping[str, Any], configs: Sequence[Config]) -> str | None:
    """File name of a record; None where a configuration has no name across processes."""
    texts = [config.identity for config in configs]
    if None in texts:
        return None
    text = json.dumps([FORMAT, facts, texts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


# -- on disk ---------------------------------------------------------------------------------------------------------


def _cache() -> Cache:
    folder = default_folder()
    return Cache(folder and folder / FOLDER, size_limit())


def store(record: Record) -> None:
    record.date = datetime.datetime.now().astimezone().isoformat(timespec="milliseconds")
    _cache().store(record.identity, Entry(asdict(record), {}))


def load(identity: str) -> Record | None:
    """The record; None where there is none, or one that this version did not write."""
    entry = _cache().load(identity)
    record = None if entry is None else _parsed(entry.metadata)
    return record if record is not None and record.identity == identity else None


def records(kernels: Sequence[str] = ()) -> list[Record]:
    """The records of these kernels, or of all, the oldest first."""
    found = [load(stored.key) for stored in _cache().entries()]
    wanted = [r for r in found if r is not None and (not kernels or r.facts["kernel"] in kernels)]
    return sorted(wanted, key=lambda record: record.date)


def remove(record: Record) -> None:
    cache = _cache()
    for stored in cache.entries():
        if stored.key == record.identity:
            cache.remove(stored)


def _parsed(data: Mapping[str, Any]) -> Record | None:
    try:
        record = Record(**{**data, "trials": [Trial(**trial) for trial in data["trials"]]})
        if record.best is not None and record.trials[record.best].us is None:
            return None
    except (KeyError, TypeError, IndexError):  # of another version
        return None
    return record


# -- in words --------------------------------------------------------------------------------------------------------


def describe(record: Record) -> list[str]:
    """The lines of `tlxc tune show` for one record: what for, and its trials, the fastest first."""
    facts = record.facts
    key = ", ".join(f"{name}={text}" for name, text in facts["key"].items())
    arrays = ", ".join(f"{name}: {dtype}" for name, dtype in facts["arrays"].items())
    versions = " ".join(f"{name} {text}" for name, text in facts["versions"].items() if name != "compiler")
    lines = [
        f"{facts['kernel']} ({'; '.join(filter(None, (key, arrays)))})",
        f"  {facts['card']}, {facts['driver']}, {versions}; {record.date}",
    ]
    if record.best is None:
        lines.append("  not finished: the next launch tunes again, without what took the GPU from its process")
    best = None if record.best is None else record.trials[record.best]
    for trial in sorted(record.trials, key=lambda t: (t.us is None, t.us)):
        if trial.us is None:
            lines.append(f"     skipped  {trial.config}: {trial.reason}")
        else:
            spills = f", {trial.spilled} bytes spilled" if trial.spilled else ""
            mark = "*" if trial is best else " "
            lines.append(
                f"  {mark} {trial.us:8.2f} us  {trial.config}  ({trial.registers} registers, {trial.shared} bytes "
                f"shared{spills})"
            )
    return lines
