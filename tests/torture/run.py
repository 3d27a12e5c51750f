"""Torture of cache and launches: processes and threads launch the same kernels while files are damaged and processes
killed.  No result may be wrong, nothing may crash, nothing may hang.

python tests/torture/run.py [--seconds 60] [--processes 8] [--threads 32] [--seed 0] [--standin | --gpu]

With --standin (default) launches go to a stand-in for the driver's library, built with the C compiler `cc`; with --gpu
to the GPUs of this machine, to two of them where there are so many.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FAULT_S, KILL_S = 0.05, 1.5  # one every so many seconds
GRACE_S = 150  # more than what workers and their children allow themselves


# -- faults: what other programs, crashes and disks do to the folder -------------------------------------------------


def truncate(path: Path) -> None:
    os.truncate(path, random.randrange(path.stat().st_size + 1))


def empty(path: Path) -> None:
    os.truncate(path, 0)


def flip(path: Path) -> None:
    with open(path, "r+b") as file:
        at = random.randrange(path.stat().st_size)
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << random.randrange(8)]))


def delete(path: Path) -> None:
    path.unlink()


def replace_by_junk(path: Path) -> None:
    path.unlink()  # it may be a pipe, which would keep a writer waiting
    path.write_bytes(random.randbytes(random.randrange(1, 5000)))


def replace_by_another(path: Path) -> None:
    """Under its name stands another kernel's entry, itself unharmed."""
    other = random.choice(sorted(path.parent.glob("*.tlxc")))
    if other != path:
        copy = path.with_suffix(".copy")
        shutil.copyfile(other, copy)
        copy.replace(path)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def make_unreadable(path: Path) -> None:
    path.chmod(0)


def move_folder_away(path: Path) -> None:
    away = path.parent.with_name(f"away-{time.monotonic_ns()}")
    path.parent.rename(away)
    shutil.rmtree(away)


FAULTS: tuple[tuple[Callable[[Path], None], int], ...] = (
    (truncate, 4), (empty, 2), (flip, 8), (delete, 8), (replace_by_junk, 2), (replace_by_another, 8),
    (replace_by_folder, 1), (replace_by_pipe, 2), (replace_by_loop, 1), (make_unreadable, 1), (move_folder_away, 1),
)  # fmt: skip


def inject(folder: Path, counts: collections.Counter[str]) -> None:
    """One fault to one entry; a folder that stands in the way of one is cleared."""
    fault = random.choices([fault for fault, _ in FAULTS], [weight for _, weight in FAULTS])[0]
    paths = sorted(folder.glob("*.tlxc"))
    if not paths:
        return
    path = random.choice(paths)
    try:
        if path.is_dir():
            path.rmdir()
        else:
            fault(path)
            counts[fault.__name__] += 1
    except (OSError, ValueError):  # it was deleted or is empty meanwhile
        counts["missed"] += 1


# -- processes ---------------------------------------------------------------------------------------------------------


class Worker:
    """A process and what it leaves."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self.name, self.killed = name, False
        self.log, self.result = folder / f"{name}.log", folder / f"{name}.json"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "worker.py"), *command],
                stdout=log, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        self.killed = True
        os.killpg(self.process.pid, signal.SIGKILL)

    def verdict(self, end: float) -> str:
        """What went wrong, or nothing."""
        try:
            status = self.process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()
            return f"{self.name} hangs"
        if status == 0 or (self.killed and status == -signal.SIGKILL):
            return ""
        return f"{self.name} ended with status {status}"


class Torture:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.cache = folder / "cache"
        self.end = time.monotonic() + options.seconds
        self.workers: list[Worker] = []
        self.faults, self.kills = collections.Counter[str](), 0
        (folder / "file").write_text("")
        self.environment = self._environment()
        # One a kind of worker: what is different from others in its environment, and its options
        self.kinds: tuple[tuple[dict[str, str], list[str]], ...] = (
            ({}, []),
            ({}, ["zygote"]),
            ({"TLXC_CACHE_SIZE": "60K"}, []),
            ({}, ["full-disk"]),
            ({}, []),
            ({"TLXC_CACHE_DIR": "", "HOME": str(folder / "file" / "home")}, []),
            ({"TLXC_CACHE_DIR": str(folder / "file" / "cache")}, ["zygote"]),
            ({"TLXC_CACHE_SIZE": "60K"}, ["full-disk"]),
        )

    def _environment(self) -> dict[str, str]:
        python_path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        environment = {name: text for name, text in os.environ.items() if not name.startswith("XDG_")}
        environment |= {"TLXC_CACHE_DIR": str(self.cache), "PYTHONPATH": python_path, "OPENBLAS_NUM_THREADS": "1"}
        if not self.options.gpu:
            build_standin(self.folder)
            table = subprocess.run(
                [sys.executable, str(HERE / "worker.py"), "table"],
                env={**environment, "TLXC_CACHE_SIZE": "0"}, stdout=subprocess.PIPE, check=True,
            ).stdout  # fmt: skip
            (self.folder / "kernels").write_bytes(table)
            environment["STANDIN_KERNELS"] = str(self.folder / "kernels")
            paths = (str(self.folder), os.environ.get("LD_LIBRARY_PATH", ""))
            environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, paths))
            self.end = time.monotonic() + self.options.seconds
        return environment

    def start(self, slot: int) -> Worker:
        number = len(self.workers)
        name = f"worker-{number}"
        changed, options = self.kinds[slot % len(self.kinds)]
        seconds = max(self.end - time.monotonic(), 0.1)
        command = ["run", str(seconds), str(self.options.threads), str(self.options.seed + number)]
        command += [str(self.folder / f"{name}.json"), *options]
        worker = Worker(name, command, self.environment | changed, self.folder)
        self.workers.append(worker)
        return worker

    def run(self) -> list[str]:
        """What went wrong."""
        running = [self.start(slot) for slot in range(self.options.processes)]
        next_kill = time.monotonic() + KILL_S
        while time.monotonic() < self.end:
            time.sleep(FAULT_S)
            inject(self.cache, self.faults)
            if time.monotonic() > next_kill:
                next_kill = time.monotonic() + random.uniform(0, 2 * KILL_S)
                slot = random.randrange(len(running))
                if running[slot].process.poll() is None:
                    running[slot].kill()
                    self.kills += 1
                    running[slot] = self.start(slot)
        end = time.monotonic() + GRACE_S
        return [
            f"{what}:\n{w.log.read_text(errors='replace')[-4000:]}" for w in self.workers if (what := w.verdict(end))
        ]

    def counts(self) -> dict[str, int]:
        """What the workers that lived to the end did, and what was done to them."""
        total = collections.Counter[str]()
        for worker in self.workers:
            if worker.result.exists():
                done = json.loads(worker.result.read_text())
                total["devices"] = max(total["devices"], done.pop("devices"))
                total.update(done)
        return {"processes": len(self.workers), "killed": self.kills, "faults": sum(self.faults.values()), **total}


def build_standin(folder: Path) -> None:
    command = ["cc", "-std=c11", "-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*command, "-o", str(folder / "libcuda.so.1"), str(HERE / "libcuda.c"), "-ldl"], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--standin", dest="gpu", action="store_false", default=False)
    which.add_argument("--gpu", action="store_true")
    options = parser.parse_args()
    random.seed(options.seed)
    with tempfile.TemporaryDirectory(prefix="tlxc-torture-", ignore_cleanup_errors=True) as name:
        torture = Torture(options, Path(name))
        wrong = torture.run()
        print("\n".join(wrong))
        print(json.dumps(torture.counts() | {"wrong": len(wrong)}))
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
