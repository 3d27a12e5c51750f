"""`tlxc inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tlxc.compiler import PASSES, Compiled, build, compile_kernel, errors_at, run_passes
from tlxc.deploy.write import FILES
from tlxc.ir.core import Module
from tlxc.ir.printer import Printer, print_module
from tlxc.ir.types import Buffer, Tensor
from tlxc.targets import Target

from .group import main
from .kernels import load_kernel
from .options import of_a_kernel
from .text import table

if TYPE_CHECKING:
    from tlxc.frontend.signature import Signature
    from tlxc.runtime.kernel import Kernel

STAGES = ("frontend", *(name for name, _ in PASSES))


@main.command("inspect")
@of_a_kernel(several_targets=False)
@click.option(
    "--after",
    type=click.Choice(STAGES),
    default=STAGES[-1],
    metavar="PASS",
    help=f"Stop after this pass: {', '.join(STAGES)} [default: {STAGES[-1]}].",
)
@click.option("--layouts", is_flag=True, help="The layout of each tile and buffer, as (threads,values):(strides).")
@click.option("--memory", is_flag=True, help="The map of shared memory.")
@click.option("--llvm", is_flag=True, help="The LLVM IR.")
@click.option("--ptx", is_flag=True, help="The PTX (NVIDIA).")
@click.option("--sass", is_flag=True, help="The machine code (NVIDIA; pip install nvidia-cuda-nvdisasm).")
@click.option("--amdgcn", is_flag=True, help="The assembly (AMD).")
def inspect_command(
    reference: str,
    target: Target,
    types: str | None,
    define: dict[str, Any],
    num_warps: int | None,
    maxnreg: int | None,
    ctas_per_cga: tuple[int, ...] | None,
    position: int | None,
    after: str,
    layouts: bool,
    memory: bool,
    **asm: bool,
) -> None:
    """Shows the tile IR, the layouts, the memory map or the code of a kernel.

    Without further options: the tile IR after the last pass.  --after stops earlier, for layouts and memory as well.
    """
    wanted = [name for name, given in asm.items() if given]
    for name in wanted:
        if name not in (*FILES[target.vendor], *(["sass"] if target.vendor == "nvidia" else [])):
            raise click.BadParameter(f"{name} does not exist for {target.name}.", param_hint=f"--{name}")
    options = {"num_warps": num_warps, "maxnreg": maxnreg, "ctas_per_cga": ctas_per_cga}
    kernel, signature = load_kernel(reference, define, types, position, **options)
    if not wanted or layouts or memory:
        module = lowered(kernel, signature, target, after)
        views = [show(module) for given, show in ((layouts, layout_table), (memory, memory_table)) if given]
        click.echo("\n".join(views or [print_module(module)]), nl=False)
    if wanted:
        compiled = compile_kernel(kernel.__tlxc_source__, signature, target)
        for name in wanted:
            click.echo(_sass(compiled) if name == "sass" else compiled.asm[name])


def lowered(kernel: Kernel, signature: Signature, target: Target, after: str) -> Module:
    """The module after one pass."""
    from tlxc.codegen.generate import check_supported

    module = build(kernel.__tlxc_source__, signature, target)
    with errors_at(kernel.__tlxc_source__):
        if after != STAGES[0]:
            check_supported(module, target)
        return run_passes(module, target, until=after)


def _sass(compiled: Compiled) -> str:
    from tlxc.codegen.nvptx.disassemble import disassemble

    return disassemble(compiled.binary)


def layout_table(module: Module) -> str:
    """Name, type and layout of every value that has one, in program order; names are those of the printed IR."""
    from tlxc.ir.layout import cute
    from tlxc.ir.memory import cute_memory

    printer = Printer()
    printer.module(module)
    rows = []
    for value, name in printer.names.items():
        type_ = value.type
        if isinstance(type_, Tensor) and type_.layout is not None:
            rows.append((f"%{name}", str(type_.with_layout(None)), cute(type_.layout)))
        elif isinstance(type_, Buffer) and type_.layout is not None:
            rows.append((f"%{name}", str(Buffer(type_.shape, type_.dtype, type_.storage)), cute_memory(type_.layout)))
    return table(rows) if rows else "No value has a layout yet.\n"


def memory_table(module: Module) -> str:
    """Where each buffer lies in shared memory, and in which lines of the source it is in use."""
    rows = [
        (str(offset), str(size), name, str(first) if first == last else f"{first}-{last}")
        for offset, size, name, first, last in module.attrs.get("memory_map", ())
    ]
    total = f"{module.attrs.get('shared', 0)} bytes of shared memory\n"
    return table([("offset", "bytes", "buffer", "lines"), *rows]) + total if rows else total
