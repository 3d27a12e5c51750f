"""Artifacts of compiled kernels on disk: content-addressed, one file an entry.

An entry appears by one atomic rename and is verified in full when it is read, so a process killed at any point, a full
disk or a foreign file cost a compilation and nothing else.  Processes and threads need no lock: two that store the same
key store the same content.  Nothing read from the folder is ever executed by Python.
"""

from __future__ import annotations

import enum
import hashlib
import itertools
import json
import os
import re
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Union

from tlxc.errors import TlxcError
from tlxc.frontend.signature import Signature
from tlxc.ir.types import DType
from tlxc.targets import Target

PACKAGE = Path(__file__).parent.parent
Blob = Union[str, bytes]

# Raised whenever the same source may compile to other code although no version number moved.
FORMAT = 2
DEFAULT_SIZE = 1 << 30
STORES_PER_CHECK = 64  # the folder is measured at the first of so many stores of a process
STALE_S = 3600  # a temporary file older than this was left by a killed process
_MAGIC = b"tlxc\x00\x01\r\n"
_DIGEST = 32
_SUFFIX = ".tlxc"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class CacheError(TlxcError):
    """A cache setting that tlxc cannot follow."""


@dataclass(frozen=True)
class Entry:
    """What one compilation left: `asm` by stage name, and `metadata`, which is JSON."""

    metadata: dict[str, Any]
    asm: dict[str, Blob]


# -- keys ------------------------------------------------------------------------------------------------------------


def stable_text(value: Any) -> str | None:
    """Text that is equal exactly for equal constants, in every process; None for a value that has no such text."""
    if value is None or isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{getattr(value, 'name', '')}"
    if isinstance(value, (bool, int, str, bytes)):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, float):
        return f"float:{value.hex()}"
    if isinstance(value, DType):
        return f"dtype:{value.short}"
    if isinstance(value, (tuple, list)):
        return _stable_sequence(type(value).__name__, value)
    if is_dataclass(value) and not isinstance(value, type):
        return _stable_sequence(type(value).__qualname__, [getattr(value, f.name) for f in fields(value)])
    if hasattr(value, "__tlxc_source__") or hasattr(value, "__code__"):
        from tlxc.frontend.source import Source

        return f"function:{Source.of(value).digest()}"
    return None


def _stable_sequence(kind: str, items: Any) -> str | None:
    texts = [stable_text(item) for item in items]
    return None if None in texts else f"{kind}({','.join(map(str, texts))})"


@lru_cache
def stamp(folder: Path) -> str:
    """Of the compiler's own files: their names, sizes and times of change, so that an edited checkout compiles anew."""
    files = sorted(folder.rglob("*.py"))
    states = ((str(path.relative_to(folder)), path.stat()) for path in files)
    text = "\n".join(f"{name} {state.st_size} {state.st_mtime_ns}" for name, state in states)
    return hashlib.sha256(text.encode()).hexdigest()


def key(source_digest: str, signature: Signature, target: Target, assembler: str) -> str | None:
    """File name of a compilation's result; None where a constant cannot be named across processes.

    Covers everything that decides the code: source (with what it inlines and the constants it reads), signature,
    target, the files of tlxc, and the versions of LLVM (which llvmlite brings) and the assembler.
    """
    constants = _stable_sequence("constants", signature.constants)
    if constants is None:
        return None
    import llvmlite

    parts = (f"format {FORMAT}", f"tlxc {stamp(PACKAGE)}", f"llvmlite {llvmlite.__version__}", assembler, target.name,
             source_digest, f"warps {signature.num_warps}", f"maxnreg {signature.maxnreg}",
             f"cluster {signature.cluster}", constants,
             *(f"{name} {a.type} {a.align} {a.divisible}" for name, a in signature.arguments))  # fmt: skip
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


# -- entries ---------------------------------------------------------------------------------------------------------


def encode(entry: Entry) -> bytes:
    """magic, SHA-256 of the rest, length of the header (8 bytes, little-endian), JSON header, blobs back to back."""
    blobs = {name: (b.encode() if isinstance(b, str) else b) for name, b in entry.asm.items()}
    table = [[name, "text" if isinstance(entry.asm[name], str) else "bytes", len(blob)] for name, blob in blobs.items()]
    header = json.dumps({"metadata": entry.metadata, "blobs": table}).encode()
    body = b"".join((len(header).to_bytes(8, "little"), header, *blobs.values()))
    return _MAGIC + hashlib.sha256(body).digest() + body


def decode(data: bytes) -> Entry | None:
    """The entry, or None for anything that `encode` did not write in full."""
    start = len(_MAGIC) + _DIGEST
    body = data[start:]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
        return None
    at = 8 + int.from_bytes(body[:8], "little")
    header = json.loads(body[8:at])
    asm: dict[str, Blob] = {}
    for name, kind, length in header["blobs"]:
        blob = body[at : at + length]
        asm[name] = blob.decode() if kind == "text" else blob
        at += length
    return Entry(header["metadata"], asm)


# -- the folder ------------------------------------------------------------------------------------------------------


def default_folder() -> Path:
    """`TLXC_CACHE_DIR`, or the user's cache folder of this platform."""
    chosen = os.environ.get("TLXC_CACHE_DIR")
    if chosen:
        return Path(chosen)
    try:
        import platformdirs
    except ImportError:
        return Path.home() / ".cache" / "tlxc"
    return Path(platformdirs.user_cache_dir("tlxc", appauthor=False))


def size_limit(environ: Mapping[str, str] = os.environ) -> int:
    """Bytes that the folder may hold: `TLXC_CACHE_SIZE`, a number with an optional unit K, M, G or T.  0: nothing."""
    text = environ.get("TLXC_CACHE_SIZE", "").strip()
    if not text:
        return DEFAULT_SIZE
    match = re.fullmatch(r"(\d+)([KMGT]?)(?:I?B)?", text.upper())
    if match is None:
        raise CacheError(
            f"TLXC_CACHE_SIZE is {text!r}; give a whole number with an optional unit K, M, G or T, as in 512M."
        )
    return int(match[1]) * _UNITS[match[2]]


class Cache:
    """One cache folder.  No method raises for what is wrong with the folder or its files."""

    def __init__(self, folder: Path, limit: int = DEFAULT_SIZE) -> None:
        self.folder, self.limit = folder, limit
        self._numbers = itertools.count()  # `next` on it is atomic
        self._warned = False

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def load(self, key: str) -> Entry | None:
        """The entry stored under `key`; a missing, unreadable or damaged one is a miss."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        entry = decode(data)
        if entry is not None:
            with suppress(OSError):  # the time of last use; a shared folder may be read-only
                os.utime(path)
        return entry

    def store(self, key: str, entry: Entry) -> None:
        """Stores the entry whole or not at all.  A folder that cannot be written gives one warning a process."""
        data = encode(entry)
        if len(data) > self.limit:
            return
        number = next(self._numbers)
        temporary = self.folder / f"{key}.{os.getpid()}.{threading.get_ident()}.{number}.tmp"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                temporary.write_bytes(data)
                os.replace(temporary, self._path(key))
            except OSError:
                with suppress(OSError):
                    temporary.unlink()
                raise
        except OSError as error:
            self._warn(error)
            return
        if number % STORES_PER_CHECK == 0:
            self.trim()

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"tlxc cannot write its cache folder {self.folder} ({error.strerror or error}); kernels compile anew "
                "in every process. Set TLXC_CACHE_DIR to a folder that can be written.",
                RuntimeWarning,
                stacklevel=2,
            )

    def trim(self) -> None:
        """Deletes the least recently used entries until nine tenths of the limit are left, if it was passed."""
        entries, now = [], time.time()
        with suppress(OSError), os.scandir(self.folder) as listing:
            for item in listing:
                with suppress(OSError):  # another process deleted it meanwhile
                    stat = item.stat()
                    if item.name.endswith(_SUFFIX):
                        entries.append((stat.st_mtime_ns, stat.st_size, item.path))
                    elif item.name.endswith(".tmp") and now - stat.st_mtime > STALE_S:
                        os.unlink(item.path)
        total = sum(size for _, size, _ in entries)
        if total <= self.limit:
            return
        for _, size, path in sorted(entries):
            if total <= self.limit * 9 // 10:
                break
            with suppress(OSError):
                os.unlink(path)
            total -= size


_caches: dict[tuple[str, int], Cache] = {}


def default_cache() -> Cache:
    """The cache that the environment names now."""
    where = (str(default_folder()), size_limit())
    return _caches.setdefault(where, Cache(Path(where[0]), where[1]))
