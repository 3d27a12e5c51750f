"""scripts/litmus.py and scripts/faults.py without a card: what simulator and emulator say is what docs/memory_model.md
says, every kernel assembles, and results get into the page."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"
# The simulator is weaker than the manual in the first, and sees no replacement in PTX in the second.
APART = {
    "read, async write, no fence": "clean",
    "write to a peer, fence of all spaces by the writer": "missing-proxy-fence",
}
UNSEEN = {  # by the emulator: it has no scopes, and see docs/memory_model.md
    "remote store, remote arrive without release.cluster", "st.async, wgmma, no fence",
    "write to a peer, fence .shared::cta by the writer", "read, async write, no fence",
}  # fmt: skip


def script(name: str) -> Any:
    if str(SCRIPTS) not in sys.path:
        sys.path.append(str(SCRIPTS))
    return importlib.import_module(name)


def test_litmus() -> None:
    litmus = script("litmus")
    assert {test.question for test in (*litmus.LITMUS, *litmus.litmus_ptx.RAW)} == set(range(1, 11))
    for test in litmus.LITMUS:
        record = litmus.examine(test)
        ordered = test.manual in ("ordered", "silent")
        wanted = APART.get(test.name, "clean" if ordered else "")
        assert record["simulator"].startswith(wanted) and (wanted or record["simulator"] != "clean"), record
        assert (record["emulator"] == "clean") == (ordered or test.name in UNSEEN), record


def test_everything_assembles() -> None:
    litmus, faults = script("litmus"), script("faults")
    assert all(litmus.assembled(test) > 1000 for test in (*litmus.LITMUS, *litmus.litmus_ptx.RAW))
    assert all(faults.assemble(fault)["cubin"] > 1000 for fault in faults.FAULTS)


def test_faults() -> None:
    faults = script("faults")
    kinds = [fault.kind for fault in faults.FAULTS]
    assert kinds.count("missing fence") >= 2 and kinds.count("wrong phase") >= 1 and kinds.count("deadlock") >= 2
    for fault in faults.FAULTS:
        record = faults.examine(fault)
        assert " at line" in record["simulator"], record
        assert record["emulator"] != "clean" or fault.mutant == "no release", record


def test_bytes_that_come_early() -> None:
    """What the words of the kernels in PTX mean."""
    ptx = script("litmus_ptx")
    import numpy as np

    assert len(ptx.TESTS) == sum(step == "test" for step, _ in ptx.STEPS)
    right = np.array([count for step, count in ptx.STEPS if step == "test"])
    assert ptx.said_of_bytes(right) == "all 7 tests so"
    assert ptx.said_of_bytes(1 - right).count(";") == 6
    assert ptx.said_beyond(np.array([0, 1])) == "one byte more is counted"
    assert ptx.said_of_renewal(np.array([3, 4])) == "the late waiter saw phase 0 complete in 3 of 7 rounds"


def test_a_table_goes_into_a_page(tmp_path: Path) -> None:
    machines = script("_machines")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- x -->\nold\n<!-- end of x -->\nafter\n")
    for _ in range(2):
        machines.put_table(page, "x", [["a", "b"], ["1|2", "3"]])
        assert page.read_text() == (
            "before\n<!-- x -->\n\n| a | b |\n|---|---|\n| 1\\|2 | 3 |\n\n<!-- end of x -->\nafter\n"
        )


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"runs": 5, "places": 50}, "right values in 5 runs (50 places)"),
        ({"runs": 5, "places": 50, "wrong": 3, "wrong_runs": 2}, "wrong values in 2 of 5 runs (3 of 50 places)"),
        ({"runs": 1, "error": "launch failed", "trap": "kernel k waited"}, "trap in launch 1: kernel k waited"),
        ({"runs": 2, "error": "illegal address"}, "error in launch 2: illegal address"),
    ],
)
def test_what_the_card_did_in_words(fields: dict[str, Any], text: str) -> None:
    assert str(script("_machines").Seen(**fields)) == text
