"""Artifacts of compiled kernels on disk: content-addressed, one file an entry (see `entries`).

An entry appears by one atomic rename and is verified in full when it is read, so a process killed at any point, a full
disk or a foreign file cost a compilation and nothing else.  Processes and threads need no lock: two that store the same
key store the same content, and an entry that is deleted while it is read stays readable to its reader.
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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tlxc import __version__
from tlxc.errors import TlxcError
from tlxc.frontend.signature import Signature
from tlxc.ir.types import DType
from tlxc.runtime.entries import Entry, Header, encode, read_entry, read_header
from tlxc.targets import Target

PACKAGE = Path(__file__).parent.parent

DEFAULT_SIZE = 1 << 30
# A process measures the folder at its first store, and after so many stores or so large a part of the limit.
STORES_PER_CHECK, LIMIT_PART = 64, 16
STALE_S = 3600  # a temporary file older than this was left by a killed process
PARAMETER = "parameter "  # before the names of parameters among the facts
_SUFFIX = ".tlxc"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class CacheError(TlxcError):
    """A cache setting that tlxc cannot follow."""


# -- keys ------------------------------------------------------------------------------------------------------------


def stable_text(value: Any) -> str | None:
    """Text that is equal exactly for equal constants, in every process; None for a value that has no such text."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value.name}({stable_text(value.value)})"
    if value is None or isinstance(value, (bool, str, bytes)):
        return repr(value)
    if isinstance(value, (int, float)):
        return (int if isinstance(value, int) else float).__repr__(value)
    if isinstance(value, DType):
        return repr(value)
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
    lines = []
    for path in sorted(folder.rglob("*.py")):
        with suppress(FileNotFoundError):  # an editor is replacing it
            state = path.stat()
            lines.append(f"{path.relative_to(folder)} {state.st_size} {state.st_mtime_ns}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def facts(source_digest: str, signature: Signature, target: Target, assembler: str) -> dict[str, str] | None:
    """Everything that decides the code, by name; None where a constant cannot be named across processes.

    Source (with what it inlines and the constants it reads), signature, target, the files of tlxc, and the versions of
    LLVM (which llvmlite brings) and the assembler.
    """
    constants = {f"{PARAMETER}{name}": stable_text(value) for name, value in signature.constants}
    if None in constants.values():
        return None
    import llvmlite

    return {
        "tlxc": f"{__version__} {stamp(PACKAGE)}",
        "llvmlite": llvmlite.__version__,
        "assembler": assembler,
        "target": target.name,
        "source": source_digest,
        "num_warps": str(signature.num_warps),
        "maxnreg": str(signature.maxnreg),
        "ctas_per_cga": str(signature.cluster),
        **{name: f"= {text}" for name, text in constants.items()},
        **{f"{PARAMETER}{name}": str(argument) for name, argument in signature.arguments},
    }


def key(facts: Mapping[str, str]) -> str:
    """The name of a compilation's result."""
    return hashlib.sha256(json.dumps(list(facts.items())).encode()).hexdigest()


# -- the folder ------------------------------------------------------------------------------------------------------


def default_folder() -> Path | None:
    """`TLXC_CACHE_DIR`, or the user's cache folder of this platform; None for a user without a home folder."""
    chosen = os.environ.get("TLXC_CACHE_DIR")
    if chosen:
        return Path(chosen)
    try:
        import platformdirs

        found = platformdirs.user_cache_dir("tlxc", appauthor=False)
    except ImportError:
        found = os.path.join(os.path.expanduser("~"), ".cache", "tlxc")
    except RuntimeError:  # newer versions of platformdirs; older ones return what begins with "~"
        return None
    return Path(found) if os.path.isabs(found) else None


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


@dataclass(frozen=True)
class Stored:
    """One file of the folder.  `used`: seconds since the epoch; `header` is None for a file that is no entry."""

    path: Path
    size: int
    used: float
    header: Header | None

    @property
    def key(self) -> str:
        return self.path.name[: -len(_SUFFIX)]


class Cache:
    """One cache folder.  No method raises for what is wrong with the folder or its files.  Without a folder nothing is
    found or kept.  `warns`: whether it says so when nothing can be written."""

    def __init__(self, folder: Path | None, limit: int = DEFAULT_SIZE, warns: bool = True) -> None:
        self.folder, self.limit = folder, limit
        self._numbers = itertools.count()  # `next` on it is atomic
        self._unmeasured = 0  # bytes stored since the folder was measured; threads may lose some
        self._warned = not warns

    def load(self, key: str) -> Entry | None:
        """The entry stored under `key`; a missing, unreadable or damaged one is a miss."""
        if self.folder is None:
            return None
        path = self.folder / f"{key}{_SUFFIX}"
        entry = read_entry(path, key, self.limit)
        if entry is not None:
            with suppress(OSError):  # the time of last use; a shared folder may be read-only
                os.utime(path)
        return entry

    def store(self, key: str, entry: Entry) -> None:
        """Stores the entry whole or not at all.  A folder that cannot be written gives one warning a process."""
        data = encode(key, entry)
        if len(data) > self.limit:
            return
        if self.folder is None:
            self._warn("finds no home folder to keep its cache in")
            return
        number = next(self._numbers)
        try:
            self._write(self.folder, key, f"{os.getpid()}.{threading.get_ident()}.{number}", data)
        except OSError as error:
            self._warn(f"cannot write its cache folder {self.folder} ({error.strerror or error})")
            return
        self._unmeasured += len(data)
        if number % STORES_PER_CHECK == 0 or self._unmeasured > self.limit // LIMIT_PART:
            self._unmeasured = 0
            self.trim()

    def _write(self, folder: Path, key: str, writer: str, data: bytes) -> None:
        temporary = folder / f"{key}.{writer}.tmp"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(data)
            os.replace(temporary, folder / f"{key}{_SUFFIX}")
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"tlxc {what}; kernels compile anew in every process. Set TLXC_CACHE_DIR to a folder that can be "
                "written.",
                RuntimeWarning,
                stacklevel=3,
            )

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """What lies in the folder; nothing where it cannot be read."""
        if self.folder is None:
            return
        with suppress(OSError), os.scandir(self.folder) as listing:
            for item in listing:
                with suppress(OSError):  # another process deleted it meanwhile
                    yield Path(item.path), item.stat(follow_symlinks=False)

    def trim(self) -> None:
        """Deletes the least recently used entries until nine tenths of the limit are left, if it was passed."""
        entries, now = [], time.time()
        for path, state in self._files():
            if path.suffix == _SUFFIX:
                entries.append((state.st_mtime_ns, state.st_size, path))
            elif path.suffix == ".tmp" and now - state.st_mtime > STALE_S:
                _delete(path)
        total = sum(size for _, size, _ in entries)
        if total <= self.limit:
            return
        for _, size, path in sorted(entries):
            if total <= self.limit * 9 // 10:
                break
            if _delete(path):
                total -= size

    # -- for the command line

    def entries(self) -> list[Stored]:
        """Every file that is named like an entry, the most recently used first."""
        found = [
            Stored(path, state.st_size, state.st_mtime, read_header(path))
            for path, state in self._files()
            if path.suffix == _SUFFIX
        ]
        return sorted(found, key=lambda stored: (-stored.used, stored.path))

    def is_sound(self, stored: Stored) -> bool:
        """Whether a launch would take the entry, or it is gone meanwhile."""
        return read_entry(stored.path, stored.key, self.limit) is not None or not os.path.lexists(stored.path)

    def remove(self, stored: Stored) -> bool:
        """Deletes one entry; whether it is gone.  Processes that run its code keep it."""
        return _delete(stored.path)


def _delete(path: Path) -> bool:
    """Whether the file is gone, whoever deleted it."""
    try:
        path.unlink()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


_caches: dict[tuple[Path | None, int], Cache] = {}


def default_cache(part: str = "", share: int = 1) -> Cache:
    """The cache that the environment names now; or a part of it, a folder inside for a `share`-th of its size, which
    leaves it to the whole to warn."""
    folder = default_folder()
    where = (folder and folder / part, size_limit() // share)
    return _caches.setdefault(where, Cache(*where, warns=not part))
