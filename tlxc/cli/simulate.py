"""Commands that run kernels without a GPU: `tlxc check`, `tlxc trace`, `tlxc run`."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

import click

from tlxc.deploy.write import write_file
from tlxc.errors import TlxcError
from tlxc.targets import Target

from .group import main
from .kernels import find_kernel, load_file, split_reference
from .options import parse_targets


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
