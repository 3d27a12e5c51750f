"""The command line: `tlxc compile inspect check trace run tune cache targets`.

Exit status: 0; 1 for an error in the kernel, in its file or in the tools, told in its own words; 2 for wrong usage.
Needs no GPU and opens no driver.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import hashlib
import json
import linecache
import os
import sys
import textwrap
import time
import tokenize
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tlxc import __version__
from tlxc.compiler import PASSES, Compiled, build, compile_kernel, compile_text, errors_at, run_passes
from tlxc.errors import CompileError, Location, TlxcError
from tlxc.frontend.source import MISSING
from tlxc.ir.core import Module
from tlxc.ir.printer import Printer, print_module
from tlxc.ir.types import DTYPES, Buffer, Descriptor, Pointer, Scalar, Tensor
from tlxc.targets import Target, TargetError, all_targets, get_target

if TYPE_CHECKING:
    from tlxc.frontend.signature import Signature
    from tlxc.runtime.cache import Cache, Stored
    from tlxc.runtime.heuristics import Launchable
    from tlxc.runtime.kernel import Kernel

F = TypeVar("F", bound=Callable[..., Any])

# What a compilation leaves per vendor -> the suffix of its file; the last is the binary.
FILES: dict[str, dict[str, str]] = {
    "nvidia": {"tlxir": "tlxir", "llvm": "ll", "ptx": "ptx", "cubin": "cubin"},
    "amd": {"tlxir": "tlxir", "llvm": "ll", "amdgcn": "s", "hsaco": "hsaco"},
}
EMIT = (*dict.fromkeys(name for files in FILES.values() for name in files), "json", "all")
# Options of a launch that commands take
LAUNCH_OPTIONS = {"num_warps": "--num-warps N", "maxnreg": "--maxnreg N", "ctas_per_cga": "--ctas-per-cga X,Y,Z"}
MAP_BYTES = 128  # of a tensor map
STAGES = ("frontend", *(name for name, _ in PASSES))


class FileError(TlxcError):
    """The file that a command names cannot be loaded, has no such kernel, or cannot be written."""


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


_WORDS = {"true": True, "false": False} | {prefix + t.name: t for t in DTYPES.values() for prefix in ("", "tl.")}


def parse_value(text: str) -> Any:
    """The value of `-D NAME=VALUE`: a Python literal, true, false or the name of a dtype; other text is a string."""
    if text in _WORDS:
        return _WORDS[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


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


def load_kernel(
    reference: str, define: Mapping[str, Any], position: int | None, **options: Any
) -> tuple[Kernel, Signature]:
    """The kernel, and its signature for -D and the launch options; options that are None are the kernel's own.
    `position`: of the configuration of a kernel that is tuned."""
    from tlxc.runtime.autotune import ahead

    file, name = split_reference(reference)
    given = {name: value for name, value in options.items() if value is not None}
    kernel, constants, launch = ahead(find_kernel(load_file(file), file, name), position, define, given)
    _check_definitions(kernel, constants)
    return kernel, kernel.signature(**launch, **constants)


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


# -- what compile writes and says ------------------------------------------------------------------------------------


def write_file(path: Path, content: str | bytes) -> None:
    """Writes a file in one step: whoever looks finds the old one or the whole new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise FileError(f"{path} could not be written: {error.strerror}.") from error


def resource_line(compiled: Compiled) -> str:
    facts = compiled.metadata
    spills = f"{facts['spill_bytes']} bytes of spills" if facts["spill_bytes"] else "0 spills"
    assembler = facts["assembler"]
    return (
        f"{compiled.name} {compiled.target}: {compiled.registers} registers, {compiled.shared} bytes shared, {spills}, "
        f"{facts['threads']} threads; {assembler['name']} {assembler['version']} at {assembler['path']}"
    )


def launch_facts(compiled: Compiled, signature: Signature, files: Mapping[str, str]) -> dict[str, Any]:
    """What a loader must know to launch the binary, as JSON-able data.  Sizes are bytes."""
    facts = compiled.metadata
    copied = ("registers", "spill_bytes", "stack_bytes", "notes", "assembler")
    return {
        "tlxc": __version__,
        "name": compiled.name,
        "target": compiled.target,
        "num_warps": facts["num_warps"],
        "maxnreg": facts["maxnreg"],
        "cluster": facts["cluster"],
        "threads": facts["threads"],
        "shared": compiled.shared,
        "workspace": _workspace_facts(facts["workspace"]),
        "grid": "CTAs along x, y and z: tl.program_id(0), (1) and (2); a CTA has `threads` threads along x",
        "params": [
            _parameter_facts(name, argument, compiled_to)
            for (name, argument), compiled_to in zip(signature.arguments, facts["params"])
        ],
        "constants": {name: _plain(value) for name, value in signature.constants},
        "files": dict(files),
        "sha256": hashlib.sha256(compiled.binary).hexdigest(),
        **{name: facts[name] for name in copied},
    }


def _workspace_facts(size: int) -> dict[str, Any] | None:
    """What the loader allocates for every launch and passes as one more parameter; None where the kernel takes none."""
    if not size:
        return None
    return {"bytes_per_cta": size, "align": 128, "passed": "as a pointer after the params, to memory of this launch"}


def _parameter_facts(name: str, argument: Any, facts: Mapping[str, Any]) -> dict[str, Any]:
    """`requires` is what the code relies on: the loader checks it before a launch.  A descriptor is passed as a tensor
    map of boxes of `box` elements (slowest dimension first) with a swizzle of so many bytes."""
    if isinstance(argument.type, Descriptor):
        tensor_map = {name: facts[name] for name in ("box", "swizzle")}
        return {"name": name, "type": facts["type"], "size": MAP_BYTES, "requires": {"align": 64}, **tensor_map}
    pointer = isinstance(argument.type, Pointer)
    if pointer:
        requires = {"align": max(argument.align, argument.type.dtype.bytes)}
    else:
        requires = {"divisible": argument.divisible} if argument.divisible > 1 else {}
    return {
        "name": name,
        "type": str(argument.type),
        "size": argument.type.bytes if pointer else argument.type.dtype.bytes,
        "requires": requires,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


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
        options = targets(define(warps(registers(cluster(config(command))))))
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
@click.option("--timings", is_flag=True, help="How long each stage took.")
def compile_command(
    reference: str,
    targets: tuple[Target, ...],
    define: dict[str, Any],
    num_warps: int | None,
    maxnreg: int | None,
    ctas_per_cga: tuple[int, ...] | None,
    position: int | None,
    emit: Sequence[str],
    folder: Path,
    timings: bool,
) -> None:
    """Compiles a kernel to binaries, and says what it takes of the GPU.

    FILE is loaded as a module: what stands under `if __name__ == "__main__"` is not run.  KERNEL may be left out where
    FILE has only one.  Parameter types come from the annotations, as in `x: tl.ptr(tl.float16), n: tl.int32`.  A file
    of tile IR, KERNEL.tlxir, is compiled as it stands.

    Files are named KERNEL.TARGET.SUFFIX; the json holds what a loader must know.
    """
    for name in emit:
        if name not in ("json", "all") and not any(name in FILES[target.vendor] for target in targets):
            names = _listed([target.name for target in targets])
            raise click.BadParameter(f"{name} does not exist for {names}.", param_hint="--emit")
    options = {"num_warps": num_warps, "maxnreg": maxnreg, "ctas_per_cga": ctas_per_cga}
    if reference.endswith(".tlxir"):
        compile_for, signature = load_ir(reference, {"-D": define, "--config": position is not None, **options})
    else:
        kernel, signature = load_kernel(reference, define, position, **options)
        compile_for = partial(compile_kernel, kernel.__tlxc_source__, signature)
    for target in targets:
        compiled = compile_for(target)
        _write(compiled, signature, target, emit, folder)
        click.echo(resource_line(compiled))
        for note in compiled.metadata["notes"]:
            click.echo(f"  note: {note}")
        if timings:
            click.echo(timing_table(compiled.metadata["timings"]))


def timing_table(stages: Mapping[str, float]) -> str:
    """Milliseconds of each stage, and its share of all."""
    total = sum(stages.values())
    rows = [*stages.items(), ("total", total)]
    return "\n".join(f"  {name:<14} {ms:9.2f} ms {100 * ms / total:6.1f} %" for name, ms in rows)


def _write(compiled: Compiled, signature: Signature, target: Target, emit: Sequence[str], folder: Path) -> None:
    suffixes = FILES[target.vendor]
    default = [list(suffixes)[-1], "json"]
    wanted = [*suffixes, "json"] if "all" in emit else emit or default
    stem = f"{compiled.name}.{target.name}"
    files = {name: f"{stem}.{suffix}" for name, suffix in suffixes.items() if name in wanted}
    for name, file in files.items():
        write_file(folder / file, compiled.asm[name])
    if "json" in wanted:  # last: where it stands, the files that it names stand too
        write_file(folder / f"{stem}.json", json.dumps(launch_facts(compiled, signature, files), indent=2) + "\n")


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
    kernel, signature = load_kernel(reference, define, position, **options)
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
