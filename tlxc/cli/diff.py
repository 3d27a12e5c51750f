"""`tlxc diff`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tlxc.errors import TlxcError
from tlxc.inspect.diff import compare
from tlxc.inspect.sides import SUFFIXES, Side, of_compiled, of_file
from tlxc.targets import Target

from .group import main
from .kernels import compiler_of
from .options import kernel_options, parse_definitions


def _of_one(name: str) -> Any:
    return click.option(
        f"-{name}", f"define_{name.lower()}", multiple=True, callback=parse_definitions, metavar="NAME=VALUE",
        help=f"As -D, for {name} alone.",
    )  # fmt: skip


@main.command("diff")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@_of_one("A")
@_of_one("B")
@kernel_options(several_targets=True, required=False)
def diff_command(
    a: str,
    b: str,
    define_a: dict[str, Any],
    define_b: dict[str, Any],
    targets: Sequence[Target],
    types: str | None,
    define: dict[str, Any],
    position: int | None,
    **options: Any,
) -> None:
    """Compares two builds: registers, spills, shared memory and its map, instructions by class in each loop, notes.

    A and B are kernels, FILE[:KERNEL], which are compiled; or what `tlxc compile` wrote: the json, a cubin, PTX or the
    assembly of AMD. Options are for both kernels; of two targets the first is for A.

    SASS is compared where nvdisasm is installed (pip install nvidia-cuda-nvdisasm), else PTX.

    Exit status as of `diff`: 0 where nothing differs, 1 where something does, 2 for errors.
    """
    if len(targets) > 2:
        raise click.BadParameter("give one target for both builds, or one for each.", param_hint="--target")
    try:
        sides = [
            _side(reference, {**define, **own}, targets[i : i + 1] or targets[:1], types, position, options)
            for i, (reference, own) in enumerate(((a, define_a), (b, define_b)))
        ]
        difference = compare(*sides)
    except TlxcError as error:
        click.echo(str(error), err=True)
        raise SystemExit(2) from error
    click.echo(str(difference))
    if not difference.same:
        raise SystemExit(1)


def _side(
    reference: str,
    define: dict[str, Any],
    targets: Sequence[Target],
    types: str | None,
    position: int | None,
    options: dict[str, Any],
) -> Side:
    if reference.endswith(SUFFIXES):
        return of_file(Path(reference))
    if not targets:
        raise click.UsageError(f"{reference} is to be compiled; give --target.")
    compile_for, _ = compiler_of(reference, define, types, position, **options)
    constants = "".join(f" {name}={value}" for name, value in define.items())
    return of_compiled(compile_for(targets[0]), f"{reference} for {targets[0].name}{constants}")
