"""The artifact cache: keys, damage, concurrency, killed writers, folders that cannot be written, eviction."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlxc.frontend.signature import Argument, Signature
from tlxc.ir import types as ir
from tlxc.runtime import cache as c
from tlxc.runtime import entries as e
from tlxc.runtime.entries import Entry
from tlxc.targets import Target, get_target

ROOT = Path(c.__file__).parents[2]
ENTRY = Entry({"name": "k", "registers": 8, "notes": []}, {"ptx": ".version 8.6 \u2713", "cubin": b"\x7fELF\x00\xff"})
KEY = "ab" * 32
H200 = get_target("sm_90")


def test_an_entry_comes_back_as_it_was(tmp_path: Path) -> None:
    cache = c.Cache(tmp_path / "new" / "folder")
    assert cache.load(KEY) is None
    cache.store(KEY, ENTRY)
    assert cache.load(KEY) == ENTRY
    assert [p.name for p in cache.folder.iterdir()] == [f"{KEY}.tlxc"]


@given(st.data())
def test_any_damage_is_a_miss(data: st.DataObject) -> None:
    good = e.encode(KEY, ENTRY)
    cut = data.draw(st.integers(0, len(good) - 1))
    assert e.decode(good[:cut], KEY) is None
    assert e.decode(good + b"x", KEY) is None
    assert e.decode(good[:cut] + bytes([good[cut] ^ 0x55]) + good[cut + 1 :], KEY) is None
    assert e.decode(data.draw(st.binary(max_size=99)), KEY) is None


def sealed(header: bytes) -> bytes:
    """A file whose digest is right, whatever its header is."""
    body = len(header).to_bytes(8, "little") + header
    return e._MAGIC + hashlib.sha256(body).digest() + body


@pytest.mark.parametrize(
    "header",
    [b"", b"[]", b"{", b"null", b"\xff", b"[" * 100_000, b'{"key": 1, "facts": {}, "metadata": {}, "blobs": 5}',
     b'{"key": 1, "facts": [1], "metadata": {}, "blobs": []}', b'{"key": "k", "facts": {}, "metadata": {}, '
     b'"blobs": [["a", "text", -5]]}', b'{"key": "k", "facts": {}, "metadata": {}, "blobs": [["a", "text", 5]]}'],
    ids=lambda header: repr(header[:20]),
)  # fmt: skip
def test_a_foreign_header_is_a_miss(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "k.tlxc").write_bytes(sealed(header))
    cache = c.Cache(tmp_path)
    assert cache.load("k") is None
    (stored,) = cache.entries()
    assert not cache.is_sound(stored)


def test_another_kernels_file_under_the_name_is_a_miss(tmp_path: Path) -> None:
    cache = c.Cache(tmp_path)
    cache.store("other", ENTRY)
    (tmp_path / "other.tlxc").rename(tmp_path / f"{KEY}.tlxc")
    assert cache.load(KEY) is None
    (stored,) = cache.entries()
    assert stored.header is not None and not cache.is_sound(stored)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_in_place_of_an_entry_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{KEY}.tlxc")
    cache = c.Cache(tmp_path)
    assert cache.load(KEY) is None and cache.entries()[0].header is None
    cache.store(KEY, ENTRY)
    assert cache.load(KEY) == ENTRY


def test_a_file_larger_than_the_folder_may_be_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / f"{KEY}.tlxc", "wb") as file:
        file.write(e._MAGIC)
        file.truncate(1 << 40)  # sparse
    assert c.Cache(tmp_path).load(KEY) is None


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"PK\3\4 something else", e.encode(KEY, ENTRY)[:-1]])
def test_damaged_files_are_replaced(tmp_path: Path, content: bytes) -> None:
    cache = c.Cache(tmp_path)
    path = tmp_path / f"{KEY}.tlxc"
    path.write_bytes(content)
    assert cache.load(KEY) is None
    cache.store(KEY, ENTRY)
    assert cache.load(KEY) == ENTRY


def test_a_folder_in_the_way_of_a_file_is_a_miss(tmp_path: Path) -> None:
    (tmp_path / f"{KEY}.tlxc").mkdir()
    cache = c.Cache(tmp_path)
    assert cache.load(KEY) is None
    with pytest.warns(RuntimeWarning):
        cache.store(KEY, ENTRY)
    assert not list(tmp_path.glob("*.tmp"))


def test_a_folder_that_cannot_be_written_warns_once(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    cache = c.Cache(blocker / "cache")  # also for root, who may write anywhere else
    for _ in range(3):
        cache.store(KEY, ENTRY)
        assert cache.load(KEY) is None
    (warning,) = recwarn.list
    assert str(warning.message) == (
        f"tlxc cannot write its cache folder {cache.folder} (Not a directory); kernels compile anew in every process. "
        "Set TLXC_CACHE_DIR to a folder that can be written."
    )


def test_without_a_home_folder_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TLXC_CACHE_DIR", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user who is in no table
    monkeypatch.chdir(tmp_path)
    assert c.default_folder() is None
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert c.default_folder() is None
    cache = c.Cache(None)
    with pytest.warns(RuntimeWarning) as warned:
        cache.store(KEY, ENTRY)
    assert str(warned[0].message) == (
        "tlxc finds no home folder to keep its cache in; kernels compile anew in every process. Set TLXC_CACHE_DIR "
        "to a folder that can be written."
    )
    assert cache.load(KEY) is None and cache.entries() == [] and list(tmp_path.iterdir()) == []
    cache.trim()


READER = """
import os, sys, warnings
from pathlib import Path
from tlxc.runtime.cache import Cache
from tlxc.runtime.entries import Entry
if os.geteuid() == 0:
    os.seteuid(65534)
warnings.simplefilter("error")
cache = Cache(Path(sys.argv[1]))
assert cache.load("key") is not None
try:
    cache.store("other", Entry({}, {}))
except RuntimeWarning as warning:
    print("Permission denied" in str(warning))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sets permissions as POSIX has them")
def test_a_folder_that_can_only_be_read() -> None:
    with tempfile.TemporaryDirectory() as name:  # one that everybody may enter
        folder = Path(name)
        c.Cache(folder).store("key", ENTRY)
        folder.chmod(0o555)
        done = subprocess.run([sys.executable, "-c", READER, name], capture_output=True, text=True, cwd=ROOT)
        assert done.stdout == "True\n", done.stderr
        folder.chmod(0o755)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        with open(self, "wb") as file:
            file.write(data[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        c.Cache(tmp_path).store(KEY, ENTRY)
    assert list(tmp_path.iterdir()) == []


def test_many_threads(tmp_path: Path) -> None:
    cache, failures = c.Cache(tmp_path), []

    def work(seed: int) -> None:
        generator = random.Random(seed)
        for _ in range(40):
            number = generator.randrange(4)
            entry = Entry({"n": number}, {"cubin": bytes([number]) * 5000})
            cache.store(f"{number}", entry)
            found = cache.load(f"{generator.randrange(4)}")
            if found and set(found.asm["cubin"]) != {found.metadata["n"]}:
                failures.append(found)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{n}.tlxc" for n in range(4)]


WRITER = """
import sys
from pathlib import Path
from tlxc.runtime.cache import Cache
from tlxc.runtime.entries import Entry
cache = Cache(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    cache.store("key", Entry({"n": 1}, {"cubin": b"x" * (1 << 20)}))
"""


def test_killed_writers_leave_a_working_cache(tmp_path: Path) -> None:
    cache = c.Cache(tmp_path)
    for i in range(4):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT)
        assert writer.stdout is not None and writer.stdout.readline()
        time.sleep(0.01 + 0.004 * i)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        found = cache.load("key")
        assert found is None or found.asm["cubin"] == b"x" * (1 << 20)
    cache.store("key", ENTRY)
    assert cache.load("key") == ENTRY
    for left in tmp_path.glob("*.tmp"):  # what the killed ones left goes once it is old
        os.utime(left, (1, 1))
    cache.trim()
    assert [p.name for p in tmp_path.iterdir()] == ["key.tlxc"]


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    size = len(e.encode("00", ENTRY))
    cache = c.Cache(tmp_path, limit=1 << 20)
    for i in range(12):
        cache.store(f"{i:02}", ENTRY)
        os.utime(tmp_path / f"{i:02}.tlxc", (1000 + i, 1000 + i))
    assert cache.load("00") == ENTRY  # now the most recently used
    c.Cache(tmp_path, limit=10 * size).trim()
    assert sorted(p.stem for p in tmp_path.iterdir()) == ["00", *(f"{i:02}" for i in range(4, 12))]


def test_a_store_trims_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c, "STORES_PER_CHECK", 4)
    monkeypatch.setattr(c, "LIMIT_PART", 0.1)
    cache = c.Cache(tmp_path, limit=2 * len(e.encode("0", ENTRY)))
    for i in range(9):
        cache.store(str(i), ENTRY)
    assert len(list(tmp_path.iterdir())) == 1


def test_large_entries_are_counted_sooner(tmp_path: Path) -> None:
    cache = c.Cache(tmp_path, limit=10 * len(e.encode(KEY, ENTRY)))
    for i in range(50):
        cache.store(f"{i:064}", ENTRY)
        assert len(list(tmp_path.iterdir())) <= 10


def test_what_cannot_be_deleted_does_not_count_as_deleted(tmp_path: Path) -> None:
    size = len(e.encode("1", ENTRY))
    cache = c.Cache(tmp_path, limit=size)
    (tmp_path / "folder.tlxc").mkdir()
    os.utime(tmp_path / "folder.tlxc", (1, 1))
    for name in "12":
        cache.store(name, ENTRY)
    cache.trim()
    assert [p.name for p in tmp_path.iterdir()] == ["folder.tlxc"]


def test_readers_beside_eviction(tmp_path: Path) -> None:
    entry = Entry({}, {"cubin": b"x" * 5000})
    cache, wrong, done = c.Cache(tmp_path, limit=20_000), [], threading.Event()

    def read() -> None:
        while not done.is_set():
            found = cache.load("1")
            if found is not None and found != entry:
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for i in range(200):
        cache.store(str(i % 9), entry)
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_listing_and_removing(tmp_path: Path) -> None:
    cache = c.Cache(tmp_path)
    cache.store("a", Entry({"name": "k"}, {"cubin": b"1"}, {"target": "sm_90"}))
    (tmp_path / "b.tlxc").write_bytes(b"junk")
    (tmp_path / "readme").write_text("not ours")
    os.utime(tmp_path / "b.tlxc", (1, 1))
    good, bad = cache.entries()
    assert (good.key, bad.key, bad.header, bad.size) == ("a", "b", None, 4)
    assert good.header == e.Header("a", {"target": "sm_90"}, {"name": "k"}, (("cubin", "bytes", 1),))
    assert (cache.is_sound(good), cache.is_sound(bad)) == (True, False)
    assert cache.remove(bad) and cache.remove(bad) and cache.entries() == [good]
    assert (tmp_path / "readme").exists()


def test_what_is_larger_than_the_limit_is_not_stored(tmp_path: Path) -> None:
    c.Cache(tmp_path, limit=0).store(KEY, ENTRY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "size"),
    [("", 1 << 30), ("0", 0), ("4096", 4096), ("512M", 512 << 20), ("2GiB", 2 << 30), ("7kb", 7 << 10)],
)
def test_size_limits(text: str, size: int) -> None:
    assert c.size_limit({"TLXC_CACHE_SIZE": text}) == size


@pytest.mark.parametrize("text", ["much", "1.5G", "-1", "12X", "G"])
def test_wrong_size_limits(text: str) -> None:
    with pytest.raises(c.CacheError) as error:
        c.size_limit({"TLXC_CACHE_SIZE": text})
    assert str(error.value) == (
        f"TLXC_CACHE_SIZE is {text!r}; give a whole number with an optional unit K, M, G or T, as in 512M."
    )


def test_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TLXC_CACHE_DIR", str(tmp_path))
    assert c.default_cache().folder == tmp_path and c.default_cache() is c.default_cache()
    monkeypatch.delenv("TLXC_CACHE_DIR")
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert c.default_folder() == Path.home() / ".cache" / "tlxc"


# -- keys


def signature(constant: object = 1, align: int = 16, warps: int = 4, maxnreg: int | None = None) -> Signature:
    return Signature((("x", Argument(ir.Pointer(ir.float16), align)),), (("BLOCK", constant),), warps, maxnreg)


def key_of(digest: str, signature: Signature, target: Target, assembler: str) -> str | None:
    facts = c.facts(digest, signature, target, assembler)
    return facts and c.key(facts)


def test_a_key_covers_everything_that_decides_the_code() -> None:
    keys = [
        key_of("digest", signature(), H200, "ptxas 12.9"),
        key_of("other", signature(), H200, "ptxas 12.9"),
        key_of("digest", signature(), H200, "ptxas 13.0"),
        key_of("digest", signature(), get_target("sm_100"), "ptxas 12.9"),
        key_of("digest", signature(align=0), H200, "ptxas 12.9"),
        key_of("digest", signature(warps=8), H200, "ptxas 12.9"),
        key_of("digest", signature(maxnreg=64), H200, "ptxas 12.9"),
        key_of("digest", signature(maxnreg=65), H200, "ptxas 12.9"),
        *(
            key_of("digest", signature(constant), H200, "ptxas 12.9")
            for constant in (True, 1.0, "1", None, ir.float16, ir.bfloat16, (1,), (1.0,), 0.0, -0.0, (1, (2, 3)), b"1")
        ),
    ]
    assert len(set(keys)) == len(keys) and None not in keys
    assert keys[0] == key_of("digest", signature(), H200, "ptxas 12.9")


def test_values_without_a_name_across_processes_have_no_key() -> None:
    assert key_of("digest", signature(object()), H200, "") is None
    assert key_of("digest", signature((1, object())), H200, "") is None


def helper(x: object) -> object:
    return x


def test_functions_are_named_by_their_source() -> None:
    assert c.stable_text(helper) == c.stable_text(helper) != c.stable_text(signature)


def test_an_edited_compiler_has_another_stamp(tmp_path: Path) -> None:
    folder = tmp_path / "passes"
    folder.mkdir()
    (folder / "sync.py").write_text("a = 1")
    stamps = [c.stamp.__wrapped__(tmp_path)]
    os.utime(folder / "sync.py", ns=(1, 1))
    stamps.append(c.stamp.__wrapped__(tmp_path))
    (folder / "more.py").write_text("")
    stamps.append(c.stamp.__wrapped__(tmp_path))
    assert len(set(stamps)) == 3
    assert c.stamp(c.PACKAGE) == c.stamp.__wrapped__(c.PACKAGE)
