"""The kernel that a command means: its file, itself, its signature."""

from __future__ import annotations

import difflib
import linecache
import sys
import tokenize
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from tlxc.compiler import Compiled, compile_kernel, compile_text
from tlxc.deploy.signature import parse_signature
from tlxc.deploy.write import FileError
from tlxc.errors import CompileError, Location, TlxcError
from tlxc.frontend.source import MISSING
from tlxc.ir.types import Descriptor, Pointer, Scalar
from tlxc.targets import Target

from .text import listed

if TYPE_CHECKING:
    from tlxc.frontend.signature import Signature
    from tlxc.runtime.heuristics import Launchable
    from tlxc.runtime.kernel import Kernel


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
    names = listed([n for n, k in own.items() if n == k.name] or list(own))
    if name is not None:
        raise FileError(f"{file} has no kernel `{name}`; it defines {names or 'none'}.")
    if not own:
        elsewhere = f"; to take one that it imports, write {file}:{next(iter(known))}" if known else ""
        raise FileError(f"{file} defines no kernel; decorate a function with @tlxc.kernel{elsewhere}.")
    distinct = {id(k): k for k in own.values()}
    if len(distinct) > 1:
        raise FileError(f"{file} defines {len(distinct)} kernels, {names}; name one, as in {file}:{next(iter(own))}.")
    return next(iter(distinct.values()))


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


def compiler_of(
    reference: str, define: Mapping[str, Any], types: str | None, position: int | None, **options: Any
) -> tuple[Callable[[Target], Compiled], Signature]:
    """A function that compiles what a command names, a kernel of a Python file or a file of tile IR, and its signature.
    Arguments as for `load_kernel`."""
    if reference.endswith(".tlxir"):
        return load_ir(reference, {"-D": define, "--signature": types, "--config": position is not None, **options})
    kernel, signature = load_kernel(reference, define, types, position, **options)
    return partial(compile_kernel, kernel.__tlxc_source__, signature), signature


def load_ir(file: str, given: Mapping[str, Any]) -> tuple[Callable[[Target], Compiled], Signature]:
    """A function that compiles the tile IR of a file, and the signature that it has; it takes no options."""
    from tlxc.frontend.signature import Argument, Signature
    from tlxc.ir.parser import ParseError, parse_module

    options = [name for name, value in given.items() if value]
    if options:
        raise FileError(
            f"{file} is tile IR, whose constants and options are fixed; leave out {listed(options)}, or give the "
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
            raise FileError(f"{where} has no parameter `{name}`.{hint} Its parameters are {listed(names)}.")
    missing = [p.name for p in source.parameters if p.constexpr and p.default is MISSING and p.name not in define]
    if missing:
        give = " ".join(f"-D {name}=..." for name in missing)
        names = [f"`{name}`" for name in missing]
        plural = "s" * (len(missing) > 1)
        raise FileError(f"{where} needs a value for its compile-time parameter{plural} {listed(names)}; give {give}.")
