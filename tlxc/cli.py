"""The command line: `tlxc compile inspect check trace run tune cache targets`.

Exit status: 0; 1 for an error in the kernel, in its file or in the tools, told in its own words; 2 for wrong usage.
Needs no GPU and opens no driver.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import linecache
import re
import sys
import textwrap
import time
import tokenize
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tlxc import __version__
from tlxc.codegen.notes.note import Note
from tlxc.compiler import PASSES, Compiled, build, compile_kernel, compile_text, errors_at, run_passes
from tlxc.deploy.grid import parse_grid
from tlxc.deploy.signature import parse_signature, parse_value
from tlxc.deploy.write import (
    FILES,
    KINDS,
    FileError,
    default_kinds,
    exists_for,
    write_file,
    write_header,
    write_target,
)
from tlxc.errors import CompileError, Location, TlxcError
from tlxc.frontend.source import MISSING
from tlxc.ir.core import Module
from tlxc.ir.printer import Printer, print_module
from tlxc.ir.types import Buffer, Descriptor, Pointer, Scalar, Tensor
from tlxc.targets import Target, TargetError, all_targets, get_target

if TYPE_CHECKING:
    from tlxc.frontend.signature import Signature
    from tlxc.runtime.cache import Cache, Stored
    from tlxc.runtime.heuristics import Launchable
    from tlxc.runtime.kernel import Kernel

F = TypeVar("F", bound=Callable[..., Any])

EMIT = (*KINDS, "all")
# Options of a launch that commands take
LAUNCH_OPTIONS = {"num_warps": "--num-warps N", "maxnreg": "--maxnreg N", "ctas_per_cga": "--ctas-per-cga X,Y,Z"}
STAGES = ("frontend", *(name for name, _ in PASSES))


# -- the kernel that a command means ---------------------------------------------------------------------------------


def split_reference(text: str) -> tuple[str, str | None]:
    """FILE[:KERNEL] in its parts."""
    file, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier() or Path(text).exists():
        file, name = text, ""
    if not Path(file).is_file():
        raise click.BadParameter(f"there is no file {file!r}.", param_hint="FILE[:KERNEL]")
    return file, name or None


def load_file(file: str) -> ModuleType:
    """Runs a Python file as a module, not as `__main__`, with its own folder first on the import path.

    An exception of the file becomes a `FileError` with those lines of the traceback that are the user's.
    """
    module = ModuleType(f"tlxc_file_{Path(file).stem}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # dataclasses look their module up
    sys.path.insert(0, str(Path(file).resolve().parent))
    try:
        with tokenize.open(file) as stream:
            code = compile(stream.read(), file, "exec", dont_inherit=True)
        exec(code, module.__dict__)
    except CompileError as error:
        raise error.at(_line_of(error, file)) from None
    except TlxcError:
        raise
    except (Exception, SystemExit) as error:
        told = _users_traceback(error, file)
        raise FileError(f"{file} could not be loaded; this is what Python says:\n{told}") from error
    finally:
        sys.path.pop(0)
    return module


def _line_of(error: BaseException, file: str) -> Location | None:
    """The line of `file` that was running."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if not frames or frames[-1].lineno is None:
        return None
    number = frames[-1].lineno
    text = linecache.getline(file, number).rstrip()
    return Location(file, number, len(text) - len(text.lstrip()), len(text))


def _users_traceback(error: BaseException, file: str) -> str:
    """The traceback from the first frame of `file` on."""
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename != file:
        tb = tb.tb_next
    return "".join(traceback.format_exception(type(error), error, tb, chain=tb is not None)).rstrip()


def find_kernel(module: ModuleType, file: str, name: str | None) -> Launchable:
    """The kernel called `name`, or the only one that the file defines, with what stands around it."""
    from tlxc.runtime.heuristics import Wrapper
    from tlxc.runtime.kernel import Kernel

    known = {n: value for n, value in vars(module).items() if isinstance(value, (Kernel, Wrapper))}
    if name in known:
        return known[name]
    own = {n: k for n, k in known.items() if k.__tlxc_source__.file == file}
    names = _listed([n for n, k in own.items() if n == k.name] or list(own))
    if name is not None:
        raise FileError(f"{file} has no kernel `{name}`; it defines {names or 'none'}.")
    if not own:
        elsewhere = f"; to take one that it imports, write {file}:{next(iter(known))}" if known else ""
        raise FileError(f"{file} defines no kernel; decorate a function with @tlxc.kernel{elsewhere}.")
    distinct = {id(k): k for k in own.values()}
    if len(distinct) > 1:
        raise FileError(f"{file} defines {len(distinct)} kernels, {names}; name one, as in {file}:{next(iter(own))}.")
    return next(iter(distinct.values()))


def _listed(names: Sequence[str]) -> str:
    *first, last = names or [""]
    return f"{', '.join(first)} and {last}" if first else last


def parse_definitions(context: click.Context, parameter: click.Parameter, texts: Sequence[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE.")
        if name in out:
            raise click.BadParameter(f"{name} is given twice.")
        if name in LAUNCH_OPTIONS:
            raise click.BadParameter(f"{name} is an option of the launch; give {LAUNCH_OPTIONS[name]}.")
        out[name] = parse_value(value)
    return out


def parse_targets(context: click.Context, parameter: click.Parameter, names: Any) -> Any:
    """Target names to targets; of options that may be given once and several times."""
    try:
        return get_target(names) if isinstance(names, str) else tuple(get_target(name) for name in dict.fromkeys(names))
    except TargetError as error:
        raise click.BadParameter(str(error)) from error


def parse_cluster(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(map(int, text.split(",")))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not one to three numbers with commas between, as 2,1,1.") from None


def parse_name(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    if text is not None and not re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII):
        raise click.BadParameter(f"{text!r} is no name in C; use letters, digits and _.")
    return text


def load_kernel(
    reference: str, define: Mapping[str, Any], types: str | None, position: int | None, **options: Any
) -> tuple[Kernel, Signature]:
    """The kernel, and its signature for -D, --signature and the launch options; options that are None are the kernel's
    own.  `position`: of the configuration of a kernel that is tuned."""
    from tlxc.runtime.autotune import ahead

    file, name = split_reference(reference)
    given = {name: value for name, value in options.items() if value is not None}
    kernel, constants, launch = ahead(find_kernel(load_file(file), file, name), position, define, given)
    described: dict[str, Any] = parse_signature(types, kernel.__tlxc_source__.parameters) if types else {}
    for name in described.keys() & constants.keys():
        where = "-D" if name in define else "the configuration"
        raise click.BadParameter(f"{name} is in --signature and in {where}.", param_hint="--signature")
    _check_definitions(kernel, {**described, **constants})
    return kernel, kernel.signature(**launch, **described, **constants)


def load_ir(file: str, given: Mapping[str, Any]) -> tuple[Callable[[Target], Compiled], Signature]:
    """A function that compiles the tile IR of a file, and the signature that it has; it takes no options."""
    from tlxc.frontend.signature import Argument, Signature
    from tlxc.ir.parser import ParseError, parse_module

    options = [name for name, value in given.items() if value]
    if options:
        raise FileError(
            f"{file} is tile IR, whose constants and options are fixed; leave out {_listed(options)}, or give the "
            "Python file of the kernel."
        )
    try:
        text = Path(file).read_text(encoding="utf-8")
        module = parse_module(text)
    except (OSError, UnicodeDecodeError, ParseError) as error:
        raise FileError(f"{file} could not be read as tile IR: {error}.") from error
    arguments = tuple(
        (p.name, Argument(p.type, p.align, p.divisible))
        for p in module.params
        if isinstance(p.type, (Scalar, Pointer, Descriptor))
    )
    signature = Signature(arguments, (), module.num_warps, module.maxnreg, module.cluster)
    return lambda target: compile_text(text, target.name), signature


def _check_definitions(kernel: Kernel, define: Mapping[str, Any]) -> None:
    """Every name of -D is a parameter, and every constexpr parameter has a value."""
    source = kernel.__tlxc_source__
    where = f"{kernel.name} ({source.file}:{source.first_line})"
    names = [p.name for p in source.parameters]
    for name in define:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f" Did you mean `{close[0]}`?" if close else ""
            raise FileError(f"{where} has no parameter `{name}`.{hint} Its parameters are {_listed(names)}.")
    missing = [p.name for p in source.parameters if p.constexpr and p.default is MISSING and p.name not in define]
    if missing:
        give = " ".join(f"-D {name}=..." for name in missing)
        listed = _listed([f"`{name}`" for name in missing])
        raise FileError(
            f"{where} needs a value for its compile-time parameter{'s' * (len(missing) > 1)} {listed}; give {give}."
        )


# -- what compile says ------------------------------------------------------------------------------------------------


def resource_line(compiled: Compiled) -> str:
    facts = compiled.metadata
    spills = f"{facts['spill_bytes']} bytes of spills" if facts["spill_bytes"] else "0 spills"
    assembler = facts["assembler"]
    return (
        f"{compiled.name} {compiled.target}: {compiled.registers} registers, {compiled.shared} bytes shared, {spills}, "
        f"{facts['threads']} threads; {assembler['name']} {assembler['version']} at {assembler['path']}"
    )


# -- commands --------------------------------------------------------------------------------------------------------


class _Commands(click.Group):
    """Commands whose `TlxcError`s are told in their own words; any other exception is a fault of tlxc."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TlxcError as error:
            click.echo(str(error), err=True)
            ctx.exit(1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tlxc")
def main() -> None:
    """Compiles and inspects GPU kernels written in Python.  None of these commands needs a GPU."""


def _of_a_kernel(several_targets: bool) -> Callable[[F], F]:
    """The parameters that commands on a kernel share."""

    def decorate(command: F) -> F:
        targets = click.option(
            "-t", "--target", "targets" if several_targets else "target", required=True, multiple=several_targets,
            callback=parse_targets, metavar="TARGET",
            help="GPU to compile for, one of those that `tlxc targets` lists" + "; may be repeated." * several_targets,
        )  # fmt: skip
        define = click.option(
            "-D", "define", multiple=True, callback=parse_definitions, metavar="NAME=VALUE",
            help="Value of a tl.constexpr parameter: a number, true, false, a dtype such as float16, or text.",
        )  # fmt: skip
        types = click.option(
            "--signature", "types", metavar="TYPES",
            help="Types of parameters in place of their annotations, in order or by name, with promises and "
            "compile-time values, as '*f16:16, *f16, n=i32:16, BLOCK=1024'.",
        )  # fmt: skip
        warps = click.option("--num-warps", type=int, metavar="N", help="Warps of a CTA [default: the kernel's own].")
        registers = click.option(
            "--maxnreg", type=int, metavar="N",
            help="Registers that a thread may use at most (NVIDIA), so that more CTAs fit on an SM [default: the "
            "kernel's own].",
        )  # fmt: skip
        cluster = click.option(
            "--ctas-per-cga", callback=parse_cluster, metavar="X,Y,Z",
            help="CTAs of a cluster along x, y and z (NVIDIA) [default: the kernel's own].",
        )  # fmt: skip
        config = click.option(
            "--config", "position", type=click.IntRange(0), metavar="N",
            help="Configuration of a kernel that is tuned, counted from 0.",
        )  # fmt: skip
        options = targets(types(define(warps(registers(cluster(config(command)))))))
        return click.argument("reference", metavar="FILE[:KERNEL]")(options)

    return decorate


@main.command("compile")
@_of_a_kernel(several_targets=True)
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
    timings: bool,
) -> None:
    """Compiles a kernel to binaries, and says what it takes of the GPU.

    FILE is loaded as a module: what stands under `if __name__ == "__main__"` is not run.  KERNEL may be left out where
    FILE has only one.  Parameter types come from the annotations, as in `x: tl.ptr(tl.float16), n: tl.int32`,
    or from --signature.  A file of tile IR, KERNEL.tlxir, is compiled as it stands.

    Files are named KERNEL.TARGET.SUFFIX; the json holds what a loader must know.  The header, KERNEL.h, is for C
    programs and serves all NVIDIA targets of the command.
    """
    for kind in emit:
        if kind != "all" and not exists_for(kind, targets):
            names = _listed([target.name for target in targets])
            raise click.BadParameter(f"{kind} does not exist for {names}.", param_hint="--emit")
    options = {"num_warps": num_warps, "maxnreg": maxnreg, "ctas_per_cga": ctas_per_cga}
    if reference.endswith(".tlxir"):
        fixed = {"-D": define, "--signature": types, "--config": position is not None, **options}
        compile_for, signature = load_ir(reference, fixed)
    else:
        kernel, signature = load_kernel(reference, define, types, position, **options)
        compile_for = partial(compile_kernel, kernel.__tlxc_source__, signature)
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
        for note in map(Note.of, compiled.metadata["notes"]):
            click.echo(str(note))
        if timings:
            click.echo(timing_table(compiled.metadata["timings"]))
    if header:
        write_header(made, signature, folder, name or made[0].name, embed, grid)


def timing_table(stages: Mapping[str, float]) -> str:
    """Milliseconds of each stage, and its share of all."""
    total = sum(stages.values())
    rows = [*stages.items(), ("total", total)]
    return "\n".join(f"  {name:<14} {ms:9.2f} ms {100 * ms / total:6.1f} %" for name, ms in rows)


@main.command("inspect")
@_of_a_kernel(several_targets=False)
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
    return _table(rows) if rows else "No value has a layout yet.\n"


def memory_table(module: Module) -> str:
    """Where each buffer lies in shared memory, and in which lines of the source it is in use."""
    rows = [
        (str(offset), str(size), name, str(first) if first == last else f"{first}-{last}")
        for offset, size, name, first, last in module.attrs.get("memory_map", ())
    ]
    total = f"{module.attrs.get('shared', 0)} bytes of shared memory\n"
    return _table([("offset", "bytes", "buffer", "lines"), *rows]) + total if rows else total


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() + "\n" for row in rows)


@main.command("check")
@click.argument("reference", metavar="FILE[:KERNEL]")
@click.option("--target", default="sm_90", callback=parse_targets, metavar="TARGET", help="GPU [default: sm_90].")
@click.option("--seeds", default=8, type=click.IntRange(1), metavar="N", help="Schedules an example [default: 8].")
@click.option("--replay", type=click.IntRange(0), metavar="SEED", help="Only this schedule; what fails is shrunk.")
@click.option("--json", "as_json", is_flag=True, help="Results as JSON.")
def check_command(reference: str, target: Target, seeds: int, replay: int | None, as_json: bool) -> None:
    """Runs the examples of a kernel (@kernel.example) in the simulator and checks them; exit status 1 for a report.

    Says what a clean result covers: all schedules of these inputs, or the schedules that were tried.
    """
    from tlxc.runtime.check import check, trips_tried
    from tlxc.runtime.check import replay as replayed
    from tlxc.runtime.progress import progress

    file, name = split_reference(reference)
    kernel = find_kernel(load_file(file), file, name)
    runs = len(kernel.examples) * (seeds if replay is None else 1)
    # What examples and breakpoints print is no part of the JSON.
    with progress(runs) as done, redirect_stdout(sys.stderr if as_json else sys.stdout):
        if replay is None:
            outcomes = list(check(kernel, target, seeds, done=done))
        else:
            outcomes = replayed(kernel, target, replay, done)
    if as_json:
        click.echo(json.dumps([o.facts() for o in outcomes], indent=1))
    else:
        for o in outcomes:
            lines = [f"{kernel.name}, {o.example}: {o.coverage}", o.report, o.shrunk, *(f"note: {n}" for n in o.notes)]
            click.echo("\n".join(str(line) for line in lines if line is not None))
    if any(o.report is not None for o in outcomes):
        raise SystemExit(1)
    for line in [] if as_json else trips_tried(outcomes):
        click.echo(f"{kernel.name}, {line}")


def parse_trace(context: click.Context, parameter: click.Parameter, name: str | None) -> Path | None:
    """A file name whose suffix says how a timeline is written."""
    from tlxc.simulator.timeline import form_of

    try:
        if name is not None:
            form_of(Path(name))
    except TlxcError as error:
        raise click.BadParameter(str(error)) from error
    return None if name is None else Path(name)


@main.command("trace")
@click.argument("reference", metavar="FILE[:KERNEL]")
@click.option("--target", default="sm_90", callback=parse_targets, metavar="TARGET", help="GPU [default: sm_90].")
@click.option("--seed", default=0, type=click.IntRange(0), metavar="SEED", help="Of ties [default: 0].")
@click.option("-o", "out", callback=parse_trace, metavar="OUT", help="Write .json (Perfetto), .html or .svg.")
def trace_command(reference: str, target: Target, seed: int, out: Path | None) -> None:
    """Runs the examples of a kernel (@kernel.example) on the clock of the target's time model, and tells what was busy,
    who waited for what, and the bottleneck.

    The times are a model, not a measurement.  The kernel is checked as by `tlxc check`; exit status 1 for a report.
    """
    from tlxc.runtime.progress import progress
    from tlxc.runtime.trace import trace
    from tlxc.simulator.timeline import form_of, summarise, text

    file, name = split_reference(reference)
    kernel = find_kernel(load_file(file), file, name)
    with progress(len(kernel.examples)) as done:
        timeline, error = trace(kernel, target, seed, done)
    if out is not None and timeline.launches:
        write_file(out, form_of(out)(timeline))
    for launch in timeline.launches:
        click.echo(text(timeline, summarise(launch)))
    if error is not None:
        click.echo(str(error.report))
        raise SystemExit(1)


@main.group("tune")
def tune_group() -> None:
    """Shows and forgets what tuned kernels have found out, on this machine and for all users of its cache folder."""


@tune_group.command("show")
@click.argument("kernels", nargs=-1, metavar="[KERNEL]...")
@click.option("--json", "as_json", is_flag=True, help="The records as JSON.")
def tune_show_command(kernels: tuple[str, ...], as_json: bool) -> None:
    """Prints every tuning of these kernels (default: all): what it was for, and each configuration with its time, or
    with the reason why it was skipped.  The star marks the one that launches use."""
    from tlxc.runtime import trial

    found = trial.records(kernels)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(record) for record in found], indent=1))
        return
    for record in found:
        click.echo("\n".join(trial.describe(record)))
    if not found:
        click.echo(f"There are no results of tuning{f' of {_listed(kernels)}' if kernels else ''}.")


@tune_group.command("rm")
@click.argument("kernels", nargs=-1, metavar="[KERNEL]...")
@click.option("--all", "everything", is_flag=True, help="Of all kernels.")
def tune_rm_command(kernels: tuple[str, ...], everything: bool) -> None:
    """Removes the tunings of these kernels; the next launches tune again."""
    from tlxc.runtime import trial

    if bool(kernels) == everything:
        raise click.UsageError("Name the kernels, or give --all.")
    found = trial.records(kernels)
    for record in found:
        trial.remove(record)
    click.echo(f"{len(found)} removed.")


@main.command("run", context_settings={"ignore_unknown_options": True})
@click.option("--simulate", is_flag=True, help="Kernels run in the simulator, on NumPy arrays and CPU tensors.")
@click.option("--seed", default=0, metavar="SEED", help="Of the simulator [default: 0].")
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run_command(simulate: bool, seed: int, script: str, arguments: tuple[str, ...]) -> None:
    """Runs a Python script as `python` does, with its arguments."""
    import runpy
    from contextlib import nullcontext

    from tlxc.runtime import simulate as simulator

    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    with simulator.simulate(seed) if simulate else nullcontext():
        runpy.run_path(script, run_name="__main__")


# -- the cache


@main.group("cache")
def cache_group() -> None:
    """Lists, checks and deletes the compiled kernels on disk.  Each does so beside running processes."""


def _cache() -> Cache:
    from tlxc.runtime.cache import default_cache

    return default_cache()


def _is_meant(stored: Stored, names: Sequence[str]) -> bool:
    """Whether one of `names` is the kernel's, or the beginning of the entry's key."""
    kernel = stored.header.metadata.get("name") if stored.header else None
    return any(name == kernel or (name and stored.key.startswith(name)) for name in names)


def _entry_row(stored: Stored) -> tuple[str, ...]:
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(stored.used))
    head = (stored.key[:12], used, str(stored.size))
    if stored.header is None:
        return (*head, "not an entry", "", "")
    from tlxc.runtime.variants import specialisation

    metadata, facts = stored.header.metadata, stored.header.facts
    return (*head, str(metadata.get("name")), str(metadata.get("target")), specialisation(facts))


@cache_group.command("ls")
@click.argument("names", nargs=-1, metavar="[KERNEL|KEY]...")
def cache_ls_command(names: tuple[str, ...]) -> None:
    """Lists the entries, the last used first: all, those of a kernel, or those whose key begins so."""
    cache = _cache()
    entries = [stored for stored in cache.entries() if not names or _is_meant(stored, names)]
    if entries:
        head = ("key", "last used", "bytes", "kernel", "target", "specialised for")
        click.echo(_table([head, *map(_entry_row, entries)]), nl=False)
    total = sum(stored.size for stored in entries)
    where = f"in {cache.folder}" if cache.folder else "without a folder"
    click.echo(f"{len(entries)} entries {where}: {total} bytes; the folder may hold {cache.limit}")


@cache_group.command("rm")
@click.argument("names", nargs=-1, metavar="[KERNEL|KEY]...")
@click.option("--all", "everything", is_flag=True, help="All entries.")
def cache_rm_command(names: tuple[str, ...], everything: bool) -> None:
    """Deletes the entries of a kernel, or those whose key begins so.  What a process has loaded it keeps."""
    if bool(names) == everything:
        raise click.UsageError("Name kernels or keys, or give --all.")
    _delete_entries([stored for stored in _cache().entries() if everything or _is_meant(stored, names)])


@cache_group.command("verify")
@click.option("--remove", is_flag=True, help="Delete those that are damaged.")
def cache_verify_command(remove: bool) -> None:
    """Reads every entry in full; exit status 1 where one is damaged.  A launch compiles such a kernel anew."""
    cache = _cache()
    entries = cache.entries()
    damaged = [stored for stored in entries if not cache.is_sound(stored)]
    for stored in damaged:
        click.echo(f"{stored.path}: damaged, or no entry of tlxc")
    click.echo(f"{len(entries) - len(damaged)} of {len(entries)} entries are sound")
    if remove:
        _delete_entries(damaged)
    elif damaged:
        raise SystemExit(1)


def _delete_entries(entries: Sequence[Stored]) -> None:
    left = [stored for stored in entries if not _cache().remove(stored)]
    click.echo(f"{len(entries) - len(left)} entries deleted")
    if left:
        raise FileError(
            f"{left[0].path} could not be deleted, nor {len(left) - 1} others; look at the permissions of their folder."
        )


@main.command("targets")
def targets_command() -> None:
    """Lists the GPUs that tlxc knows."""
    head = ("target", "vendor", "warp", "shared KiB", "registers")
    rows = [(t.name, t.vendor, str(t.warp_size), str(t.max_shared >> 10), str(t.max_registers)) for t in all_targets()]
    lines = _table([head, *rows]).splitlines()
    click.echo(lines[0])
    for line, target in zip(lines[1:], all_targets()):
        click.echo(line)
        click.echo(textwrap.fill(" ".join(sorted(target.features)), 100, initial_indent="  ", subsequent_indent="  "))
