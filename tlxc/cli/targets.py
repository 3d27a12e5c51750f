"""`tlxc targets`."""

from __future__ import annotations

import textwrap

import click

from tlxc.targets import all_targets

from .group import main
from .text import table


@main.command("targets")
def targets_command() -> None:
    """Lists the GPUs that tlxc knows."""
    head = ("target", "vendor", "warp", "shared KiB", "registers")
    rows = [(t.name, t.vendor, str(t.warp_size), str(t.max_shared >> 10), str(t.max_registers)) for t in all_targets()]
    lines = table([head, *rows]).splitlines()
    click.echo(lines[0])
    for line, target in zip(lines[1:], all_targets()):
        click.echo(line)
        click.echo(textwrap.fill(" ".join(sorted(target.features)), 100, initial_indent="  ", subsequent_indent="  "))
