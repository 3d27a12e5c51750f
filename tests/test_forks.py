"""fork() beside threads that compile, and after CUDA was used."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest

from tlxc.runtime import cuda, forks
from tlxc.runtime.forks import FIRST_USE

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")


def in_child(check: Callable[[], bool]) -> bool:
    """What `check` says in a forked process."""
    child = os.fork()
    if not child:
        os._exit(not check())
    return os.waitpid(child, 0)[1] == 0


def enter() -> bool:
    with FIRST_USE:
        return True


def test_a_fork_waits_for_threads_inside_and_others_wait_for_the_fork() -> None:
    inside, left, entered = threading.Event(), threading.Event(), threading.Event()

    def first_use() -> None:
        with FIRST_USE:
            inside.set()
            time.sleep(0.2)
            with FIRST_USE:  # whoever is inside may go on
                left.set()

    def later() -> None:
        time.sleep(0.1)
        enter()
        entered.set()

    threads = [threading.Thread(target=first_use), threading.Thread(target=later)]
    for thread in threads:
        thread.start()
    inside.wait()
    assert in_child(lambda: left.is_set() and not entered.is_set() and enter())
    for thread in threads:
        thread.join()
    assert entered.is_set() and enter()


def test_a_thread_that_is_inside_may_fork() -> None:
    with FIRST_USE:
        assert in_child(enter)
    assert in_child(enter)


def test_a_fork_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "WAIT_S", 0.1)
    inside, done = threading.Event(), threading.Event()

    def stuck() -> None:
        with FIRST_USE:
            inside.set()
            done.wait()

    thread = threading.Thread(target=stuck)
    thread.start()
    inside.wait()
    assert in_child(enter)
    done.set()
    thread.join()
    assert in_child(enter)


def test_an_error_inside_lets_forks_go_on() -> None:
    with pytest.raises(ZeroDivisionError), FIRST_USE:
        raise ZeroDivisionError
    assert in_child(enter)


def test_a_child_of_a_process_that_used_cuda_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_process", 7)
    with pytest.raises(cuda.ForkError) as error:
        cuda.driver()
    assert str(error.value) == (
        f"Process 7 used CUDA and then forked this process, {os.getpid()}: CUDA does not survive a fork(). Start "
        "worker processes with the 'spawn' method, or fork before the first launch."
    )
    assert error.value.code == "CUDA_ERROR_NOT_INITIALIZED"
