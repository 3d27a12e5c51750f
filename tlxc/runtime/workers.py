"""Compiling in worker processes: many kernels at once, and none can end the process of the user.

The frontend runs where the user's functions are; what goes to a worker is printed tile IR.  Where LLVM or the assembler
crashes on it, that text is kept as a file, and the error says the command that compiles it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from tlxc.errors import TlxcError
from tlxc.targets import Target

if TYPE_CHECKING:
    from tlxc.codegen.nvptx.assemble import Assembler
    from tlxc.compiler import Compiled
    from tlxc.frontend.signature import Signature
    from tlxc.frontend.source import Source
    from tlxc.runtime.pool import Pool

_current: ContextVar[Pool | None] = ContextVar("tlxc_pool", default=None)


class CompilerCrash(TlxcError):
    """LLVM or the assembler ended its process, or did not end.  `file` holds the tile IR that it was given."""

    def __init__(self, message: str, file: Path) -> None:
        super().__init__(message)
        self.file = file


@contextmanager
def compiling_in(pool: Pool) -> Iterator[None]:
    """Whatever this thread compiles for launches inside, the pool compiles."""
    token = _current.set(pool)
    try:
        yield
    finally:
        _current.reset(token)


def current_pool() -> Pool | None:
    """The pool that this thread compiles in; None where it compiles by itself."""
    return _current.get()


def compile_in(
    pool: Pool,
    source: Source,
    signature: Signature,
    target: Target,
    assembler: Assembler | None,
    wait_limit: int | None = None,
) -> Compiled:
    """As `compiler.compile_kernel`, all but the frontend in a worker.  Raises `CompilerCrash` where that dies."""
    from tlxc.codegen.nvptx.assemble import AssemblerCrash
    from tlxc.compiler import Timings, build, compile_text, errors_at, notes_at
    from tlxc.ir.printer import print_module
    from tlxc.runtime.pool import WorkerDied

    timings = Timings()
    with timings.stage("frontend"):
        text = print_module(build(source, signature, target), locations=True)
    try:
        with errors_at(source):
            made = pool.run(compile_text, text, target.name, assembler, wait_limit)
    except WorkerDied as error:
        raise _crash(f"its worker process ended {error.how}", error.output, text, source, target, assembler) from None
    except AssemblerCrash as error:
        raise _crash(f"the assembler ended {error.how}", error.log, text, source, target, assembler) from None
    made.metadata["timings"] = {**timings.stages, **made.metadata["timings"]}
    return notes_at(source, made)


def _crash(
    what: str, output: str, text: str, source: Source, target: Target, assembler: Assembler | None
) -> CompilerCrash:
    """The error, with the file and the command that show the crash again."""
    import hashlib
    import shlex
    import tempfile

    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    file = Path(tempfile.mkdtemp(prefix="tlxc-crash-")) / f"{source.name}.{target.name}.{digest}.tlxir"
    file.write_text(text, encoding="utf-8")
    chosen = f"TLXC_PTXAS={shlex.quote(assembler.path)} " if assembler else ""
    command = f"{chosen}tlxc compile {shlex.quote(str(file))} -t {target.name} -o {shlex.quote(str(file.parent))}"
    lines = [f"Compiling {source.name} ({source.file}:{source.first_line}) for {target.name} failed: {what}."]
    lines += ["It printed:", *(f"  {line}" for line in output.splitlines())] if output else []
    lines += [f"Its tile IR is kept in {file}; this compiles it again:", f"  {command}"]
    return CompilerCrash("\n".join(lines), file)
