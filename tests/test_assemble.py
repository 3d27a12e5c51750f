"""The assembler: where it is found, what its report says, how its refusals read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tlxc.codegen.nvptx import assemble as asm

PTX = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p0, .param .u32 p1)
.maxntid 128
{
 .reg .b64 %rd<4>; .reg .b32 %r<4>;
 .shared .align 4 .b8 s[64];
 ld.param.u64 %rd1,[p0];
 ld.param.u32 %r1,[p1];
 cvta.to.global.u64 %rd2,%rd1;
 bar.sync 0;
 st.global.u32 [%rd2],%r1;
 st.shared.u32 [s],%r1;
 ret;
}
"""
LOG = """ptxas info    : 0 bytes gmem
ptxas info    : (C7519) Potential Performance Loss: wgmma.mma_async instructions are serialized in function 'k'
ptxas kernel.ptx, line 9; warning : setmaxnreg ignored
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    32 bytes stack frame, 24 bytes spill stores, 28 bytes spill loads
ptxas info    : Used 168 registers, used 3 barriers, 1024 bytes smem
ptxas info    : Compile time = 9.341 ms
"""


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TLXC_PTXAS", raising=False)


def fake_wheel(root: Path, toolkit: str, dist: str, reports: str = "V0.0") -> Path:
    path = root / "nvidia" / toolkit / "bin" / "ptxas"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'release, {reports}'\n")
    path.chmod(0o755)
    (root / f"{dist}.dist-info").mkdir()
    return path


def test_the_dependency_is_found_and_named() -> None:
    found = asm.find_ptxas(max_major=12)
    assert found.path.endswith("nvidia/cuda_nvcc/bin/ptxas")
    assert found.version.startswith("12.9")
    assert found.version == asm._ask_version(found.path)


def test_an_empty_environment_suffices() -> None:
    code = "from tlxc.codegen.nvptx.assemble import find_ptxas; a = find_ptxas(); print(a.path, a.version)"
    root = Path(asm.__file__).parents[3]
    out = subprocess.run(
        ["env", "-i", "PATH=/usr/bin:/bin", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=root,
        check=True,
    ).stdout.split()
    assert "site-packages" in out[0] and int(out[1].partition(".")[0]) >= 12


def test_search_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_wheel(tmp_path, "cuda_nvcc", "nvidia_cuda_nvcc_cu12-12.9.86")
    new = fake_wheel(tmp_path, "cu13", "nvidia_cuda_nvcc-13.5.37")
    own = tmp_path / "own"
    shutil.copy(old, own)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (asm.find_ptxas().path, asm.find_ptxas().version) == (str(new), "13.5.37")
    assert asm.find_ptxas(max_major=13).path == str(new)
    assert (asm.find_ptxas(max_major=12).path, asm.find_ptxas(max_major=12).version) == (str(old), "12.9.86")
    monkeypatch.setenv("TLXC_PTXAS", str(own))
    assert asm.find_ptxas(max_major=12).path == str(own)


def test_path_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    tool = fake_wheel(tmp_path, "x", "y-1", reports="V12.4.131")
    shutil.copy(tool, folder / "ptxas")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    assert (asm.find_ptxas().path, asm.find_ptxas().version) == (str(folder / "ptxas"), "12.4.131")
    with pytest.raises(asm.AssemblerError) as error:
        asm.find_ptxas(max_major=11)
    assert str(error.value) == (
        f"No ptxas fits the driver, which knows CUDA 11 at most ({folder}/ptxas is of CUDA 12); "
        "run: pip install nvidia-cuda-nvcc-cu12==12.9.86"
    )


def test_no_room_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, text: str, encoding: str) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(asm.AssemblerError) as error:
        asm.assemble("text", "sm_90a")
    assert str(error.value) == (
        "The files of ptxas could not be kept in the temporary folder: [Errno 28] No space left on device. Make room "
        "there, or set TMPDIR to another folder."
    )
    assert error.value.ptx == "text"


def test_nothing_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(asm.AssemblerError) as error:
        asm.find_ptxas()
    assert str(error.value) == (
        "No ptxas was found in TLXC_PTXAS, in Python's site-packages or on PATH; "
        "run: pip install nvidia-cuda-nvcc-cu12==12.9.86"
    )


def test_a_wrong_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TLXC_PTXAS", "/nowhere/ptxas")
    with pytest.raises(asm.AssemblerError) as error:
        asm.find_ptxas()
    assert (
        str(error.value)
        == "TLXC_PTXAS names /nowhere/ptxas, which is not a program; give the path of a ptxas or unset it."
    )


def test_a_replaced_assembler_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = fake_wheel(tmp_path, "x", "y-1", reports="V12.4.131")
    monkeypatch.setenv("TLXC_PTXAS", str(tool))
    first = asm.find_ptxas()
    assert first.version == "12.4.131"
    tool.write_text("#!/bin/sh\necho V12.8.1\n")
    os.utime(tool, ns=(1, 1))
    second = asm.find_ptxas()
    assert second.version == "12.8.1"
    assert first.identity != second.identity


def test_a_kernel_assembles_with_its_report() -> None:
    made = asm.assemble(PTX, "sm_90a")
    assert made.cubin[:4] == b"\x7fELF"
    assert 0 < made.registers <= 32
    assert (made.spill_stores, made.spill_loads, made.stack_bytes, made.shared_bytes) == (0, 0, 0, 64)
    assert made.barriers == 1 and made.notes == ()
    assert made.path == asm.find_ptxas().path and made.version == asm.find_ptxas().version


def test_every_number_and_note_of_a_report() -> None:
    made = asm.parse_report(LOG, b"", asm.find_ptxas())
    assert (made.registers, made.barriers, made.shared_bytes) == (168, 3, 1024)
    assert (made.stack_bytes, made.spill_stores, made.spill_loads) == (32, 24, 28)
    assert made.notes == (
        "(C7519) Potential Performance Loss: wgmma.mma_async instructions are serialized in function 'k'",
        "kernel.ptx, line 9; warning : setmaxnreg ignored",
    )


def test_a_refusal_shows_the_first_errors_and_keeps_the_ptx() -> None:
    broken = PTX.replace("ret;", "foo.bar;")
    with pytest.raises(asm.AssemblerError) as error:
        asm.assemble(broken, "sm_90a")
    text = str(error.value)
    assert "refused the PTX of this kernel for sm_90a:" in text
    assert "kernel.ptx, line 16; error   : Not a name of any known instruction: 'foo'" in text
    assert error.value.ptx == broken and "fatal" in error.value.log


def test_a_slow_assembler_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "ptxas"
    tool.write_text("#!/bin/sh\nexec sleep 20\n")
    tool.chmod(0o755)
    monkeypatch.setenv("TLXC_PTXAS", str(tool))
    monkeypatch.setattr(asm, "TIMEOUT_S", 0.2)
    with pytest.raises(asm.AssemblerError, match="took longer than 0.2 s on this kernel and was ended"):
        asm.assemble(PTX, "sm_90a")
