"""What is known of one build: of a compilation, or of the files that `tlxc compile` wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tlxc.codegen.notes import Note
from tlxc.codegen.nvptx.disassemble import disassemble
from tlxc.compiler import Compiled
from tlxc.deploy.write import FILES, FileError

from .forms import AMD, PTX, SASS

Text = Callable[[], str]

# Kind of a file -> the form in which it can be read; the others are not read
_FORMS = {"cubin": SASS, "ptx": PTX, "amdgcn": AMD}
_CODE = {"nvidia": ("cubin", "ptx"), "amd": ("hsaco", "amdgcn")}
# Suffix -> kind, of all files with code and of the JSON beside them
KINDS = {f".{FILES[vendor][kind]}": kind for vendor, kinds in _CODE.items() for kind in kinds}
SUFFIXES = (".json", *KINDS)


@dataclass(frozen=True)
class Buffer:
    """A range of shared memory, in bytes."""

    name: str
    offset: int
    bytes: int


@dataclass(frozen=True)
class Side:
    """`facts`: numbers by name; what is not known is absent.  `texts`: the code, by the name of its form."""

    label: str
    facts: dict[str, int] = field(default_factory=dict)
    memory: tuple[Buffer, ...] = ()
    notes: tuple[Note, ...] = ()
    texts: dict[str, Text] = field(default_factory=dict)


def of_compiled(compiled: Compiled, label: str) -> Side:
    """`compiled`: of this process or from the cache."""
    metadata = compiled.metadata
    return Side(
        label,
        _numbers(metadata, int(metadata.get("workspace", 0))),
        tuple(Buffer(name, offset, size) for offset, size, name, *_ in metadata["memory_map"]),
        tuple(map(Note.of, metadata["notes"])),
        {form.name: partial(_text, compiled.asm[kind]) for kind, form in _FORMS.items() if kind in compiled.asm},
    )


def of_file(path: Path) -> Side:
    """A JSON with the files that it names, or a file with code, with the JSON that names it if that is there."""
    if path.suffix == ".json":
        return _of_json(path)
    beside = path.with_suffix(".json")
    if beside.is_file() and path.name in _facts(beside).get("files", {}).values():
        return _of_json(beside)
    return Side(str(path), texts=_texts({KINDS[path.suffix]: path}))


def _of_json(path: Path) -> Side:
    facts = _facts(path)
    try:
        return Side(
            str(path),
            _numbers(facts, (facts["workspace"] or {}).get("bytes_per_cta", 0)),
            tuple(Buffer(row["buffer"], row["offset"], row["bytes"]) for row in facts["memory_map"]),
            tuple(map(Note.of, facts["notes"])),
            _texts({kind: path.with_name(file) for kind, file in facts["files"].items()}),
        )
    except (KeyError, TypeError) as error:
        raise FileError(f"{path} is not a JSON of this version of `tlxc compile`: {error} is missing in it.") from error


def _facts(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(f"{path} could not be read as JSON: {error}.") from error
    return found if isinstance(found, dict) else {}


def _numbers(facts: Mapping[str, Any], workspace: int) -> dict[str, int]:
    names = {"registers": "registers", "spill bytes": "spill_bytes", "stack bytes": "stack_bytes"}
    names |= {"shared bytes": "shared", "threads": "threads"}
    found = {name: facts[key] for name, key in names.items() if facts[key] is not None}
    return {**found, "workspace bytes": workspace}


def _texts(files: Mapping[str, Path]) -> dict[str, Text]:
    return {form.name: partial(_read, files[kind]) for kind, form in _FORMS.items() if kind in files}


def _read(path: Path) -> str:
    try:
        return _text(path.read_bytes())
    except OSError as error:
        raise FileError(f"{path} could not be read: {error.strerror}.") from error


def _text(content: str | bytes) -> str:
    """Text as it is; of a cubin its SASS."""
    if isinstance(content, bytes) and content.startswith(b"\x7fELF"):
        return disassemble(content)
    return content.decode(errors="replace") if isinstance(content, bytes) else content
