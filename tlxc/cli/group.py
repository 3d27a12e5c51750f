"""The command `tlxc` itself."""

from __future__ import annotations

from typing import Any

import click

from tlxc import __version__
from tlxc.errors import TlxcError


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
