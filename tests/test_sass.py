"""What the machine does in the main loops of the Hopper GEMM examples, counted in SASS.

A loop is the code from a label to a backward branch to it; the main loop of an instruction is the smallest one around
it.  Only counts are compared: the assembler orders instructions as it likes.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import tlxc
from tlxc import tl, tlx
from tlxc.codegen.nvptx.disassemble import DisassemblerError, disassemble, find_nvdisasm
from tlxc.compiler import compile_kernel
from tlxc.targets import get_target

EXAMPLES = Path(__file__).parent.parent / "examples"
SIZE = 8192
_LABEL = re.compile(r"^(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/ +(?:@!?U?P\w+ +)?([A-Z][\w.]*)(.*?);")
# Register moves: an accumulator has 128 registers, so copies of one would be far more than these.
MOST_MOVES = 8


def _reason() -> str:
    try:
        find_nvdisasm()
    except DisassemblerError as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(_reason()), reason=_reason() or "nvdisasm is there")


@dataclass(frozen=True)
class Loop:
    """Instructions of one loop, as (mnemonic, operands)."""

    code: tuple[tuple[str, str], ...]

    def count(self, *starts: str) -> int:
        return sum(name.startswith(starts) for name, _ in self.code)

    def moves(self) -> int:
        """Copies from a vector register to a vector register."""
        return sum(bool(re.match(r"(IMAD\.)?MOV", name) and re.match(r" R\d", rest)) for name, rest in self.code)

    def products(self) -> Counter[str]:
        return Counter(name.split(".")[1] for name, _ in self.code if name.startswith("HGMMA"))


def parse(sass: str) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """Instructions in order, and for each label the position of the instruction after it."""
    code: list[tuple[str, str]] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        if label := _LABEL.match(line.strip()):
            labels[label[1]] = len(code)
        elif found := _INSTRUCTION.search(line):
            code.append((found[1], found[2]))
    return code, labels


def loops_around(sass: str, instruction: str) -> list[Loop]:
    """The main loops of an instruction, in the order of the code."""
    code, labels = parse(sass)
    back = []
    for at, (name, rest) in enumerate(code):
        target = re.search(r"`\((\.L_x_\d+)\)", rest) if name.startswith("BRA") else None
        if target and labels[target[1]] <= at:
            back.append((labels[target[1]], at + 1))
    found = set()
    for at, (name, _) in enumerate(code):
        around = [(end - start, start, end) for start, end in back if start <= at < end]
        if name.startswith(instruction) and around:
            found.add(min(around)[1:])
    return [Loop(tuple(code[start:end])) for start, end in sorted(found)]


@dataclass(frozen=True)
class Golden:
    """An example as it is launched, and what its loops hold.

    In the one loop that multiplies, which all consumers share: `products` per shape; `arrivals` at mbarriers;
    `barriers` of the task.
    loads: TMA copies in the loop that issues them, which is that of the consumer where there is no producer.
    """

    example: str
    blocks: tuple[tuple[int, int], ...]
    products: dict[str, int]
    loads: int
    arrivals: int = 1
    barriers: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    producer: bool = True

    @property
    def id(self) -> str:
        return "-".join([self.example, *(f"{k}={v}" for k, v in self.options.items() if k != "ctas_per_cga")])

    @functools.cache  # noqa: B019  (a handful of constants of this module)
    def compiled(self) -> Any:
        module = importlib.import_module(self.example)
        shapes = [tlxc.TensorDescriptor(tl.float16, (SIZE, SIZE), (SIZE, 1), block) for block in self.blocks]
        return module.gemm.warmup(*shapes, SIZE, SIZE, SIZE, target="sm_90", **self.options)

    @functools.cache  # noqa: B019
    def sass(self) -> str:
        return disassemble(self.compiled().asm["cubin"])

    def __hash__(self) -> int:
        return hash(self.id)


_WHOLE = ((128, 64), (64, 256), (128, 64))
GOLDEN = [
    Golden("hopper_gemm_ws", ((64, 64), (64, 256), (64, 64)), {"64x256x16": 4}, loads=6, arrivals=2),
    Golden("hopper_gemm_ws", ((64, 64), (64, 128), (64, 64)), {"64x256x16": 4}, loads=6, arrivals=3,
           options={"CTAS": 2, "ctas_per_cga": (2, 1, 1)}),
    Golden("hopper_gemm_fused", ((64, 64), (64, 256), (64, 64)), {"64x256x16": 4}, loads=6),
    Golden("hopper_gemm_fused", ((64, 64), (64, 256), (64, 64)), {"64x256x16": 4}, loads=6,
           options={"A_TRANSPOSED": True}),
    Golden("hopper_gemm_fused", ((64, 64), (256, 64), (64, 64)), {"64x256x16": 4}, loads=3,
           options={"B_TRANSPOSED": True}),
    Golden("hopper_gemm_fused", ((64, 64), (256, 64), (64, 64)), {"64x256x16": 4}, loads=3,
           options={"A_TRANSPOSED": True, "B_TRANSPOSED": True}),
    Golden("hopper_gemm_fused", ((64, 128), (128, 64), (128, 64)), {"64x128x16": 8}, loads=3,
           options={"A_TRANSPOSED": True, "B_TRANSPOSED": True, "BN": 128, "STAGES": 5, "TURNS": True}),
    Golden("hopper_gemm_cooperative", _WHOLE, {"64x256x16": 4}, loads=5, barriers=1),
    Golden("hopper_gemm_pingpong", ((128, 64), (64, 128), (128, 64)), {"64x128x16": 8}, loads=3),
    Golden("hopper_gemm_pipelined", _WHOLE, {"64x256x16": 4}, loads=5, barriers=1, producer=False),
    Golden("hopper_gemm_pipelined", ((128, 64), (64, 128), (128, 64)), {"64x128x16": 8}, loads=3,
           options={"BN": 128, "num_warps": 4}, producer=False),
]  # fmt: skip


# As their annotations declare: products in the main loop, copies in that of the producer.
DECLARED = {
    "hopper_gemm_batched": ({"64x256x16": 4}, 6, 2),
    "hopper_gemm_splitk": ({"64x128x16": 4}, 4, 1),
    "hopper_gemm_streamk": ({"64x256x16": 4}, 6, 1),
}


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name in ("_support", "_gemm"):
        if name in sys.modules and Path(str(sys.modules[name].__file__)).parent != EXAMPLES:
            monkeypatch.delitem(sys.modules, name)


each = pytest.mark.parametrize("golden", [pytest.param(g, id=g.id) for g in GOLDEN])


@each
def test_the_assembler_has_no_complaint(golden: Golden) -> None:
    """C75xx notes say that wgmma was serialised; a spill would show as STL and LDL."""
    made = golden.compiled()
    assert not made.notes and made.spill_bytes == 0
    assert not re.search(r"\b(STL|LDL)\b", golden.sass())


@each
def test_main_loop_of_the_products(golden: Golden) -> None:
    (loop,) = loops_around(golden.sass(), "HGMMA")
    assert loop.products() == golden.products
    assert loop.count("WARPGROUP.DEPBAR") == 1
    assert loop.count("SYNCS.PHASECHK") == 1
    assert loop.count("SYNCS.ARRIVE") == golden.arrivals
    assert loop.count("BAR.") == golden.barriers
    assert loop.moves() <= MOST_MOVES
    assert loop.count("LDS", "STS", "LDG", "STG", "MEMBAR", "FENCE", "SHFL") == 0
    if golden.producer:
        assert loop.count("R2UR") <= MOST_MOVES and loop.count("VOTE", "ELECT", "UTMA") == 0


@each
def test_main_loop_of_the_copies(golden: Golden) -> None:
    (loop,) = loops_around(golden.sass(), "UTMALDG")
    assert loop.count("UTMALDG") == golden.loads
    assert loop.count("SYNCS.ARRIVE") == 1 and loop.count("SYNCS.PHASECHK") == 1
    if golden.producer:
        assert loop.count("HGMMA", "BAR.", "WARPSYNC") == 0


@pytest.mark.parametrize("name", DECLARED)
def test_main_loops_of_other_products(name: str) -> None:
    """No task meets in the main loops, and nothing but products and copies touches memory there."""
    products, copies, arrivals = DECLARED[name]
    kernel = importlib.import_module(name).gemm
    sass = disassemble(compile_kernel(kernel.__tlxc_source__, kernel.signature(), get_target("sm_90")).asm["cubin"])
    (consumer,), (producer,) = loops_around(sass, "HGMMA"), loops_around(sass, "UTMALDG")
    assert consumer.products() == products and producer.count("UTMALDG") == copies
    assert consumer.count("SYNCS.ARRIVE") == arrivals and consumer.count("SYNCS.PHASECHK") == 1
    assert consumer.moves() <= MOST_MOVES and consumer.count("R2UR") <= MOST_MOVES
    for loop in (consumer, producer):
        assert loop.count("BAR.", "LDS", "STS", "LDG", "STG", "MEMBAR", "FENCE", "SHFL", "VOTE") == 0


def test_the_producer_does_not_ask_which_lanes_are_there() -> None:
    """One thread issues the copies of a task; code that the assembler does not see to be uniform becomes a loop of
    votes around each of them."""
    (loop,) = loops_around(GOLDEN[0].sass(), "UTMALDG")
    assert loop.count("VOTE") == 0


def test_registers_are_moved_from_the_producer_to_the_consumers() -> None:
    for golden in (g for g in GOLDEN if g.producer):
        code, _ = parse(golden.sass())
        counts = Counter(name for name, _ in code if name.startswith("USETMAXREG"))
        assert counts["USETMAXREG.DEALLOC.CTAPOOL"] == 1 and counts["USETMAXREG.TRY_ALLOC.CTAPOOL"] >= 1


# (activation, instructions per element of C beyond those of a bare epilogue, of them for the special function unit)
EPILOGUES = [("relu", 1.2, 0), ("silu", 11, 1), ("gelu", 15, 0), ("gelu_tanh", 15, 1)]


@pytest.mark.parametrize(("activation", "most", "special"), EPILOGUES)
def test_an_epilogue_leaves_the_main_loop_alone(activation: str, most: float, special: int) -> None:
    """Bias and residual are read after it, in words; nothing spills, and activations have no division or branch."""
    module = importlib.import_module("hopper_gemm_fused")
    a, b, c = (tlxc.TensorDescriptor(tl.float16, (SIZE, SIZE), (SIZE, 1), x) for x in ((64, 64), (64, 256), (64, 64)))
    bias = tlxc.TensorDescriptor(tl.float16, (SIZE,), (1,), (256,))
    options = {"bias_desc": bias, "residual_desc": c, "STAGES": 3, "target": "sm_90"}
    made, plain = (module.gemm.warmup(a, b, c, SIZE, SIZE, SIZE, ACTIVATION=x, **options) for x in (activation, ""))
    sass, bare = (disassemble(x.asm["cubin"]) for x in (made, plain))
    assert not made.notes and made.spill_bytes == 0 and not re.search(r"\b(STL|LDL)\b", sass)
    (loop,) = loops_around(sass, "HGMMA")
    assert loop.products() == {"64x256x16": 4} and loop.count("WARPGROUP.DEPBAR") == 1
    assert loop.moves() <= MOST_MOVES and loop.count("LDS", "STS", "LDG", "STG", "MEMBAR", "FENCE", "SHFL", "R2UR") == 0
    (code, _), (rest, _) = parse(sass), parse(bare)
    assert len(code) - len(rest) <= most * 128  # elements of a thread
    counts = [sum(name.startswith("MUFU") for name, _ in found) for found in (code, rest)]
    assert counts[0] - counts[1] == special * 128 and not any(name.startswith("CALL") for name, _ in code)


@tlxc.kernel
def grouped(x, out, rows, groups, columns):
    """A descriptor per group, and many blocks by each."""
    slots = tlx.allocate_tensor_descriptor(2)
    first = 0
    for g in range(groups):
        height = tl.load(rows + g)
        source = tlx.make_tensor_descriptor(slots[0], x + first * columns, [height, columns], [columns, 1], [64, 64])
        target = tlx.make_tensor_descriptor(slots[1], out + first * columns, [height, columns], [columns, 1], [64, 64])
        for i in range(0, height, 64):
            target.store([i, 0], source.load([i, 0]))
        first += height


def test_a_map_is_written_and_acquired_outside_of_the_loop_that_copies_by_it() -> None:
    """An acquire drops the map from the descriptor cache, so none may stand beside a copy."""
    made = grouped.warmup(tl.float16, tl.float16, tl.int32, 8, 512, target="sm_90")
    sass = disassemble(made.asm["cubin"])
    (loop,) = loops_around(sass, "UTMALDG")
    assert loop.count("UTMALDG", "UTMASTG") == 2 and loop.count("UTMACCTL", "ATOMG") == 0
    code, _ = parse(sass)
    counts = Counter(name for name, _ in code)
    assert counts["UTMACCTL.IV"] == 2 and not made.spill_bytes


# ------------------------------------------------------------------------------------------------------------ attention
# (example, options, products of a block, per block: accesses to the special function unit, most instructions)
ATTENTION: list[tuple[str, dict[str, Any], dict[str, int], int, int]] = [
    ("hopper_attention_ws", {}, {"64x128x16": 16}, 66, 480),
    ("hopper_attention_pipelined", {}, {"64x128x16": 16}, 66, 485),
    ("hopper_attention_pipelined", {"TURNS": True}, {"64x128x16": 16}, 66, 495),
    (
        "hopper_attention_pipelined",
        {"CONSUMERS": 3, "BN": 80, "REGISTERS": 160},
        {"64x80x16": 8, "64x128x16": 5},
        42,
        370,
    ),
    (
        "hopper_attention_pipelined",
        {"D": 64, "CONSUMERS": 4, "BN": 64, "REGISTERS": 112},
        {"64x64x16": 8},
        34,
        285,
    ),
    ("hopper_attention_guarded", {"BN": 80}, {"64x80x16": 8, "64x128x16": 5}, 42, 400),
    (
        "hopper_attention_guarded",
        {"D": 64, "CONSUMERS": 4, "BN": 64, "REGISTERS": 112},
        {"64x64x16": 8},
        34,
        310,
    ),
    ("hopper_attention_persistent", {"BN": 80}, {"64x80x16": 8, "64x128x16": 5}, 42, 405),
    (
        "hopper_attention_persistent",
        {"D": 64, "CONSUMERS": 3, "BN": 128, "REGISTERS": 160, "CAUSAL": True},
        {"64x128x16": 4, "64x64x16": 8},
        66,
        480,
    ),
    (
        "hopper_attention_guarded",
        {"D": 256, "CONSUMERS": 2, "BN": 80, "REGISTERS": 240},
        {"64x80x16": 16, "64x256x16": 5},
        42,
        530,
    ),
    (
        "hopper_attention_persistent",
        {"D": 256, "CONSUMERS": 2, "BN": 64, "REGISTERS": 240},
        {"64x64x16": 16, "64x256x16": 4},
        34,
        470,
    ),
]


@pytest.mark.parametrize(("example", "options", "products", "special", "most"), ATTENTION, ids=str)
def test_main_loop_of_attention(
    example: str, options: dict[str, Any], products: dict[str, int], special: int, most: int
) -> None:
    """P goes from one product to the next without a shuffle or a move; only the maxima of rows cross lanes."""
    d, bn = options.get("D", 128), options.get("BN", 128)
    width = d // 2 if d > 128 and example == "hopper_attention_persistent" else d  # of O
    blocks = [
        tlxc.TensorDescriptor(tl.float16, (32, SIZE, d), (SIZE * d, d, 1), (1, rows, columns))
        for rows, columns in ((64, d), (bn, d), (bn, d), (64, width))
    ]
    taken = (tl.int32, 1376, 8) if example == "hopper_attention_persistent" else ()
    kernel = importlib.import_module(example).attention
    made = kernel.warmup(*blocks, tl.float32, *taken, SIZE, 0.1, target="sm_90", **options)
    sass = disassemble(made.asm["cubin"])
    assert not made.notes and made.spill_bytes == 0 and not re.search(r"\b(STL|LDL)\b", sass)
    loop = min(loops_around(sass, "MUFU.EX2"), key=lambda found: len(found.code))
    assert loop.products() == products
    assert loop.count("MUFU.EX2") == special and loop.count("F2FP") == bn // 4
    assert loop.count("SHFL") == 4 and loop.moves() <= MOST_MOVES and len(loop.code) <= most
    if "guarded" in example or taken:  # maxima stand in a branch; before it, those of bits, three at once
        assert loop.count("WARPGROUP.ARRIVE") == 1 and loop.count("VOTE") == 1 and loop.count("VIMNMX3") >= bn // 4 - 2
    assert (
        loop.count("WARPGROUP.DEPBAR") == 2 and loop.count("R2UR", "LDS", "STS", "LDG", "STG", "MEMBAR", "FENCE") == 0
    )
