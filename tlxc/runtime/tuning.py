"""One tuning: all configurations bound, compiled in worker processes, and timed as they become ready.

Binding comes first and in order, since a configuration's hook may change descriptors; what is compiled is what was
bound then.  Whatever is wrong with a configuration becomes the reason of its trial.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tlxc.errors import TlxcError
from tlxc.runtime import cuda
from tlxc.runtime.artifact import CompiledKernel
from tlxc.runtime.config import Config
from tlxc.runtime.heuristics import complete, named_arguments
from tlxc.runtime.kernel import Call, Kernel
from tlxc.runtime.pool import Pool
from tlxc.runtime.progress import progress
from tlxc.runtime.restore import Restored
from tlxc.runtime.timing import Hung, Timer
from tlxc.runtime.trial import Trial
from tlxc.runtime.workers import compiling_in

if TYPE_CHECKING:
    from tlxc.runtime.autotune import Autotuner


class TuningError(TlxcError):
    """No configuration is left, or one of them took the GPU from this process."""


@dataclass
class _Try:
    """One configuration on its way; `call` is there once it is bound."""

    config: Config
    kwargs: dict[str, Any]
    trial: Trial
    call: Call | None = None
    error: TlxcError | None = None

    def fail(self, error: TlxcError) -> None:
        self.error, self.trial.reason = error, reason_of(error)


def reason_of(error: TlxcError) -> str:
    """What an error says, without the excerpt of the source."""
    lines = [line for line in str(error).splitlines() if "| " not in line]
    return " ".join(line.strip() for line in lines)


class Tuning:
    """A tuning of `tuner` for one call on one GPU, in the stream that its launches use."""

    def __init__(
        self, tuner: Autotuner, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any], configs: Sequence[Config]
    ) -> None:
        self.tuner, self.kernel, self.args, self._grid = tuner, tuner.kernel, args, grid
        self._lost = False
        given = named_arguments(self.kernel, args, kwargs)
        self._restored = Restored(tuner.reset_to_zero, tuner.restore_value, given)  # before any hook
        self.tries = [self._bound(config, kwargs) for config in configs]
        if all(t.error is not None for t in self.tries):
            error = self.tries[0].error
            assert error is not None
            raise error  # it is the call that is wrong, or all configurations are alike

    @property
    def empty(self) -> bool:
        """Whether a launch does nothing, so that there is nothing to time."""
        return any(t.call is not None and 0 in t.call.grid for t in self.tries)

    @property
    def trials(self) -> list[Trial]:
        return [t.trial for t in self.tries]

    def _bound(self, config: Config, kwargs: Mapping[str, Any]) -> _Try:
        made = _Try(config, {**kwargs, **config.all_kwargs()}, Trial(str(config)))
        try:
            made.kwargs = complete(self.tuner.fn, self.args, made.kwargs)
            if config.pre_hook is not None:
                config.pre_hook(self.arguments(made))
            made.call = self.kernel.call(self._grid, self.args, made.kwargs)
        except TlxcError as error:
            made.fail(error)
        return made

    def arguments(self, of: _Try) -> dict[str, Any]:
        """All arguments by name, as hooks see them."""
        return named_arguments(self.kernel, self.args, of.kwargs)

    def _compiled(self, gpu: cuda.Device, step: Callable[[int], None]) -> Generator[_Try, None, None]:
        """Compiles what was bound; yields those that succeed, as they become ready."""
        waiting = [t for t in self.tries if t.call is not None and not t.trial.reason]
        step(len(self.tries) - len(waiting))
        pool = Pool()
        with ThreadPoolExecutor(pool.workers) as threads, pool:  # left first, so that no thread waits for a worker
            futures: dict[Future[CompiledKernel], _Try] = {
                threads.submit(_compile, pool, self.kernel, t.call, gpu): t for t in waiting if t.call is not None
            }
            try:
                for future in as_completed(futures):
                    one = futures[future]
                    try:
                        one.trial.describe(future.result())
                    except TlxcError as error:
                        one.fail(error)
                    else:
                        yield one
                    step(1)
            finally:
                threads.shutdown(wait=False, cancel_futures=True)

    def run(self, gpu: cuda.Device, stream: int) -> Trial:
        """Tries everything and returns the fastest trial.  Raises `TuningError` where none has a time, and where a
        configuration ended this process's use of the GPU: its trial is `fatal` then."""
        timer = Timer(gpu, stream, self.tuner.limit_s) if self.tuner.do_bench is None else None
        try:
            self._time_all(gpu, partial(self._time, gpu, stream, timer))
        except Exception:
            if timer is not None and not self._lost:
                timer.close()
            raise
        if timer is not None:
            timer.close()
        timed = [trial for trial in self.trials if trial.us is not None]
        if not timed:
            raise TuningError(self._nothing_left())
        return min(timed, key=lambda trial: trial.us or 0.0)

    def _time_all(self, gpu: cuda.Device, time: Callable[[_Try], None]) -> None:
        """Those that spill are timed only where nothing else is left."""
        spilling: list[_Try] = []
        label = f"tuning {self.kernel.name}"
        with progress(len(self.tries), label) as step, closing(self._compiled(gpu, step)) as ready:
            for one in ready:
                if one.trial.spilled:
                    spilling.append(one)
                else:
                    time(one)
        others = any(trial.us is not None for trial in self.trials)
        for one in spilling:
            if others:
                one.trial.reason = f"it spills {one.trial.spilled} bytes a thread"
            else:
                time(one)
        self._restored.reset()

    def _time(self, gpu: cuda.Device, stream: int, timer: Timer | None, one: _Try) -> None:
        def launch(stream: int) -> None:
            self.kernel[self._grid](*self.args, **{**one.kwargs, "stream": stream})

        around = partial(self._around, one, self.arguments(one))
        try:
            if timer is not None:
                one.trial.us = timer.median_us(launch, around)
            else:
                one.trial.us = _benched(self.tuner.do_bench, lambda: around(lambda: launch(stream)))
        except TlxcError as error:
            one.fail(error)
            if isinstance(error, Hung) or _is_lost(gpu):
                one.trial.fatal = self._lost = True
                raise TuningError(self._fatal(one)) from error
            self._restored.restore()

    def _around(self, one: _Try, arguments: dict[str, Any], run: Callable[[], None]) -> None:
        """A run that only measures, between its hooks."""
        if one.config.pre_hook is not None:
            one.config.pre_hook(arguments)
        self._restored.reset()
        self.tuner.before(arguments)
        try:
            run()
        except BaseException as error:
            self.tuner.after(arguments, error)
            raise
        self.tuner.after(arguments, None)
        self._restored.restore()

    def _fatal(self, one: _Try) -> str:
        return (
            f"Tuning {self.kernel.name}, the configuration {one.config} took the GPU from this process: "
            f"{one.trial.reason}. Run the program again: this configuration is skipped from then on (`tlxc tune show "
            f"{self.kernel.name}` says so). To find its fault, run `tlxc check`, or launch it with the environment "
            "variable TLXC_TRAP_ON_TIMEOUT=2000000000 and ask tlxc.explain_trap()."
        )

    def _nothing_left(self) -> str:
        lines = [f"No configuration of {self.kernel.name} could be timed:"]
        return "\n".join([*lines, *(f"  {trial.config}: {trial.reason}" for trial in self.trials)])


def _compile(pool: Pool, kernel: Kernel, call: Call, gpu: cuda.Device) -> CompiledKernel:
    with compiling_in(pool):
        return kernel.compile_call(call, gpu)


def _benched(do_bench: Any, call: Callable[[], None]) -> float:
    """Microseconds, of a function that gives milliseconds or several quantiles of them, the median first."""
    given = do_bench(call, quantiles=(0.5, 0.2, 0.8))
    return 1e3 * float(given[0] if isinstance(given, (tuple, list)) else given)


def _is_lost(gpu: cuda.Device) -> bool:
    """Whether the process can use the GPU no more: then every call fails with the error of the kernel."""
    try:
        with cuda.in_context(gpu):
            cuda.call("cuCtxSynchronize")
    except cuda.DriverError:
        return True
    return False
