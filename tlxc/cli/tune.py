"""`tlxc tune`."""

from __future__ import annotations

import dataclasses
import json

import click

from .group import main
from .text import listed


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
        click.echo(f"There are no results of tuning{f' of {listed(kernels)}' if kernels else ''}.")


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
