"""A pool of worker processes: work in parallel, and apart from a process that it must not end.

A worker is a fresh interpreter, never a fork, so no lock or driver of its parent is in it and the user's `__main__` is
not run again.  Tasks come on its standard input and results leave on its standard output, each as a length (8 bytes,
little-endian) and a pickle; both ends are this package.  What a task prints goes to standard error, which is kept for
the case that the worker dies.  A worker ends when its input does, so none outlives the process that started it.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, TypeVar

from tlxc.errors import InternalError, TlxcError

T = TypeVar("T")

LIMIT_S = 300  # a task that takes longer is taken for one that hangs
_MAIN = "import sys; sys.path[:] = sys.argv[1:]; from tlxc.runtime.pool import serve; serve()"
_CLOSED = "The pool of worker processes was left before this task was done."
_SHOWN = 2000  # characters of what a worker printed last


class WorkerDied(TlxcError):
    """A worker ended in the middle of a task.  `how`: "by SIGSEGV", say; `output`: what it printed last."""

    def __init__(self, how: str, output: str) -> None:
        super().__init__(f"A worker process ended {how}." + (f" It printed:\n{output}" if output else ""))
        self.how, self.output = how, output


class PoolClosed(TlxcError):
    """A task was given up because its pool was left."""


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pool:
    """At most `workers` processes (default: one a core), started as tasks come.  Threads share a pool; leaving the
    `with` block ends its processes, those that are at work too."""

    def __init__(self, workers: int | None = None, limit_s: float = LIMIT_S) -> None:
        self.workers, self.limit_s = workers or usable_cores(), limit_s
        self._places = threading.Semaphore(self.workers)
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._closed = False

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._closed = True
            for worker in self._busy:  # the thread that waits for it tidies up
                worker.kill()
            for worker in self._idle:
                worker.end()

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """`function(*arguments)`, done by a worker; the function is found there by its module and name.

        Raises the task's own error where that is a `TlxcError`, an `InternalError` with the traceback for any other,
        and `WorkerDied` where the task ended its process or took longer than the limit.  The next task gets another
        process then.  `PoolClosed`: another thread left the `with` block meanwhile.
        """
        with self._places:
            worker = self._take()
            reply = None
            try:
                reply = worker.ask((function, arguments), self.limit_s)
            except WorkerDied:
                if self._closed:
                    raise PoolClosed(_CLOSED) from None
                raise
            finally:
                self._put_back(worker, usable=reply is not None)
        if isinstance(reply, TlxcError):
            raise reply
        return reply[0]

    def _take(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise PoolClosed(_CLOSED)
            worker = self._idle.pop() if self._idle else _Worker()
            self._busy.add(worker)
            return worker

    def _put_back(self, worker: _Worker, usable: bool) -> None:
        with self._lock:
            self._busy.discard(worker)
            if usable and not self._closed:
                self._idle.append(worker)
                return
        worker.end()


class _Worker:
    """One process, and the pipes to it."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the worker is)
        command = [sys.executable, "-c", _MAIN, *sys.path]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._log)
        self._late = False

    def ask(self, task: Any, limit_s: float) -> Any:
        """The reply: a `TlxcError`, or a tuple of the one result."""
        watch = threading.Timer(limit_s, self._give_up)
        watch.start()
        try:
            assert self._process.stdin is not None and self._process.stdout is not None
            _write(self._process.stdin, task)
            return _read(self._process.stdout)
        except (EOFError, OSError):
            raise WorkerDied(self._how(limit_s), self._printed()) from None
        finally:
            watch.cancel()

    def _give_up(self) -> None:
        self._late = True
        self._process.kill()

    def _how(self, limit_s: float) -> str:
        status = self._process.wait()
        if self._late:
            return f"after the {limit_s:g} s that a task may take"
        if status < 0:
            with suppress(ValueError):
                return f"by {signal.Signals(-status).name}"
        return f"with status {status}"

    def _printed(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace").strip()[-_SHOWN:]

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            with suppress(OSError):  # what was not written yet has no reader
                if stream is not None:
                    stream.close()


def serve() -> None:
    """What a worker does until its input ends.  Interrupts from the terminal are its parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tasks, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(EOFError):
        while True:
            _write(replies, _done(*_read(tasks)))


def _done(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return (function(*arguments),)
    except TlxcError as error:
        return error
    except Exception:
        return InternalError(f"A worker process failed:\n{traceback.format_exc()}")


def _write(stream: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def _read(stream: IO[bytes]) -> Any:
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    data = stream.read(size := int.from_bytes(head, "little"))
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)
