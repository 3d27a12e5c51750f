"""`tlxc cache`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tlxc.deploy.write import FileError

from .group import main
from .text import table

if TYPE_CHECKING:
    from tlxc.runtime.cache import Cache, Stored


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
        click.echo(table([head, *map(_entry_row, entries)]), nl=False)
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
