"""The files of a compilation: `NAME.TARGET.SUFFIX` for each target, and the header `NAME.h` for all of them."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tlxc.compiler import Compiled
from tlxc.deploy.facts import launch_facts
from tlxc.errors import TlxcError
from tlxc.frontend.signature import Signature
from tlxc.targets import Target

# What a compilation leaves per vendor -> the suffix of its file; the last is the binary.
FILES: dict[str, dict[str, str]] = {
    "nvidia": {"tlxir": "tlxir", "llvm": "ll", "ptx": "ptx", "cubin": "cubin"},
    "amd": {"tlxir": "tlxir", "llvm": "ll", "amdgcn": "s", "hsaco": "hsaco"},
}
KINDS = (*dict.fromkeys(name for files in FILES.values() for name in files), "json", "header")


class FileError(TlxcError):
    """The file that a command names cannot be loaded, has no such kernel, or cannot be written."""


def exists_for(kind: str, targets: Sequence[Target]) -> bool:
    """Whether a compilation for one of these targets leaves a file of this kind."""
    if kind == "header":
        return any(target.vendor == "nvidia" for target in targets)
    return kind == "json" or any(kind in FILES[target.vendor] for target in targets)


def write_file(path: Path, content: str | bytes) -> None:
    """Writes a file in one step: whoever looks finds the old one or the whole new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise FileError(f"{path} could not be written: {error.strerror}.") from error


def write_target(
    compiled: Compiled, signature: Signature, target: Target, kinds: Collection[str], folder: Path, name: str
) -> None:
    """The files of one target, of the kinds that it has."""
    stem = f"{name}.{target.name}"
    files = {kind: f"{stem}.{suffix}" for kind, suffix in FILES[target.vendor].items() if kind in kinds}
    for kind, file in files.items():
        write_file(folder / file, compiled.asm[kind])
    if "json" in kinds:  # last: where it stands, the files that it names stand too
        facts = launch_facts(compiled, signature, files)
        write_file(folder / f"{stem}.json", json.dumps(facts, indent=2) + "\n")


def write_header(
    made: Sequence[Compiled], signature: Signature, folder: Path, name: str, embed: bool, grid: str | None
) -> None:
    """The header for all NVIDIA targets, which holds the cubins (`embed`) or their names."""
    from tlxc.deploy.header import emit_header

    variants = [compiled for compiled in made if "cubin" in compiled.asm]
    files = [f"{name}.{compiled.target}.cubin" for compiled in variants]
    write_file(folder / f"{name}.h", emit_header(name, signature, variants, None if embed else files, grid))


def default_kinds(targets: Sequence[Target]) -> Iterator[str]:
    """The binaries and the JSON."""
    yield from dict.fromkeys([*FILES[target.vendor]][-1] for target in targets)
    yield "json"
