"""Litmus kernels that the language refuses, in PTX: counts of bytes out of order, and barriers that are made anew.

Each writes words to `out`; `said` tells what they mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MOST = (1 << 20) - 1  # PTX ISA, "Contents of the mbarrier object"
_INIT = "mbarrier.init.shared::cta.b64 [bar], {};"
_INVAL = "mbarrier.inval.shared::cta.b64 [bar];"
_EXPECT = "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], {};"
_COMPLETE = "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], {};"
_ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [bar];"
_TEST = "mbarrier.test_wait.parity.shared::cta.b64 p, [bar], 0; selp.u32 word, 1, 0, p; st.global.u32 [out + {}], word;"
# In order: (step, count), where "test" asks whether phase 0 is complete, and "new" makes the barrier anew.
STEPS: tuple[tuple[str, int], ...] = (
    ("expect", MOST), ("arrive", 0), ("test", 0), ("complete", MOST), ("test", 1), ("new", 1),
    ("complete", 4096), ("test", 0), ("expect", 4096), ("arrive", 0), ("test", 1), ("new", 1),
    ("complete", MOST), ("expect", MOST), ("arrive", 0), ("test", 1), ("new", 1),
    ("complete", 4096), ("arrive", 0), ("test", 0), ("expect", 4096), ("test", 1),
)  # fmt: skip
BEYOND = (("expect", MOST), ("expect", 1), ("arrive", 0), ("test", 0), ("complete", MOST), ("complete", 1), ("test", 1))
TESTS = (
    "the most bytes, announced: not complete", "and delivered: complete",
    "4096 bytes before they are announced: not complete", "then announced, then the arrival: complete",
    "the most bytes before they are announced, then both: complete",
    "4096 bytes and all arrivals before the announcement: not complete", "then announced: complete",
)  # fmt: skip

_HEAD = """\
.version 8.6
.target sm_90a
.address_size 64
.visible .entry {name}(.param .u64 result, .param .u32 rounds) {{
  .reg .pred p, q; .reg .b32 word, bar, tid, i, n, delay, seed, lost; .reg .b64 out, at; .reg .b64 now;
  .shared .align 8 .b64 object;
  mov.u32 bar, object; mov.u32 tid, %tid.x; ld.param.u64 out, [result]; cvta.to.global.u64 out, out;
  ld.param.u32 n, [rounds];
{body}
  ret;
}}
"""


def bytes_kernel(steps: tuple[tuple[str, int], ...]) -> str:
    """One thread goes through the steps; word i is the i-th test."""
    lines, tests = ["setp.ne.u32 q, tid, 0; @q bra END;", _INIT.format(1)], 0
    for step, count in steps:
        if step == "test":
            lines.append(_TEST.format(4 * tests))
            tests += 1
        elif step == "new":
            lines += [_INVAL, _INIT.format(count)]
        else:
            lines.append({"expect": _EXPECT, "complete": _COMPLETE, "arrive": _ARRIVE}[step].format(count))
    return _HEAD.format(name="bytes", body="\n".join([*lines, "END:"]))


def renewed_kernel(ordered: bool) -> str:
    """Warp 0 completes phase 0, makes the barrier anew and completes nothing; warp 1 comes after a pause and tests 64
    times for phase 0.  `ordered`: warp 0 waits for warp 1 before.  Word 0 counts the tests that passed, word 1 the
    rounds in which none did."""
    wait = "barrier.sync 2, 64;"
    body = f"""
  mad.lo.u32 seed, tid, 7919, 12345; mov.u32 i, 0;
ROUND:
  setp.ge.u32 p, i, n; @p bra END;
  setp.ne.u32 q, tid, 0;
  @!q {_INIT.format(1)}
  barrier.sync 1, 64;
  setp.ge.u32 q, tid, 32; @q bra LATE;
  setp.ne.u32 q, tid, 0;
  @!q {_ARRIVE}
  {wait if ordered else ""}
  @!q {_INVAL}
  @!q {_INIT.format(1)}
  bra JOIN;
LATE:
  mad.lo.u32 seed, i, 1103515245, 12345; shr.u32 delay, seed, 16; and.b32 delay, delay, 255;
PAUSE:
  setp.eq.u32 p, delay, 0; @p bra ASK; sub.u32 delay, delay, 1; mov.u64 now, %clock64; bra PAUSE;
ASK:
  mov.u32 lost, 64;
TRY:
  mbarrier.test_wait.parity.shared::cta.b64 p, [bar], 0; @p bra PASSED;
  sub.u32 lost, lost, 1; setp.ne.u32 p, lost, 0; @p bra TRY;
PASSED:
  {wait if ordered else ""}
  setp.ne.u32 q, tid, 32; setp.eq.u32 p, lost, 0; selp.u64 at, 4, 0, p; add.u64 at, at, out;
  @!q red.global.add.u32 [at], 1;
JOIN:
  barrier.sync 1, 64;
  setp.ne.u32 q, tid, 0;
  @!q {_INVAL}
  add.u32 i, i, 1; bra ROUND;
END:"""
    return _HEAD.format(name="renewed", body=body)


@dataclass(frozen=True)
class Raw:
    """`text`: PTX of the kernel `kernel`, launched as one CTA of `threads`."""

    name: str
    question: int
    kernel: str
    text: str
    threads: int
    manual: str
    said: Callable[[Array], str]


def said_of_bytes(words: Array) -> str:
    wanted = [count for step, count in STEPS if step == "test"]
    wrong = [text for text, word, want in zip(TESTS, words.tolist(), wanted) if word != want]
    return f"not so: {'; '.join(wrong)}" if wrong else f"all {len(TESTS)} tests so"


def said_beyond(words: Array) -> str:
    wanted = [count for step, count in BEYOND if step == "test"]
    return "one byte more is counted" if words[: len(wanted)].tolist() == wanted else "one byte more is lost"


def said_of_renewal(words: Array) -> str:
    passed, lost = words[:2].tolist()
    return f"the late waiter saw phase 0 complete in {passed} of {passed + lost} rounds"


RAW = (
    Raw("bytes out of order and at the limits", 7, "bytes", bytes_kernel(STEPS), 32,
        "counts from -(2^20-1) to 2^20-1 are valid", said_of_bytes),
    Raw("one byte beyond the limit", 7, "bytes", bytes_kernel(BEYOND), 32, "undefined", said_beyond),
    Raw("a barrier made anew after its waiter", 9, "renewed", renewed_kernel(True), 64, "phase 0 in every round",
        said_of_renewal),
    Raw("a barrier made anew before its waiter", 9, "renewed", renewed_kernel(False), 64,
        "undefined: the waiter may miss phase 0", said_of_renewal),
)  # fmt: skip


def assembled(raw: Raw) -> bytes:
    from tlxc.codegen.nvptx.assemble import assemble

    return assemble(raw.text, "sm_90a").cubin


def on_card(raw: Raw, rounds: int) -> str:
    """Launches on device 0 and says what the words mean."""
    import torch

    from tlxc.runtime import cuda
    from tlxc.runtime.launcher import INTEGER, Ready

    out = torch.zeros(64, dtype=torch.int32, device="cuda")
    function = cuda.load(assembled(raw), raw.kernel, cuda.device(0))
    launch = Ready(function, raw.threads, 0, bytes((INTEGER, INTEGER))).launcher()
    status = launch((1, 1, 1), torch.cuda.current_stream().cuda_stream, out.data_ptr(), rounds)
    if status:
        return f"the launch failed with status {status}"
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:  # the kernel ended in a fault
        return str(error).splitlines()[0]
    return raw.said(out.cpu().numpy())
