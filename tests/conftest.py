"""Fixtures and rules for all tests: a private cache, and tests marked `gpu` only where a usable device is."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator

# Before NumPy is imported: several workers with several BLAS threads each wait for one another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import settings

# No deadline: the first example of a test pays for imports, and cores are shared. CI draws the same examples each time.
settings.register_profile("tlxc", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tlxc")

_CACHE = "TLXC_CACHE_DIR"
_AGREEMENT = "agreement"


def pytest_configure(config: pytest.Config) -> None:
    """Point the artifact cache at a fresh folder; xdist workers inherit that of the process that started them."""
    if not hasattr(config, "workerinput"):
        os.environ[_CACHE] = tempfile.mkdtemp(prefix="tlxc-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(_CACHE), ignore_errors=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and (reason := _no_device_reason()):
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """End an xdist worker whose CUDA context died, so that only the test that killed it fails; xdist starts another."""
    notes = getattr(sys.modules.get("numeric.agreement"), "NOTES", None)
    if notes:
        item.user_properties += [(_AGREEMENT, (note, n)) for note, n in notes.items()]
        notes.clear()
    report = yield
    on_worker = item.get_closest_marker("gpu") and hasattr(item.config, "workerinput")
    if report.failed and on_worker and (status := _context_error()):
        message = f"{item.nodeid} killed its CUDA context ({status}):\n{call.excinfo and call.excinfo.value}\n"
        os.write(2, message.encode())
        os._exit(1)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many calls were compared between two machines, and how."""
    counts: Counter[str] = Counter()
    for report in (r for reports in terminalreporter.stats.values() for r in reports):
        for name, value in getattr(report, "user_properties", ()):
            if name == _AGREEMENT and report.when == "teardown":
                counts[value[0]] += value[1]
    if counts:
        terminalreporter.section("agreement with the simulator")
        for note, n in counts.most_common():
            terminalreporter.line(f"{n:6} calls {note}")


def _context_error() -> str:
    """The error that the current CUDA context keeps, or an empty string."""
    if "cuda.bindings" not in sys.modules:
        return ""
    from cuda.bindings import driver

    (status,) = driver.cuCtxSynchronize()
    alive = (driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_INVALID_CONTEXT)
    return "" if status in alive else status.name


@functools.cache
def _no_device_reason() -> str:
    """Why tests marked `gpu` cannot run, or an empty string. Opens the driver, so only such tests may ask."""
    from tlxc.targets import TargetError, get_target

    try:
        from cuda.bindings import driver

        (status,) = driver.cuInit(0)
        if status != driver.CUresult.CUDA_SUCCESS:
            return f"the CUDA driver does not start: {status.name}"
        _, count = driver.cuDeviceGetCount()
        if not count:
            return "the CUDA driver finds no device"
        attribute = driver.CUdevice_attribute
        _, major = driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0)
        _, minor = driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0)
        get_target(f"sm_{major}{minor}")
    except (ImportError, RuntimeError) as error:  # no bindings, or bindings without a driver library
        return f"no CUDA driver: {error}".splitlines()[0]
    except TargetError as error:
        return f"device 0 is not supported: {error}"
    return ""
