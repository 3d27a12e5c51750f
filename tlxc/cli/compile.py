"""`tlxc compile`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tlxc.codegen.notes import KINDS as NOTES
from tlxc.codegen.notes import Note
from tlxc.compiler import Compiled
from tlxc.deploy.grid import parse_grid
from tlxc.deploy.write import KINDS, default_kinds, exists_for, write_header, write_target
from tlxc.targets import Target

from .group import main
from .kernels import compiler_of
from .options import of_a_kernel, parse_name
from .text import listed

EMIT = (*KINDS, "all")


def parse_kinds(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Kinds of notes."""
    kinds = tuple(kind.strip() for kind in text.split(",")) if text is not None else ()
    for kind in kinds:
        if kind not in NOTES:
            raise click.BadParameter(f"{kind!r} is no kind of note; there are {listed(list(NOTES))}.")
    return kinds


def resource_line(compiled: Compiled) -> str:
    facts = compiled.metadata
    spills = f"{facts['spill_bytes']} bytes of spills" if facts["spill_bytes"] else "0 spills"
    assembler = facts["assembler"]
    return (
        f"{compiled.name} {compiled.target}: {compiled.registers} registers, {compiled.shared} bytes shared, {spills}, "
        f"{facts['threads']} threads; {assembler['name']} {assembler['version']} at {assembler['path']}"
    )


@main.command("compile")
@of_a_kernel(several_targets=True)
@click.option(
    "--emit",
    "emit",
    multiple=True,
    type=click.Choice(EMIT),
    metavar="KIND",
    help=f"What to write, of {', '.join(EMIT)}; may be repeated [default: the binary and its json].",
)
@click.option(
    "-o",
    "folder",
    type=click.Path(path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Folder for the files [default: this one].",
)
@click.option(
    "--name", callback=parse_name, metavar="NAME", help="What files and C functions are called [default: KERNEL]."
)
@click.option(
    "--embed/--no-embed",
    default=True,
    help="Whether the header holds the cubins, or loads them from a folder that the program gives.",
)
@click.option(
    "--grid",
    metavar="X,Y,Z",
    help="CTAs of a launch, as Python expressions of the kernel's integers, for the header: 'cdiv(n, BLOCK)'.",
)
@click.option(
    "--fail-on", "unwanted", callback=parse_kinds, metavar="KINDS",
    help=f"Exit with status 1 where there are notes of these kinds, with commas between: {', '.join(NOTES)}.",
)  # fmt: skip
@click.option("--timings", is_flag=True, help="How long each stage took.")
def compile_command(
    reference: str,
    targets: tuple[Target, ...],
    types: str | None,
    define: dict[str, Any],
    num_warps: int | None,
    maxnreg: int | None,
    ctas_per_cga: tuple[int, ...] | None,
    position: int | None,
    emit: Sequence[str],
    folder: Path,
    name: str | None,
    embed: bool,
    grid: str | None,
    unwanted: tuple[str, ...],
    timings: bool,
) -> None:
    """Compiles a kernel to binaries, and says what it takes of the GPU.

    FILE is loaded as a module: what stands under `if __name__ == "__main__"` is not run.  KERNEL may be left out where
    FILE has only one.  Parameter types come from the annotations, as in `x: tl.ptr(tl.float16), n: tl.int32`,
    or from --signature.  A file of tile IR, KERNEL.tlxir, is compiled as it stands.

    Files are named KERNEL.TARGET.SUFFIX; the json holds what a loader must know.  The header, KERNEL.h, is for C
    programs and serves all NVIDIA targets of the command.

    Notes say what the kernel costs beyond need, at its source lines; --fail-on makes an error of them.
    """
    for kind in emit:
        if kind != "all" and not exists_for(kind, targets):
            names = listed([target.name for target in targets])
            raise click.BadParameter(f"{kind} does not exist for {names}.", param_hint="--emit")
    options = {"num_warps": num_warps, "maxnreg": maxnreg, "ctas_per_cga": ctas_per_cga}
    compile_for, signature = compiler_of(reference, define, types, position, **options)
    kinds = set(KINDS if "all" in emit else emit or default_kinds(targets))
    header = "header" in kinds and exists_for("header", targets)
    if grid is not None and not header:
        raise click.BadParameter("only the header computes a grid; add --emit header.", param_hint="--grid")
    if grid is not None:
        parse_grid(grid, signature)  # before anything is compiled
    if header and not embed:
        kinds.add("cubin")
    made = []
    for target in targets:
        compiled = compile_for(target)
        write_target(compiled, signature, target, kinds, folder, name or compiled.name)
        made.append(compiled)
        click.echo(resource_line(compiled))
        for note in notes_of(compiled):
            click.echo(str(note))
        if timings:
            click.echo(timing_table(compiled.metadata["timings"]))
    if header:
        write_header(made, signature, folder, name or made[0].name, embed, grid)
    _fail_on(unwanted, [note for compiled in made for note in notes_of(compiled)])


def notes_of(compiled: Compiled) -> list[Note]:
    return [Note.of(facts) for facts in compiled.metadata["notes"]]


def _fail_on(unwanted: Sequence[str], notes: Sequence[Note]) -> None:
    """Exit status 1 where there are notes of these kinds."""
    counts = Counter(note.kind for note in notes if note.kind in unwanted)
    if counts:
        told = [f"{count} note{'s' * (count > 1)} of kind {kind}" for kind, count in counts.items()]
        click.echo(f"--fail-on {','.join(unwanted)}: there {_be(counts.total())} {listed(told)}.", err=True)
        raise SystemExit(1)


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def timing_table(stages: Mapping[str, float]) -> str:
    """Milliseconds of each stage, and its share of all."""
    total = sum(stages.values())
    rows = [*stages.items(), ("total", total)]
    return "\n".join(f"  {name:<14} {ms:9.2f} ms {100 * ms / total:6.1f} %" for name, ms in rows)
