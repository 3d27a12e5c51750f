"""The autotuner on a fake driver: choosing, keys, hooks, pruning, skipping, records on disk, capture, simulation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crashing
import numpy as np
import pytest
from click.testing import CliRunner, Result
from fake_driver import Array, FakeDriver, Launch, bfloat16, install, install_compiler

import tlxc
from tlxc import Config, compiler, tl
from tlxc.cli import main
from tlxc.errors import CompileError, TlxcError
from tlxc.runtime import artifact, cuda, trial
from tlxc.runtime.bind import ArgumentError
from tlxc.runtime.cache import Cache, Entry
from tlxc.runtime.kernel import CaptureError
from tlxc.runtime.timing import Hung
from tlxc.runtime.tuning import TuningError

ROOT = Path(tlxc.__file__).parents[1]
TIMES = {32: 3.0, 64: 1.0, 128: 2.0}  # milliseconds by BLOCK


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TLXC_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    made = install(monkeypatch)
    made.parameters = 2
    return made


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    return install_compiler(monkeypatch)


def add(x, n, BLOCK: tl.constexpr = 8, SCALE: tl.constexpr = 1):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + SCALE, mask=at < n)


class Bench:
    """Runs once and looks the time up.  `runs`: the BLOCK of each."""

    def __init__(self, times: dict[int, float] | None = None) -> None:
        self.times, self.runs = times or TIMES, []
        self.arguments: dict[str, Any] = {}

    def note(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments

    def __call__(self, call: Callable[[], None], quantiles: tuple[float, ...]) -> tuple[float, ...]:
        assert quantiles == (0.5, 0.2, 0.8)
        call()
        self.runs.append(self.arguments["BLOCK"])
        return (self.times[self.arguments["BLOCK"]], 0.0, 0.0)


def tuned(bench: Bench, configs: Any = None, inner: Any = lambda kernel: kernel, **options: Any) -> Any:
    """A tuned kernel that no test has launched yet."""
    configs = configs or [Config({"BLOCK": block}) for block in TIMES]
    options = {"key": ["n"], "pre_hook": bench.note, "do_bench": bench, **options}
    return tlxc.autotune(configs, **options)(inner(tlxc.kernel(add)))


def blocks(launches: list[Launch]) -> list[int]:
    """The BLOCK of launches whose grid was `grid`."""
    return [launch.grid[0] for launch in launches]


def grid(arguments: dict[str, Any]) -> tuple[int]:
    return (arguments["BLOCK"],)


A = Array()


# -- choosing


def test_the_fastest_is_launched_from_then_on(fake: FakeDriver, compiled: list[Any]) -> None:
    bench = Bench()
    kernel = tuned(bench)
    kernel[grid](A, 100)
    assert sorted(bench.runs) == [32, 64, 128]
    assert blocks(fake.launches)[-1] == 64 and len(fake.launches) == 4
    assert str(kernel.best_config) == "BLOCK=64" and list(kernel.cache.values()) == [kernel.best_config]
    kernel[grid](A, 100)
    assert len(bench.runs) == 3 and blocks(fake.launches)[-1] == 64
    assert len(compiled) == 3


def test_a_key_is_values_and_dtypes(fake: FakeDriver, compiled: list[Any]) -> None:
    bench = Bench()
    kernel = tuned(bench)
    for x, n in ((A, 100), (A, 101), (Array(bfloat16), 101), (Array(device=1), 101), (A, 100), (A, 101)):
        kernel[grid](x, n)
    assert len(bench.runs) == 9 and len(kernel.cache) == 4  # both GPUs are of one card, so the record serves both
    kernel = tuned(bench := Bench(), key=[])
    for n in (100, 101):
        kernel[grid](A, n)
    assert len(bench.runs) == 3


def test_a_changed_constant_of_the_module_tunes_again(
    fake: FakeDriver, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def scaled(x, n, BLOCK: tl.constexpr = 8):  # type: ignore[no-untyped-def]
        tl.store(x + tl.arange(0, BLOCK), FACTOR * n)

    bench = Bench()
    kernel = tlxc.autotune([Config({"BLOCK": b}) for b in TIMES], pre_hook=bench.note, do_bench=bench)(
        tlxc.kernel(scaled)
    )
    kernel[1](A, 100)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 2)
    kernel[1](A, 100)
    assert len(bench.runs) == 6


FACTOR = 1


def test_one_configuration_is_not_timed(fake: FakeDriver, compiled: list[Any]) -> None:
    bench = Bench()
    kernel = tuned(bench, [Config({"BLOCK": 64}, num_warps=8)])
    kernel[grid](A, 100)
    assert not bench.runs and fake.launches[0].block == (256, 1, 1)


def test_an_empty_grid_is_not_timed(fake: FakeDriver, compiled: list[Any]) -> None:
    bench = Bench()
    kernel = tuned(bench)
    assert kernel[0](A, 100) is None
    assert not bench.runs and not fake.launches and not kernel.cache


def test_options_of_the_launch_are_chosen(fake: FakeDriver, compiled: list[Any]) -> None:
    bench = Bench()
    configs = [Config({"BLOCK": b}, num_warps=b // 16, maxnreg=64, ctas_per_cga=(2, 1, 1)) for b in TIMES]
    kernel = tuned(bench, configs)
    code = kernel[(4,)](A, 100)
    assert (code.num_warps, code.maxnreg, code.cluster) == (4, 64, (2, 1, 1))
    assert (configs[1].num_warps, configs[1].maxnreg, configs[1].num_stages) == (4, 64, None)
    assert configs[1].all_kwargs() == {"BLOCK": 64, "num_warps": 4, "maxnreg": 64, "ctas_per_cga": (2, 1, 1)}


def test_a_prepared_launch(fake: FakeDriver, compiled: list[Any]) -> None:
    hooks: list[int] = []
    configs = [Config({"BLOCK": b}, pre_hook=lambda arguments: hooks.append(arguments["BLOCK"])) for b in TIMES]
    kernel = tuned(bench := Bench(), configs, inner=tlxc.heuristics({"SCALE": lambda arguments: arguments["BLOCK"]}))
    launch = kernel.prepare(A, 100, grid=grid, stream=0x99)
    assert len(bench.runs) == 3 and hooks[-1] == 64 and len(fake.launches) == 3
    assert {launch.stream for launch in fake.launches} == {0x99}
    del hooks[:]
    launch(), launch()
    assert blocks(fake.launches[3:]) == [64, 64] and not hooks
    x = np.zeros(64, np.float32)
    with tlxc.simulate(), pytest.warns(UserWarning):
        kernel.prepare(x, 64, grid=1)()
    assert (x[:32] == 32).all()


def test_two_threads_tune_once(fake: FakeDriver, compiled: list[Any]) -> None:
    class Slow(Bench):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            time.sleep(0.02)
            return super().__call__(*args, **kwargs)

    kernel = tuned(bench := Slow())
    threads = [threading.Thread(target=lambda: kernel[grid](A, 100)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(bench.runs) == 3 and len(fake.launches) == 7


# -- hooks and arrays


class Tensor(Array):
    """An array with a content, of one number."""

    content = 5

    def zero_(self) -> None:
        self.content = 0

    def clone(self) -> Tensor:
        copy = Tensor()
        copy.content = self.content
        return copy

    def copy_(self, other: Tensor) -> None:
        self.content = other.content


def test_order_of_hooks(fake: FakeDriver, compiled: list[Any]) -> None:
    said: list[Any] = []
    x, bench = Tensor(), Bench()

    def own(arguments: dict[str, Any]) -> None:
        said.append(("config", arguments["BLOCK"], arguments["num_warps"], arguments["n"]))

    def before(arguments: dict[str, Any]) -> None:
        bench.note(arguments)
        said.append(("pre", arguments["BLOCK"], x.content))
        x.content = 7

    def after(arguments: dict[str, Any], exception: BaseException | None) -> None:
        said.append(("post", arguments["BLOCK"], exception))

    configs = [Config({"BLOCK": block}, pre_hook=own, num_warps=8) for block in (32, 64)]
    kernel = tuned(bench, configs, pre_hook=before, post_hook=after, reset_to_zero=["x"])
    kernel[grid](x, 100)
    bound = [("config", block, 8, 100) for block in (32, 64)]
    assert said[:2] == bound  # what they change is in what is compiled
    runs = [[("config", b, 8, 100), ("pre", b, 0), ("post", b, None)] for b in (32, 64)]
    assert said[2:8] in (runs[0] + runs[1], runs[1] + runs[0])
    assert said[8:] == [("config", 64, 8, 100)] and x.content == 0
    kernel[grid](x, 100)
    assert said[9:] == [("config", 64, 8, 100)]


def test_values_are_restored(fake: FakeDriver, compiled: list[Any]) -> None:
    seen = []
    x, bench = Tensor(), Bench()

    def spoil(arguments: dict[str, Any]) -> None:
        bench.note(arguments)
        seen.append(x.content)
        x.content += 1

    kernel = tuned(bench, pre_hook=spoil, restore_value=["x"])
    kernel[grid](x, 100)
    assert seen == [5, 5, 5] and x.content == 5


def test_arrays_that_cannot_be_restored_are_refused(fake: FakeDriver, compiled: list[Any]) -> None:
    with pytest.raises(TlxcError) as error:
        tuned(Bench(), restore_value=["x"])[grid](A, 100)
    assert str(error.value) == (
        "restore_value names `x`, which is a Array; it can be a torch tensor or a TensorDescriptor of one. Of other "
        "arrays let pre_hook and post_hook take care."
    )


def test_a_hook_that_changes_a_descriptor_decides_the_code(fake: FakeDriver, compiled: list[Any]) -> None:
    def copy(x, BLOCK: tl.constexpr = 8):  # type: ignore[no-untyped-def]
        x.store([0, 0], x.load([0, 0]))

    def shape(arguments: dict[str, Any]) -> None:
        arguments["x"].block_shape = [16, arguments["BLOCK"]]

    fake.parameters, bench = 1, Bench()
    configs = [Config({"BLOCK": block}, pre_hook=shape) for block in TIMES]
    kernel = tlxc.autotune(configs, pre_hook=bench.note, do_bench=bench)(tlxc.kernel(copy))
    x = tlxc.TensorDescriptor.from_tensor(Array(shape=(256, 256)), [16, 16])
    code = kernel[1](x)
    assert sorted(str(s.arguments[0][1].type.shape) for s in compiled) == ["(16, 128)", "(16, 32)", "(16, 64)"]
    assert x.block_shape == [16, 64] and code.metadata["params"][0]["box"] == [16, 64]
    assert sorted(m["box"] for m in fake.maps) == [[32, 16], [64, 16], [128, 16]]


# -- pruning


def test_pruning(fake: FakeDriver, compiled: list[Any]) -> None:
    def early(configs: list[Config], named: dict[str, Any], **kwargs: Any) -> list[Config]:
        assert (named["n"], named["SCALE"], kwargs) == (100, 2, {"SCALE": 2})
        return [c for c in configs if c.kwargs["BLOCK"] != 64]

    kernel = tuned(bench := Bench(), prune_configs_by={"early_config_prune": early})
    kernel[grid](A, 100, SCALE=2)
    assert sorted(bench.runs) == [32, 128] and str(kernel.best_config) == "BLOCK=128"

    def model(**arguments: Any) -> float:
        return -arguments["BLOCK"] * arguments["n"]

    for top in (1, 0.4):
        kernel = tuned(bench := Bench(), prune_configs_by={"perf_model": model, "top_k": top})
        kernel[grid](A, 100)
        assert not bench.runs and str(kernel.best_config) == "BLOCK=128"
    kernel = tuned(bench := Bench(), prune_configs_by={"perf_model": model, "top_k": 2})
    kernel[grid](A, 100)
    assert sorted(bench.runs) == [64, 128]


def test_pruning_to_nothing(fake: FakeDriver, compiled: list[Any]) -> None:
    kernel = tuned(Bench(), prune_configs_by={"early_config_prune": lambda configs, named, **kwargs: []})
    with pytest.raises(TuningError, match=r"^add: early_config_prune left none of 3 configurations\.$"):
        kernel[grid](A, 100)


# -- what is skipped


def shown(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tune", *arguments], prog_name="tlxc", catch_exceptions=False)


def compile_by(monkeypatch: pytest.MonkeyPatch, change: Callable[[int, dict[str, Any]], None]) -> None:
    """Calls `change(BLOCK, metadata)` in each compilation."""
    whole = artifact._compile

    def compile_(source: Any, signature: Any, *rest: Any) -> Entry:
        entry = whole(source, signature, *rest)
        change(dict(signature.constants)["BLOCK"], entry.metadata)
        return entry

    monkeypatch.setattr(artifact, "_compile", compile_)


def test_failures_are_skipped_and_shown(
    fake: FakeDriver, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(block: int, metadata: dict[str, Any]) -> None:
        if block == 64:
            raise CompileError("too large", found="64", allowed="less")
        metadata |= {"spill_bytes": 24 * (block == 128)}

    compile_by(monkeypatch, change)
    configs = [*(Config({"BLOCK": b}) for b in TIMES), Config({"BLOCK": 32}, num_warps=3)]
    kernel = tuned(bench := Bench(), configs)
    kernel[grid](A, 100)
    assert bench.runs == [32] and str(kernel.best_config) == "BLOCK=32"
    lines = shown("show").output.splitlines()
    assert lines[0] == "add (n=100; x: float16)"
    assert lines[1].startswith("  fake, CUDA 13.0, tlxc 0.1.0 llvmlite 0.50.0 assembler ptxas 12.9.86; 20")
    where = f"add ({__file__}:{add.__code__.co_firstlineno})"
    assert lines[2:] == [
        "  *  3000.00 us  BLOCK=32  (16 registers, 64 bytes shared)",
        "     skipped  BLOCK=64: error: too large found: 64 allowed: less",
        "     skipped  BLOCK=128: it spills 24 bytes a thread",
        f"     skipped  BLOCK=32 num_warps=3: {where}: num_warps is 3; it may be 1, 2, 4, 8, 16 or 32.",
    ]


def test_spilling_is_better_than_nothing(
    fake: FakeDriver, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_by(monkeypatch, lambda block, metadata: metadata.update(spill_bytes=block))
    kernel = tuned(bench := Bench())
    kernel[grid](A, 100)
    assert sorted(bench.runs) == [32, 64, 128] and str(kernel.best_config) == "BLOCK=64"
    assert "  *  1000.00 us  BLOCK=64  (16 registers, 64 bytes shared, 64 bytes spilled)" in shown("show", "add").output


def test_a_refused_launch_is_skipped(fake: FakeDriver, compiled: list[Any]) -> None:
    class Refusing(Bench):
        def __call__(self, call: Any, quantiles: Any) -> Any:
            fake.status = 719 * (self.arguments.get("BLOCK") == 64)
            try:
                return super().__call__(call, quantiles)
            finally:
                fake.status = 0

    def note(arguments: dict[str, Any]) -> None:
        bench.note(arguments)
        fake.status = 719 * (arguments["BLOCK"] == 64)

    kernel = tuned(bench := Refusing(), pre_hook=note)
    kernel[grid](A, 100)
    assert str(kernel.best_config) == "BLOCK=128"
    assert "skipped  BLOCK=64: Launching add failed with CUDA_ERROR_LAUNCH_FAILED" in shown("show").output


def test_a_crash_of_the_compiler_is_skipped(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Compiled in earnest, by worker processes."""
    monkeypatch.setattr(compiler, "compile_text", crashing.compile_and_segfault)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bench = Bench({512: 1.0, 64: 3.0, 128: 2.0})
    kernel = tuned(bench, [Config({"BLOCK": block}) for block in (512, 64, 128)])
    kernel[grid](A, 100)
    assert sorted(bench.runs) == [64, 128] and str(kernel.best_config) == "BLOCK=128"
    skipped = shown("show").output.splitlines()[-1]
    where = f"add ({__file__}:{add.__code__.co_firstlineno})"
    assert skipped.startswith(
        f"     skipped  BLOCK=512: Compiling {where} for sm_90 failed: its worker process ended by SIGSEGV. Its tile IR"
    )
    (file,) = tmp_path.glob("tlxc-crash-*/add.sm_90.*.tlxir")
    assert f"tlxc compile {file} -t sm_90" in skipped


def test_a_bar_at_a_terminal(
    fake: FakeDriver, compiled: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(Bench())[grid](A, 100)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    tuned(Bench())[grid](A, 101)
    shown_bar = capsys.readouterr().err
    assert "tuning add" in shown_bar and "100%" in shown_bar


def test_nothing_is_left(fake: FakeDriver, compiled: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def change(block: int, metadata: dict[str, Any]) -> None:
        raise CompileError(f"not {block}")

    compile_by(monkeypatch, change)
    with pytest.raises(TuningError) as error:
        tuned(Bench())[grid](A, 100)
    assert str(error.value) == (
        "No configuration of add could be timed:\n"
        "  BLOCK=32: error: not 32\n  BLOCK=64: error: not 64\n  BLOCK=128: error: not 128"
    )
    assert shown("show").output == "There are no results of tuning.\n"


def test_what_took_the_gpu_is_never_tried_again(fake: FakeDriver, compiled: list[Any]) -> None:
    class Hanging(Bench):
        def __call__(self, call: Any, quantiles: Any) -> Any:
            result = super().__call__(call, quantiles)
            if self.arguments["BLOCK"] == 64:
                raise Hung("it did not end within 10 s")
            return result

    with pytest.raises(TuningError) as error:
        tuned(Hanging())[grid](A, 100)
    assert str(error.value) == (
        "Tuning add, the configuration BLOCK=64 took the GPU from this process: it did not end within 10 s. Run the "
        "program again: this configuration is skipped from then on (`tlxc tune show add` says so). To find its fault, "
        "run `tlxc check`, or launch it with the environment variable TLXC_TRAP_ON_TIMEOUT=2000000000 and ask "
        "tlxc.explain_trap()."
    )
    assert "  not finished: " in shown("show").output
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]  # nor their processes
    kernel = tuned(bench := Bench())  # as the next process makes it
    kernel[grid](A, 100)
    assert sorted(bench.runs) == [32, 128] and str(kernel.best_config) == "BLOCK=128"
    lines = shown("show").output.splitlines()
    assert "     skipped  BLOCK=64: it did not end within 10 s" in lines and len(lines) == 5


def test_a_fault_that_ends_the_context_is_fatal(fake: FakeDriver, compiled: list[Any]) -> None:
    def fault(arguments: dict[str, Any]) -> None:
        bench.note(arguments)
        fake.status = fake.lost = 719

    kernel = tuned(bench := Bench(), pre_hook=fault)
    with pytest.raises(TuningError, match="took the GPU from this process: Launching add failed with CUDA_ERROR_LAUN"):
        kernel[grid](A, 100)
    assert sum(t.fatal for record in trial.records() for t in record.trials) == 1


# -- on disk


def test_another_process_takes_the_record(fake: FakeDriver, compiled: list[Any]) -> None:
    tuned(Bench())[grid](A, 100)
    kernel = tuned(bench := Bench())
    kernel[grid](A, 100)
    assert not bench.runs and str(kernel.best_config) == "BLOCK=64"
    kernel[grid](A, 101)
    assert len(bench.runs) == 3
    fewer = tuned(bench := Bench(), [Config({"BLOCK": b}) for b in (32, 64)])
    fewer[grid](A, 100)
    assert len(bench.runs) == 2  # other configurations are another question


def test_what_a_record_depends_on(
    fake: FakeDriver, compiled: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = []

    def count() -> int:
        tuned(bench := Bench())[grid](A, 100)
        runs.append(len(bench.runs))
        return runs[-1]

    assert (count(), count()) == (3, 0)
    monkeypatch.setattr(cuda, "cuda_version", lambda: (13, 1))
    assert (count(), count()) == (3, 0)
    monkeypatch.setattr(cuda, "device", lambda ordinal: cuda.Device(ordinal, "other", (9, 0), 0x1000))
    assert (count(), count()) == (3, 0)
    monkeypatch.setattr(tlxc, "__version__", "9")
    assert (count(), count()) == (3, 0)
    monkeypatch.setenv("TLXC_CACHE_SIZE", "0")
    monkeypatch.setenv("TLXC_CACHE_DIR", str(tmp_path / "none"))
    assert (count(), count()) == (3, 3)


def entry_file(tmp_path: Path) -> Path:
    (file,) = (tmp_path / "cache" / "tuning").glob("*.tlxc")
    return file


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "empty": lambda file: file.write_bytes(b""),
    "truncated": lambda file: file.write_bytes(file.read_bytes()[:-3]),
    "random": lambda file: file.write_bytes(os.urandom(500)),
    "best beyond the trials": lambda file: replace(file, {"best": 7}),
    "best no number": lambda file: replace(file, {"best": "x"}),
    "no trials": lambda file: replace(file, {"trials": []}),
    "too few trials": lambda file: replace(file, {"trials": [{"config": "BLOCK=64", "us": 1.0}]}),
    "trials of no kind": lambda file: replace(file, {"trials": None}),
    "a field too many": lambda file: replace(file, {"more": 1}),
    "of another key": lambda file: replace(file, {"identity": "another"}),
    "of another kind": lambda file: Cache(file.parent).store(file.stem, Entry({}, {})),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_and_foreign_records_are_replaced(
    fake: FakeDriver, compiled: list[Any], tmp_path: Path, damage: Callable[[Path], Any]
) -> None:
    tuned(Bench())[grid](A, 100)
    file = entry_file(tmp_path)
    damage(file)
    shown("show")
    kernel = tuned(bench := Bench())
    kernel[grid](A, 100)
    assert len(bench.runs) == 3 and str(kernel.best_config) == "BLOCK=64"
    tuned(bench := Bench())[grid](A, 100)
    assert not bench.runs


def replace(file: Path, change: dict[str, Any]) -> None:
    cache = Cache(file.parent)
    entry = cache.load(file.stem)
    assert entry is not None
    cache.store(file.stem, Entry({**entry.metadata, **change}, {}))


def test_values_that_no_process_can_name_are_tuned_in_each(fake: FakeDriver, compiled: list[Any]) -> None:
    class Odd:
        pass

    def configs() -> list[Config]:
        return [Config({"BLOCK": block, "SCALE": Odd()}) for block in TIMES]

    for _ in range(2):
        kernel = tuned(bench := Bench(), configs())
        kernel[grid](A, 100)
        kernel[grid](A, 100)
        assert len(bench.runs) == 3
    assert not trial.records()


PROCESS = """
import sys, time, pytest
sys.path[:0] = [{tests!r}, {root!r}]
import test_autotune as t
from fake_driver import install, install_compiler
monkeypatch = pytest.MonkeyPatch()
fake = install(monkeypatch)
fake.parameters = 2
install_compiler(monkeypatch)
for n in range(12):
    kernel = t.tuned(bench := t.Bench())
    kernel[t.grid](t.A, n + 2)
    assert str(kernel.best_config) == "BLOCK=64"
"""


def test_processes_tune_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = PROCESS.format(tests=str(ROOT / "tests"), root=str(ROOT))
    env = {**os.environ, "TLXC_CACHE_DIR": str(tmp_path)}
    processes = [subprocess.Popen([sys.executable, "-c", code], env=env) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    monkeypatch.setenv("TLXC_CACHE_DIR", str(tmp_path))
    assert [record.best for record in trial.records()] == [1] * 12
    assert len(list((tmp_path / "tuning").iterdir())) == 12


# -- tlxc tune


def test_show_as_json_and_rm(fake: FakeDriver, compiled: list[Any]) -> None:
    kernel = tuned(Bench())
    for n in (100, 101):
        kernel[grid](A, n)
    (first, second) = json.loads(shown("show", "--json").output)
    assert [t["us"] for t in first["trials"]] == [3000.0, 1000.0, 2000.0] and first["best"] == 1
    assert second["facts"]["key"] == {"n": "101"} and second["facts"]["arrays"] == {"x": "float16"}
    assert shown("show", "other").output == "There are no results of tuning of other.\n"
    assert shown("rm", "other").output == "0 removed.\n"
    assert shown("rm").exit_code == 2
    assert shown("rm", "add").output == "2 removed.\n"
    assert shown("rm", "--all").output == "0 removed.\n"
    again = tuned(bench := Bench())
    again[grid](A, 100)
    assert len(bench.runs) == 3


# -- refusals


def test_a_capture_is_refused(fake: FakeDriver, compiled: list[Any]) -> None:
    fake.capturing = True
    kernel = tuned(bench := Bench())
    with pytest.raises(CaptureError) as error:
        kernel[grid](A, 100)
    assert str(error.value) == (
        "add must be tuned for these arguments, which is not possible while a CUDA graph is being captured; launch "
        "add[grid](...) with the same arguments once before the capture."
    )
    assert not fake.launches and not compiled
    fake.capturing = False
    kernel[grid](A, 100)
    fake.capturing = True
    kernel[grid](A, 100)  # tuned, compiled and loaded
    assert len(bench.runs) == 3 and len(fake.launches) == 5


CONFIGS = [Config({"BLOCK": 64})]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: tlxc.autotune(CONFIGS)(add), r"Only a kernel can be tuned, and <function add at .*> is none; dec"),
        (lambda: tlxc.autotune([])(tlxc.kernel(add)), "add is tuned over no configurations; give at least one"),
        (lambda: tlxc.autotune([{"BLOCK": 1}])(tlxc.kernel(add)), r"add: \{'BLOCK': 1\} is no configuration; give"),
        (
            lambda: tlxc.autotune([Config({"BLOK": 1})])(tlxc.kernel(add)),
            r"add \(.*\): a configuration names `BLOK`, which is no parameter; its parameters are x, n, BLOCK, SCALE; ",
        ),
        (
            lambda: tlxc.autotune(CONFIGS, key=["m"])(tlxc.kernel(add)),
            r"add \(.*\): key names `m`, which is no parameter; its parameters are x, n, BLOCK, SCALE\.",
        ),
        (lambda: tlxc.autotune(CONFIGS, restore_value=["num_warps"])(tlxc.kernel(add)), "restore_value names `num_war"),
        (
            lambda: tlxc.autotune(CONFIGS, prune_configs_by={"top": 1})(tlxc.kernel(add)),
            "add: prune_configs_by takes early_config_prune, perf_model, top_k, and not 'top'",
        ),
        (lambda: Config({}, warps=4), "A Config has no option `warps`; launch options are num_warps, "),
        (
            lambda: Config({"num_warps": 4}),
            "A Config is given `num_warps` among values of parameters, but it is an option of the launch; give it by ",
        ),
        (lambda: tlxc.heuristics({"k": len})(tlxc.kernel(add)), r"add \(.*\): heuristics names `k`, which is no param"),
    ],
)
def test_what_cannot_be_tuned(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(TlxcError, match=message):
        make()


def test_wrong_calls(fake: FakeDriver, compiled: list[Any]) -> None:
    kernel = tuned(Bench())
    with pytest.raises(ArgumentError) as error:
        kernel[grid](A, 100, BLOCK=64)
    assert str(error.value) == (
        "add: `BLOCK` is chosen by tuning, so a launch cannot give it; leave it out, or launch the kernel that is "
        "tuned, which is the attribute `fn`."
    )
    with pytest.raises(ArgumentError, match="has no parameter `m`"):
        kernel[grid](A, 100, m=1)
    with pytest.raises(ArgumentError, match=r"missing argument `x`"):
        kernel[grid](n=100)
    with pytest.raises(ArgumentError, match=r"argument `x` is a CPU tensor of torch.float16, but kernels run on the"):
        kernel[grid](Array(device=-1), 100)
    with pytest.raises(ArgumentError, match=r"add is a kernel: launch it with a grid"):
        kernel(A, 100)
    by_array = tuned(Bench(), key=["x"])
    with pytest.raises(ArgumentError, match="`x` is in the key of its tuning, but is a tensor on cuda:0 of"):
        by_array[grid](A, 100)
    assert not fake.launches


# -- heuristics


def test_heuristics_see_all_and_set_options(fake: FakeDriver, compiled: list[Any]) -> None:
    seen: list[dict[str, Any]] = []

    def warps(arguments: dict[str, Any]) -> int:
        seen.append(arguments)
        return arguments["BLOCK"] // 16

    inner = tlxc.heuristics({"SCALE": lambda arguments: arguments["n"] + 1, "num_warps": warps})
    kernel = inner(tlxc.kernel(add))
    code = kernel[2](A, 100, BLOCK=32)
    assert code.num_warps == 2 and dict(compiled[0].constants) == {"BLOCK": 32, "SCALE": 101}
    assert (seen[0]["x"], seen[0]["SCALE"]) == (A, 101)
    with pytest.raises(ArgumentError, match="^add: `SCALE` is computed by a heuristic, so a launch cannot give it.$"):
        kernel[2](A, 100, SCALE=3)

    tuned_too = tuned(bench := Bench(), inner=inner)
    code = tuned_too[grid](A, 100)
    assert (code.num_warps, code.name) == (4, "add") and sorted(bench.runs) == [32, 64, 128]
    outermost = tlxc.heuristics({"SCALE": lambda arguments: 9})(tuned(Bench()))
    outermost[grid](A, 100)
    assert dict(compiled[-1].constants)["SCALE"] == 9


def test_warmup_compiles_all() -> None:
    inner = tlxc.heuristics({"num_warps": lambda arguments: arguments["BLOCK"] // 32})
    kernel = tuned(Bench(), inner=inner)
    codes = kernel.warmup(tl.float32, 100, target="sm_90")
    assert [(code.num_warps, code.target) for code in codes] == [(1, "sm_90"), (2, "sm_90"), (4, "sm_90")]
    assert all(code.asm["cubin"] for code in codes) and kernel.best_config is None


# -- the simulator and the command line


def test_the_simulator_takes_the_first_that_is_valid() -> None:
    hooks = []
    configs = [
        Config({"BLOCK": 64}, num_warps=3),
        Config({"BLOCK": 64}, pre_hook=lambda arguments: hooks.append(arguments["BLOCK"])),
        Config({"BLOCK": 128}),
    ]
    kernel = tuned(bench := Bench(), configs)
    x = np.zeros(100, np.float32)
    with tlxc.simulate():
        with pytest.warns(UserWarning) as warned:
            kernel[lambda arguments: (tlxc.cdiv(100, arguments["BLOCK"]),)](x, 100)
        kernel[2](x, 100)
    assert [str(w.message) for w in warned] == [
        "add is tuned on GPUs only; the simulator takes the first of its 3 configurations that is valid: BLOCK=64."
    ]
    assert (x == 2).all() and hooks == [64, 64] and not bench.runs
    with tlxc.simulate(), pytest.raises(ArgumentError, match="num_warps is 3"):
        tuned(Bench(), configs[:1] * 2)[2](x, 100)


FILE = """
import numpy as np
import tlxc
from tlxc import tl

@tlxc.autotune([tlxc.Config({"BLOCK": 64}, num_warps=2), tlxc.Config({"BLOCK": 128})], key=["n"])
@tlxc.heuristics({"ONE": lambda arguments: 1})
@tlxc.kernel
def add(x: tl.ptr(tl.float32), n: tl.int32, BLOCK: tl.constexpr, ONE: tl.constexpr = 2):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + ONE, mask=at < n)

@add.example
def whole():
    return lambda arguments: (tlxc.cdiv(128, arguments["BLOCK"]),), (np.zeros(128, np.float32), 128)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "file.py").write_text(FILE)
    return str(tmp_path / "file.py")


@pytest.mark.filterwarnings("ignore:add is tuned on GPUs only")
def test_check_runs_tuned_kernels(file: str) -> None:
    result = CliRunner().invoke(main, ["check", file, "--seeds", "2"])
    assert result.output == "add, whole: clean: all schedules of these inputs\n" and result.exit_code == 0


def test_compile_takes_one_configuration(file: str, tmp_path: Path) -> None:
    def compile_(*options: str) -> Result:
        return CliRunner().invoke(main, ["compile", file, "-t", "sm_90", "-o", str(tmp_path), *options])

    result = compile_("--config", "0", "-D", "ONE=1")
    assert result.output.startswith("add sm_90: ") and "64 threads" in result.output
    constants = json.loads((tmp_path / "add.sm_90.json").read_text())["constants"]
    assert constants == {"BLOCK": 64, "ONE": 1}
    listed = "N is one of:\n  0: BLOCK=64 num_warps=2\n  1: BLOCK=128\n"
    fix = "give --config N, and see `tlxc tune show add` for those that were the fastest on your GPUs."
    wrong = {
        (): f"add is tuned, so ahead of time one of its configurations must be chosen; {fix} {listed}",
        ("--config", "2"): f"add has no configuration 2; {fix} {listed}",
        ("--config", "0", "-D", "BLOCK=1"): "add: the configuration BLOCK=64 num_warps=2 sets BLOCK already, so leave "
        "it out.\n",
        ("--config", "0"): "add: ONE would be computed by a heuristic at the launch; give the value to compile for, as "
        "-D NAME=VALUE or as an option.\n",
    }
    for options, message in wrong.items():
        result = compile_(*options)
        assert (result.output, result.exit_code) == (message, 1)


def test_a_kernel_that_is_not_tuned_has_no_configurations() -> None:
    file = str(ROOT / "examples" / "vector_add.py")
    result = CliRunner().invoke(main, ["compile", file, "-t", "sm_90", "--config", "0"])
    assert result.output == "vector_add is not tuned, so it has no configurations to choose from.\n"
