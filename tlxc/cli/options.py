"""Options that several commands share, and what their texts mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from tlxc.deploy.signature import parse_value
from tlxc.targets import TargetError, get_target

F = TypeVar("F", bound=Callable[..., Any])

# Options of a launch that commands take
LAUNCH_OPTIONS = {"num_warps": "--num-warps N", "maxnreg": "--maxnreg N", "ctas_per_cga": "--ctas-per-cga X,Y,Z"}


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


def of_a_kernel(several_targets: bool) -> Callable[[F], F]:
    """The parameters that commands on one kernel share."""
    options = kernel_options(several_targets)
    return lambda command: click.argument("reference", metavar="FILE[:KERNEL]")(options(command))


def kernel_options(several_targets: bool, required: bool = True) -> Callable[[F], F]:
    """Options of commands on kernels."""

    def decorate(command: F) -> F:
        targets = click.option(
            "-t", "--target", "targets" if several_targets else "target", required=required,
            multiple=several_targets,
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
        return targets(types(define(warps(registers(cluster(config(command)))))))

    return decorate
