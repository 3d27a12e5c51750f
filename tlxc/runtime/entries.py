"""One artifact as one file: how it is written, read and checked.

magic, SHA-256 of the rest, length of the header (8 bytes, little-endian), JSON header, blobs back to back.  A file says
under which key it was stored, so that neither damage nor another kernel's file under a wrong name is ever taken for the
artifact.  Nothing that is read is executed by Python.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Union

Blob = Union[str, bytes]

_MAGIC = b"tlxc\x00\x02\r\n"
_DIGEST, _LENGTH = 32, 8
_START = len(_MAGIC) + _DIGEST
_MAX_HEADER = 16 << 20
# What parsing a header can raise where the bytes are not those that were written
_MALFORMED = (ValueError, TypeError, KeyError, RecursionError)


@dataclass(frozen=True)
class Entry:
    """What one compilation left: `asm` by stage name, and `metadata`, which is JSON.  `facts` is what decided the code,
    by name, see `cache.facts`."""

    metadata: dict[str, Any]
    asm: dict[str, Blob]
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Header:
    """An entry without its blobs, of which it has (name, kind, bytes)."""

    key: str
    facts: dict[str, str]
    metadata: dict[str, Any]
    blobs: tuple[tuple[str, str, int], ...]


def encode(key: str, entry: Entry) -> bytes:
    blobs = {name: (b.encode() if isinstance(b, str) else b) for name, b in entry.asm.items()}
    table = [[name, "text" if isinstance(entry.asm[name], str) else "bytes", len(blob)] for name, blob in blobs.items()]
    described = {"key": key, "facts": dict(entry.facts), "metadata": entry.metadata, "blobs": table}
    header = json.dumps(described).encode()
    body = b"".join((len(header).to_bytes(_LENGTH, "little"), header, *blobs.values()))
    return _MAGIC + hashlib.sha256(body).digest() + body


def decode(data: bytes, key: str) -> Entry | None:
    """The entry, or None for anything that `encode` did not write in full for this key."""
    body = data[_START:]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != data[len(_MAGIC) : _START]:
        return None
    at = _LENGTH + int.from_bytes(body[:_LENGTH], "little")
    header = _parsed(body[_LENGTH:at])
    if header is None or header.key != key or at + sum(length for *_, length in header.blobs) != len(body):
        return None
    asm: dict[str, Blob] = {}
    for name, kind, length in header.blobs:
        blob = body[at : at + length]
        asm[name] = blob.decode() if kind == "text" else blob
        at += length
    return Entry(header.metadata, asm, header.facts)


def _parsed(text: bytes) -> Header | None:
    try:
        fields = json.loads(text)
        blobs = tuple((str(name), str(kind), int(length)) for name, kind, length in fields["blobs"])
        header = Header(str(fields["key"]), dict(fields["facts"]), dict(fields["metadata"]), blobs)
    except _MALFORMED:
        return None
    return header if all(length >= 0 for *_, length in blobs) else None


# -- files -----------------------------------------------------------------------------------------------------------


def read_entry(path: Path, key: str, limit: int) -> Entry | None:
    """The entry in a file of at most `limit` bytes, verified in full; None for all else.  Raises no `OSError`."""
    try:
        with _opened(path, limit) as file:
            start = file.read(_START)
            return decode(start + file.read(limit), key) if start.startswith(_MAGIC) else None
    except OSError:
        return None


def read_header(path: Path) -> Header | None:
    """The header of a file, to be shown: only its form is checked, not the digest."""
    try:
        with _opened(path) as file:
            start = file.read(_START + _LENGTH)
            length = int.from_bytes(start[_START:], "little")
            if not start.startswith(_MAGIC) or length > _MAX_HEADER:
                return None
            return _parsed(file.read(length))
    except OSError:
        return None


def _opened(path: Path, limit: int | None = None) -> BinaryIO:
    """An ordinary file; an `OSError` for a pipe, on which a reader would wait for ever, and for what is too large."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))  # noqa: SIM115
    state = os.fstat(file.fileno())
    if not stat.S_ISREG(state.st_mode) or (limit is not None and state.st_size > limit):
        file.close()
        raise OSError(f"{path} is no entry")
    return file
