"""The pipeline: the passes in order, dumps, timings, and the product of a compilation.

`PASSES` is the whole order; `BEFORE` states what it must respect, each pair with its reason, and is checked at import.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlxc.collector import no_collections
from tlxc.errors import CompileError, TlxcError
from tlxc.frontend.signature import Signature
from tlxc.ir.core import Module, Param
from tlxc.ir.printer import print_module
from tlxc.ir.types import Descriptor
from tlxc.ir.verifier import verify
from tlxc.passes.addresses import widen_addresses
from tlxc.passes.alias import place_aliases
from tlxc.passes.atomics import publish_atomics
from tlxc.passes.axis import analyse
from tlxc.passes.branches import check_branches, check_parts_of_warps
from tlxc.passes.buffers import assign_buffers
from tlxc.passes.copies import merge_copies
from tlxc.passes.dead_code import drop_breakpoints
from tlxc.passes.dots import select_dots
from tlxc.passes.hazards import verify_hazards
from tlxc.passes.layouts import assign_layouts
from tlxc.passes.memory_plan import plan_memory
from tlxc.passes.pending import check_pending
from tlxc.passes.protocol import insert_protocol
from tlxc.passes.release import release_remote_stores
from tlxc.passes.scalar_memory import tile_scalar_accesses
from tlxc.passes.shared import stage_shared
from tlxc.passes.simplify import simplify
from tlxc.passes.spins import refuse_spins
from tlxc.passes.sync import insert_barriers
from tlxc.passes.tasks import place_tasks
from tlxc.targets import Target, get_target

if TYPE_CHECKING:
    from tlxc.codegen.notes import Note
    from tlxc.codegen.nvptx.assemble import Assembler
    from tlxc.frontend.source import Source

Pass = Callable[[Module, Target], None]

PASSES: tuple[tuple[str, Pass], ...] = (
    ("breakpoints", drop_breakpoints),
    ("spins", refuse_spins),
    ("branches", check_branches),
    ("copies", merge_copies),
    ("alias", place_aliases),
    ("simplify", simplify),
    ("addresses", widen_addresses),
    ("tidy", simplify),
    ("scalars", tile_scalar_accesses),
    ("tasks", place_tasks),
    ("protocol", insert_protocol),
    ("release", release_remote_stores),
    ("dots", select_dots),
    ("buffers", assign_buffers),
    ("pending", check_pending),
    ("layouts", assign_layouts),
    ("warps", check_parts_of_warps),
    ("atomics", publish_atomics),
    ("shared", stage_shared),
    ("memory", plan_memory),
    ("sync", insert_barriers),
    ("hazards", lambda module, target: verify_hazards(module)),
)

# (earlier, later): why
BEFORE: dict[tuple[str, str], str] = {
    ("breakpoints", "copies"): "copies that differ only in what a breakpoint shows are one",
    ("breakpoints", "simplify"): "what a breakpoint alone needs is dead",
    ("spins", "simplify"): "a loop that only reads would be gone",
    ("branches", "simplify"): "what stands in a branch may move out of it",
    ("layouts", "warps"): "only layouts tell which elements a warp holds",
    ("warps", "shared"): "a conversion in a branch must not become a trip through shared memory",
    ("copies", "simplify"): "a constant of 0 or 1 would be folded in one copy and not in the other",
    ("alias", "simplify"): "a buffer that nobody uses still has its place in a storage",
    ("alias", "memory"): "allocations of one storage are placed as one",
    ("simplify", "addresses"): "constants must be folded for address ranges to be known",
    ("addresses", "layouts"): "an address computed per lane is index arithmetic that layouts rematerialise",
    ("scalars", "layouts"): "one thread of a tile of one element performs a scalar store",
    ("layouts", "atomics"): "only layouts tell who holds copies of an atomic's result",
    ("atomics", "memory"): "it makes buffers",
    ("scalars", "tasks"): "what the default task publishes of a scalar access is the sum that it made",
    ("tasks", "protocol"): "the protocol is of all warps, around every task",
    ("protocol", "release"): "its cluster barriers cover stores",
    ("tasks", "dots"): "instructions are chosen for the warps of a task",
    ("tasks", "layouts"): "layouts are over the warps of a task",
    ("protocol", "memory"): "a barrier has its place from the kernel's start to its end",
    ("dots", "pending"): "a dot that wgmma computes waits for all groups before it",
    ("buffers", "layouts"): "accesses to buffers are priced by the layout of the buffer",
    ("pending", "layouts"): "an accumulator under way is never converted",
    ("dots", "layouts"): "the fragments of a dot are the anchors of layout assignment",
    ("layouts", "shared"): "only layouts tell which conversions and reductions cross warps",
    ("shared", "memory"): "every buffer must exist before offsets are planned",
    ("memory", "sync"): "two buffers conflict where their bytes overlap",
    ("sync", "hazards"): "the verifier checks what was inserted",
}
_ORDER = [name for name, _ in PASSES]
for _earlier, _later in BEFORE:
    assert _ORDER.index(_earlier) < _ORDER.index(_later), (_earlier, _later)

FIRST_WITH_LAYOUTS = "layouts"


@dataclass(frozen=True)
class Compiled:
    """What a compilation makes.  `asm`: "tlxir", "llvm", then "ptx" and "cubin", or "amdgcn" and "hsaco".

    `metadata` is JSON-able: name, target, threads, shared memory, parameters, registers, spills, assembler, timings.
    """

    name: str
    target: str
    asm: dict[str, str | bytes]
    metadata: dict[str, Any]

    @property
    def registers(self) -> int | None:
        return self.metadata.get("registers")

    @property
    def shared(self) -> int:
        return self.metadata["shared"]

    @property
    def binary(self) -> bytes:
        """The cubin or hsaco."""
        blob = self.asm.get("cubin", self.asm.get("hsaco"))
        assert isinstance(blob, bytes)
        return blob


@dataclass
class Timings:
    """Milliseconds per stage, in the order they ran."""

    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stages[name] = self.stages.get(name, 0.0) + 1e3 * (time.perf_counter() - start)

    def add_seconds(self, parts: dict[str, float]) -> None:
        for name, seconds in parts.items():
            self.stages[name] = self.stages.get(name, 0.0) + 1e3 * seconds


def build(source: Source, signature: Signature, target: Target) -> Module:
    """Frontend only: the module before any pass."""
    from tlxc.frontend.visitor import build as visit

    return visit(source, signature, target)


def run_passes(
    module: Module,
    target: Target,
    timings: Timings | None = None,
    until: str | None = None,
    check: bool = False,
    without: Collection[str] = (),
) -> Module:
    """Runs the passes up to and including `until`, but for those `without`.  `check` verifies the module after each.

    `TLXC_DUMP` (a regular expression over pass names, `frontend` among them) prints the module to stderr.
    """
    timings = timings or Timings()
    dump = _dumped()
    _dump(dump, "frontend", module)
    layouts = False
    for name, run in PASSES:
        if until == "frontend":
            break
        if name in without:
            continue
        with timings.stage(name):
            run(module, target)
        layouts |= name == FIRST_WITH_LAYOUTS
        if check:
            verify(module, layouts)
        _dump(dump, name, module)
        if name == until:
            break
    return module


def _dumped() -> frozenset[str]:
    """The passes that `TLXC_DUMP` names."""
    pattern = os.environ.get("TLXC_DUMP")
    if not pattern:
        return frozenset()
    try:
        found = frozenset(name for name in ("frontend", *_ORDER) if re.fullmatch(pattern, name))
    except re.error as error:
        raise TlxcError(f"TLXC_DUMP is {pattern!r}, which is not a regular expression: {error}.") from None
    if not found:
        raise TlxcError(f"TLXC_DUMP is {pattern!r}, which matches no pass; there are frontend, {', '.join(_ORDER)}.")
    return found


def _dump(dumped: frozenset[str], name: str, module: Module) -> None:
    if name in dumped:
        print(f"// ---- after {name}\n{print_module(module)}", file=sys.stderr)


def compile_kernel(source: Source, signature: Signature, target: Target, wait_limit: int | None = None) -> Compiled:
    """Python source to binary for one specialisation and target; opens no driver.

    `wait_limit`: cycles after which a wait on an mbarrier traps, None for never.  With it the kernel takes one more
    parameter, so only those ask for it who pass that: see `codegen.nvptx.trap`.
    """
    timings = Timings()
    with no_collections():
        with timings.stage("frontend"):
            module = build(source, signature, target)
        with errors_at(source):
            return notes_at(source, compile_module(module, target, timings, wait_limit))


@contextmanager
def errors_at(source: Source) -> Iterator[None]:
    """An error that no op caused, as a number of warps that the target lacks, stands at the kernel itself."""
    try:
        yield
    except CompileError as error:
        raise error.at(source.location(source.node))  # noqa: B904  (it is the same error)


def notes_at(source: Source, compiled: Compiled) -> Compiled:
    """Notes that no op caused, as spills, stand at the kernel itself."""
    from tlxc.codegen.notes import placed

    loc = source.location(source.node)
    compiled.metadata["notes"] = [placed(note, loc) for note in compiled.metadata["notes"]]
    return compiled


def compile_module(
    module: Module, target: Target, timings: Timings | None = None, wait_limit: int | None = None
) -> Compiled:
    """Tile IR as the frontend makes it to binary.  `wait_limit` as for `compile_kernel`."""
    from tlxc.codegen.generate import check_supported

    timings = timings or Timings()
    check_launch(module, target)
    check_supported(module, target)
    run_passes(module, target, timings)
    return assemble_module(module, target, timings, wait_limit)


def assemble_module(
    module: Module, target: Target, timings: Timings | None = None, wait_limit: int | None = None
) -> Compiled:
    """Tile IR after all passes to binary.  `wait_limit` as for `compile_kernel`."""
    from tlxc.codegen.generate import generate
    from tlxc.codegen.notes.collect import in_order, module_notes
    from tlxc.codegen.nvptx.trap import limit_waits, trap_facts

    timings = timings or Timings()
    if wait_limit is not None:
        limit_waits(module, wait_limit)
    with timings.stage("generate"):
        info = analyse(module)
        llvm = generate(module, target, info)
    asm: dict[str, str | bytes] = {"tlxir": print_module(module), "llvm": llvm}
    metadata = {**_launch_facts(module, target), **trap_facts(module)}
    built = {"nvidia": _assemble_nvidia, "amd": _assemble_amd}[target.vendor](llvm, target, asm, timings)
    with timings.stage("notes"):
        notes = in_order([*module_notes(module, target, info), *built.notes(module)])
    metadata |= built.facts | {"notes": [note.facts() for note in notes], "timings": timings.stages}
    return Compiled(module.name, target.name, asm, metadata)


def compile_text(text: str, target: str, assembler: Assembler | None = None, wait_limit: int | None = None) -> Compiled:
    """Printed tile IR, as the frontend makes it, to binary: the task of worker processes.  `assembler` None: the one
    that is found here.  `wait_limit` as for `compile_kernel`."""
    from tlxc.codegen.nvptx.assemble import assembling_with
    from tlxc.ir.parser import parse_module

    with no_collections(), assembling_with(assembler):
        return compile_module(parse_module(text), get_target(target), wait_limit=wait_limit)


def _launch_facts(module: Module, target: Target) -> dict[str, Any]:
    """What a launch must know of a module.  `threads` covers the warps of all tasks."""
    stored = {op.inputs[0] for op in module.walk() if op.kind == "tma_store"}
    return {
        "name": module.name,
        "target": target.name,
        "num_warps": module.num_warps,
        "maxnreg": module.maxnreg,
        "cluster": list(module.cluster),
        "threads": module.attrs.get("total_warps", module.num_warps) * target.warp_size,
        "shared": module.attrs.get("shared", 0),
        "workspace": module.attrs.get("workspace", 0),
        "waits_for_grid": any(op.kind == "grid_dependency" and op.attrs["action"] == "wait" for op in module.walk()),
        "params": [_parameter_facts(p, p.value in stored) for p in module.params],
        "memory_map": module.attrs.get("memory_map", ()),
    }


def _parameter_facts(p: Param, stored: bool) -> dict[str, Any]:
    """Name, type and promises; of a descriptor also the tensor map that the code wants, and whether it stores by it."""
    type_, tensor_map = p.type, {}
    if isinstance(type_, Descriptor):
        from tlxc.codegen.nvptx.boxes import box_of

        made = box_of(type_)
        tensor_map = {"box": list(made.box), "swizzle": made.swizzle, "boxes": list(made.counts), "stored": stored}
        type_ = replace(type_, box_layout=None)
    return {"name": p.name, "type": str(type_), "align": p.align, "divisible": p.divisible, **tensor_map}


def check_launch(module: Module, target: Target) -> None:
    """Warps and clusters are such as the target can launch."""
    if module.num_warps > target.max_warps:
        raise CompileError(
            f"num_warps={module.num_warps} is more than a CTA can have",
            allowed=f"at most {target.max_warps} warps on {target.name}",
        )
    if module.cluster != (1, 1, 1) and not (target.vendor == "nvidia" and "cluster" in target.features):
        raise CompileError(
            "ctas_per_cga is an option of NVIDIA targets",
            found=f"ctas_per_cga={module.cluster} for target {target.name}",
            allowed="ctas_per_cga=None on other targets",
        )


@dataclass(frozen=True)
class _Built:
    """What an assembler reports.  `spills`: what it keeps in memory, in words; `remarks`: lines of its own."""

    facts: dict[str, Any]
    spills: str
    remarks: tuple[str, ...] = ()

    def notes(self, module: Module) -> list[Note]:
        from tlxc.codegen.notes.assembler import assembler_notes, spills

        return [*spills(self.spills, self.facts["registers"], module), *assembler_notes(self.remarks, module)]


def _assemble_nvidia(llvm: str, target: Target, asm: dict[str, str | bytes], timings: Timings) -> _Built:
    from tlxc.codegen.backend import emit
    from tlxc.codegen.nvptx.assemble import assemble
    from tlxc.codegen.nvptx.faults import without_faults

    parts: dict[str, float] = {}
    (ptx,) = emit(llvm, target, parts, "assembly")
    ptx = without_faults(ptx)
    timings.add_seconds(parts)
    with timings.stage("ptxas"):
        built = assemble(ptx, target.ptxas_arch)
    asm |= {"ptx": ptx, "cubin": built.cubin}
    facts = {
        "registers": built.registers,
        "spill_bytes": built.spill_stores + built.spill_loads,
        "stack_bytes": built.stack_bytes,
        "assembler": {"name": "ptxas", "version": built.version, "path": str(built.path)},
    }
    spilled = f"each thread stores {built.spill_stores} bytes to local memory and loads {built.spill_loads}"
    return _Built(facts, spilled if facts["spill_bytes"] else "", built.notes)


def _assemble_amd(llvm: str, target: Target, asm: dict[str, str | bytes], timings: Timings) -> _Built:
    from tlxc.codegen.amdgpu.link import link
    from tlxc.codegen.backend import emit

    parts: dict[str, float] = {}
    asm["amdgcn"], obj = emit(llvm, target, parts, "assembly", "object")
    timings.add_seconds(parts)
    with timings.stage("link"):
        asm["hsaco"] = link(obj)
    facts = _amd_resources(str(asm["amdgcn"]))
    count = facts["spill_bytes"]
    return _Built(facts, f"each thread keeps {count} vector registers in scratch memory" if count else "")


# Field of the metadata -> its line in the code object's metadata at the end of the assembly
_AMD_FIELDS = {
    "registers": "vgpr_count",
    "spill_bytes": "vgpr_spill_count",
    "stack_bytes": "private_segment_fixed_size",
}


def _amd_resources(text: str) -> dict[str, Any]:
    import llvmlite
    import llvmlite.binding as llvm

    version = ".".join(map(str, llvm.llvm_version_info))
    assembler = {"name": "LLVM", "version": version, "path": str(Path(llvmlite.__file__).parent)}
    out: dict[str, Any] = {"assembler": assembler}
    for name, key in _AMD_FIELDS.items():
        m = re.search(rf"\.{key}:\s*(\d+)", text)
        out[name] = int(m[1]) if m else None
    return out
