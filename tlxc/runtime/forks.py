"""fork() beside threads: a child must not inherit a half-done first use, whose locks nobody would ever release.

What compiles, loads or imports runs inside `FIRST_USE`; a fork waits until no thread is inside.  Launches of what is
ready do not enter it.  That CUDA itself does not survive a fork is `cuda.driver`'s to say.
"""

from __future__ import annotations

# They take locks of their own before a fork, in the reverse order of registration.  Threads inside use them, so a fork
# must have waited for those threads by then: both are imported before this module registers itself.
import concurrent.futures.thread  # noqa: F401
import logging  # noqa: F401
import os
import threading
from typing import Any

WAIT_S = 20  # a fork waits no longer: its caller may hold what a thread inside waits for


class _Gate:
    """A context that any number of threads may be in, but not during a fork."""

    def __init__(self) -> None:
        self._own = threading.local()  # `depth`: how often this thread has entered
        self._reset(0)

    def _reset(self, inside: int) -> None:
        self._changed = threading.Condition()
        self._inside, self._forks = inside, 0  # threads inside, forks that wait or run

    def _depth(self) -> int:
        return getattr(self._own, "depth", 0)

    def __enter__(self) -> None:
        depth = self._depth()
        if not depth:
            with self._changed:
                self._changed.wait_for(lambda: not self._forks)
                self._inside += 1
        self._own.depth = depth + 1

    def __exit__(self, *error: Any) -> None:
        self._own.depth -= 1
        if not self._own.depth:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def before_fork(self) -> None:
        self._changed.acquire()
        self._forks += 1
        if not self._depth():
            self._changed.wait_for(lambda: not self._inside, WAIT_S)

    def after_fork_in_parent(self) -> None:
        self._forks -= 1
        self._changed.notify_all()
        self._changed.release()

    def after_fork_in_child(self) -> None:
        self._reset(inside=int(self._depth() > 0))


FIRST_USE = _Gate()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=FIRST_USE.before_fork,
        after_in_parent=FIRST_USE.after_fork_in_parent,
        after_in_child=FIRST_USE.after_fork_in_child,
    )
