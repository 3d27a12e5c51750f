"""The documentation runs: Python blocks, `tlxc` commands, and the output that is printed after them.

Blocks of a page run in order, in one namespace and one empty folder:

    ```python          run; a block that begins with `# NAME.py` is saved as that file instead
    ```python gpu      run where there is a GPU
    ```python torch    run where torch is installed
    ```console         lines `$ tlxc ...` are run, other commands are for the reader
    ```console fails   the same, exit status 1
    ```c               compiled and run with a stand-in of the driver, where there is a compiler; one that begins with
                       `/* NAME.c */` is saved as that file
    ```text            what the block before it prints

Expected output may leave out parts with `...`, within a line or as lines of their own.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from c_programs import NO_COMPILER, build_and_run, build_driver
from click.testing import CliRunner

from tlxc.cli import main
from tlxc.targets import all_targets

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Page:
    """The blocks of one page, being run."""

    def __init__(self, path: Path, folder: Path, gpu: bool) -> None:
        self.path, self.folder, self.gpu = path, folder, gpu
        self.namespace: dict[str, Any] = {"__name__": f"page_{path.stem}"}
        self.printed: str | None = None  # by the block before; None where it did not run
        self.saved: list[str] = []

    def run(self) -> None:
        text = self.path.read_text(encoding="utf-8")
        for block in _BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 2
            handler = {
                "python": self.python,
                "python gpu": self.python_on_gpu,
                "python torch": self.python_with_torch,
                "console": self.console,
                "c": self.c,
                "console fails": partial(self.console, status=1),
                "text": self.text,
            }
            if block[1] in handler:
                handler[block[1]](block[2], line)

    def python(self, code: str, line: int) -> None:
        self.printed = None
        if saved := re.match(r"# (\w+)\.py\n", code):
            (self.folder / f"{saved[1]}.py").write_text(code, encoding="utf-8")
            self.saved.append(saved[1])
            return
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * (line - 1) + code, str(self.path), "exec"), self.namespace)
        self.printed = printed.getvalue()

    def python_on_gpu(self, code: str, line: int) -> None:
        if self.gpu:
            self.python(code, line)
        else:
            compile(code, str(self.path), "exec")
            self.printed = None

    def python_with_torch(self, code: str, line: int) -> None:
        if find_spec("torch"):
            self.python(code, line)
        else:
            compile(code, str(self.path), "exec")
            self.printed = None

    def console(self, block: str, line: int, status: int = 0) -> None:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, wanted = part.partition("\n")
            words = shlex.split(command)
            if words[0] != "tlxc":
                continue
            result = CliRunner().invoke(main, words[1:], prog_name="tlxc")
            assert result.exit_code == status, f"line {line}: {result.output}"
            self.compare(wanted, result.stdout, line)

    def c(self, code: str, line: int) -> None:
        self.printed = None
        if not NO_COMPILER:
            saved = re.match(r"/\* (\w+)\.c \*/\n", code)
            source = self.folder / (f"{saved[1]}.c" if saved else "block.c")
            source.write_text(code, encoding="utf-8")
            build_driver(self.folder)
            _, printed = build_and_run(source, self.folder, self.folder)
            self.printed = None if self.gpu else printed  # a real driver says nothing

    def text(self, block: str, line: int) -> None:
        if self.printed is not None:
            self.compare(block, self.printed, line)

    def compare(self, wanted: str, got: str, line: int) -> None:
        if wanted.strip() and not doctest.OutputChecker().check_output(wanted, got, doctest.ELLIPSIS):
            pytest.fail(f"{self.path.name}, line {line}: this was printed:\n{got}", pytrace=False)


def _run(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, gpu: bool) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "operators"))
    monkeypatch.syspath_prepend(str(folder))
    page = Page(path, folder, gpu)
    try:
        page.run()
    finally:
        for name in page.saved:
            sys.modules.pop(name, None)


@pytest.mark.parametrize("path", PAGES, ids=[path.name for path in PAGES])
def test_page(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(path, tmp_path, monkeypatch, gpu=False)


@pytest.mark.gpu
@pytest.mark.parametrize("path", PAGES, ids=[path.name for path in PAGES])
def test_page_on_gpu(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    _run(path, tmp_path, monkeypatch, gpu=True)


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        prose = re.sub(r"`[^`]*`", "", _BLOCK.sub("", page.read_text(encoding="utf-8")))
        for link in re.findall(r"\]\(([^)#]+)", prose):
            assert link.startswith("https://") or (page.parent / link).exists(), f"{page.name}: {link}"


def test_commands_name_files_that_exist() -> None:
    for page in PAGES:
        for file in re.findall(r"^\$? ?.*python ([\w/]+\.py)", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert (ROOT / file).is_file(), f"{page.name}: {file}"


def test_every_environment_variable_is_explained() -> None:
    used = {
        name
        for path in (ROOT / "tlxc").rglob("*.py")
        for name in re.findall(r"\bTLXC_[A-Z_]+\b", path.read_text("utf-8"))
    }
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(TLXC_\w+)` \|", text, re.MULTILINE)) == used


def test_readme_names_every_target() -> None:
    rows = re.findall(r"^\| `((?:sm_|gfx)\w+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [target.name for target in all_targets()]
