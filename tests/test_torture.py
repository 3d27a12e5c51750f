"""The torture test, `tests/torture/run.py`, for a short time: see there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parent / "torture" / "run.py"


def torture(*options: str, **environment: str) -> dict[str, int]:
    """What was done, after a run in which nothing went wrong."""
    done = subprocess.run(
        [sys.executable, str(RUN), *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    counts: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    assert counts["launch"] > 0 and counts["faults"] > 0 and counts["killed"] > 0
    return counts


@pytest.mark.skipif(sys.platform != "linux", reason="the stand-in driver is an ELF library")
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler `cc` to build the stand-in driver with")
def test_on_a_stand_in_driver() -> None:
    assert torture("--seconds", "10")["devices"] == 2


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    assert torture("--gpu", "--seconds", "30", CUDA_VISIBLE_DEVICES=first)["devices"] == 1


@pytest.mark.gpu
def test_on_two_gpus() -> None:
    from tlxc.runtime import cuda

    if cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    assert torture("--gpu", "--seconds", "30")["devices"] == 2
