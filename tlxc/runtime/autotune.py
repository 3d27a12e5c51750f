"""The autotuner: a kernel that is launched with the fastest of several configurations."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.types import DType
from tlxc.runtime import cuda, simulate, trial
from tlxc.runtime.arrays import is_array, is_numpy
from tlxc.runtime.artifact import CompiledKernel
from tlxc.runtime.bind import ArgumentError, describe
from tlxc.runtime.config import Config
from tlxc.runtime.descriptor import TensorDescriptor
from tlxc.runtime.fast_bind import current_device
from tlxc.runtime.grid import GridError
from tlxc.runtime.heuristics import Heuristics, Launchable, Wrapper, complete, named_arguments
from tlxc.runtime.kernel import CaptureError, Kernel
from tlxc.runtime.pool import Pool
from tlxc.runtime.streams import current_stream, handle_of
from tlxc.runtime.timing import LIMIT_S
from tlxc.runtime.tokens import as_python
from tlxc.runtime.tuning import Tuning, TuningError
from tlxc.runtime.workers import compiling_in

_PRUNING = ("early_config_prune", "perf_model", "top_k")
_KEYS = (bool, int, float, str, DType, type(None))


class Autotuner(Wrapper):
    """A kernel with configurations: see `tlxc.autotune`.

    configs: all of them.  cache: the configuration chosen for each key that this process has met.  best_config: that
    of the last launch.
    """

    kind = "tuned"

    def __init__(
        self,
        fn: Launchable,
        configs: Sequence[Config],
        key: Sequence[str] = (),
        prune_configs_by: Mapping[str, Any] | None = None,
        reset_to_zero: Sequence[str] | None = None,
        restore_value: Sequence[str] | None = None,
        pre_hook: Callable[[dict[str, Any]], Any] | None = None,
        post_hook: Callable[..., Any] | None = None,
        do_bench: Callable[..., Any] | None = None,
        limit_s: float = LIMIT_S,
    ) -> None:
        super().__init__(fn)
        self.configs, self.key = list(configs), tuple(key)
        self.reset_to_zero, self.restore_value = tuple(reset_to_zero or ()), tuple(restore_value or ())
        self.pre_hook, self.post_hook, self.do_bench, self.limit_s = pre_hook, post_hook, do_bench, limit_s
        self._prune = dict(prune_configs_by or {})
        self.cache: dict[tuple[Any, ...], Config] = {}
        self.best_config: Config | None = None
        self._lock = threading.RLock()
        self._told = False
        self._check()

    def _check(self) -> None:
        if not self.configs:
            raise TuningError(f"{self.name} is tuned over no configurations; give at least one tlxc.Config.")
        for config in self.configs:
            if not isinstance(config, Config):
                raise TuningError(f"{self.name}: {config!r} is no configuration; give tlxc.Config(...) objects.")
            self.check_names("a configuration", list(config.kwargs))
        for what, names in (
            ("key", self.key), ("reset_to_zero", self.reset_to_zero), ("restore_value", self.restore_value),
        ):  # fmt: skip
            self.check_names(what, names, options=False)
        for name in self._prune:
            if name not in _PRUNING:
                raise TuningError(f"{self.name}: prune_configs_by takes {', '.join(_PRUNING)}, and not {name!r}.")

    # -- hooks of the tuner itself, around launches that only measure

    def before(self, arguments: dict[str, Any]) -> None:
        if self.pre_hook is not None:
            self.pre_hook(arguments)

    def after(self, arguments: dict[str, Any], error: BaseException | None) -> None:
        if self.post_hook is not None:
            self.post_hook(arguments, exception=error)

    # -- launching

    def _run(self, grid: Any, /, *args: Any, **kwargs: Any) -> CompiledKernel | None:
        self._refuse_conflicts(kwargs)
        if simulate.active is not None:
            self._simulate(grid, args, kwargs)
            return None
        return self.fn[grid](*args, **self._configured(self._config(grid, args, kwargs), args, kwargs))

    def prepare(self, *args: Any, grid: Any, stream: Any = None, **kwargs: Any) -> Callable[[], CompiledKernel | None]:
        """As `Kernel.prepare`, with the configuration that a launch would take; its hook is called here, once."""
        self._refuse_conflicts(kwargs)
        if simulate.active is not None:
            return partial(self._run, grid, *args, **kwargs)
        given = self._configured(self._config(grid, args, {**kwargs, "stream": stream}), args, kwargs)
        return self.fn.prepare(*args, grid=grid, stream=stream, **given)

    def _config(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Config:
        """The configuration for a call, tuned where none is known."""
        key = self._key_of(args, kwargs)
        config = self.cache.get(key)
        if config is None:
            with self._lock:
                config = self.cache.get(key) or self._chosen(key, grid, args, kwargs)
        return config

    def _configured(self, config: Config, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments of a launch with a configuration, whose hook is called."""
        self.best_config = config
        given = {**kwargs, **config.all_kwargs()}
        if config.pre_hook is not None:
            config.pre_hook(named_arguments(self.kernel, args, complete(self.fn, args, given)))
        return given

    def _refuse_conflicts(self, kwargs: Mapping[str, Any]) -> None:
        for name in kwargs:
            if any(name in config.kwargs or name in config.options for config in self.configs):
                raise ArgumentError(
                    f"{self.name}: `{name}` is chosen by tuning, so a launch cannot give it; leave it out, or launch "
                    "the kernel that is tuned, which is the attribute `fn`."
                )

    def _simulate(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Runs the first configuration that compiles: the simulator measures no time."""
        configs, errors = self._pruned(args, kwargs), []
        for config in configs:
            try:
                self.fn[grid](*args, **self._configured(config, args, kwargs))
            except (CompileError, ArgumentError, GridError) as error:
                errors.append(error)
                continue
            if not self._told and len(configs) > 1:
                self._told = True
                warnings.warn(
                    f"{self.name} is tuned on GPUs only; the simulator takes the first of its {len(configs)} "
                    f"configurations that is valid: {config}.",
                    UserWarning,
                    stacklevel=3,
                )
            return
        raise errors[0]

    def warmup(self, *args: Any, grid: Any = None, target: Any = None, **kwargs: Any) -> list[CompiledKernel]:
        """Compiles all configurations for these arguments, in worker processes, without launching: as `Kernel.warmup`,
        but a list.  It does not tune."""
        self._refuse_conflicts(kwargs)

        def compiled(config: Config) -> CompiledKernel:
            given = complete(self.fn, args, {**kwargs, **config.all_kwargs()})
            with compiling_in(pool):
                return self.kernel.warmup(*args, grid=grid, target=target, **given)

        pool = Pool()
        with ThreadPoolExecutor(pool.workers) as threads, pool:  # left first, so that no thread waits for a worker
            return list(threads.map(compiled, self._pruned(args, kwargs)))

    # -- choosing

    def _key_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """What a choice is for: the source, the GPU, the values of `key`, and the dtypes of arrays."""
        named = self.kernel.given(args, kwargs).named
        device, dtypes = None, []
        for value in named.values():
            array = value.base if value.__class__ is TensorDescriptor else value
            if hasattr(array, "get_device"):
                device = array.get_device()
                dtypes.append(array.dtype)
            elif hasattr(array, "__cuda_array_interface__"):
                dtypes.append(array.__cuda_array_interface__["typestr"])
        values = tuple(self._plain(name, named[name]) for name in self.key)
        return (self.kernel.version().digest, current_device() if device is None else device, values, *dtypes)

    def _plain(self, name: str, value: Any) -> tuple[type, Any]:
        plain = as_python(value)
        if is_array(plain) or is_numpy(plain) or not isinstance(plain, _KEYS):
            raise ArgumentError(
                f"{self.name}: `{name}` is in the key of its tuning, but is {describe(value)}; a key is made of "
                "numbers, strings and dtypes, as the extents of an array."
            )
        return (plain.__class__, plain)

    def _pruned(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Config]:
        """The configurations to try for a call."""
        configs, named = self.configs, named_arguments(self.kernel, args, kwargs)
        if early := self._prune.get("early_config_prune"):
            configs = list(early(configs, named, **kwargs))
            if not configs:
                raise TuningError(f"{self.name}: early_config_prune left none of {len(self.configs)} configurations.")
        if model := self._prune.get("perf_model"):
            top = self._prune.get("top_k", len(configs))
            count = max(1, int(len(configs) * top) if isinstance(top, float) else top)
            if count < len(configs):
                configs = sorted(configs, key=lambda config: model(**{**named, **config.all_kwargs()}))[:count]
        return configs

    def _chosen(self, key: tuple[Any, ...], grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Config:
        """The choice for a key that this process meets for the first time: from disk, or by tuning."""
        configs = self._pruned(args, kwargs)
        if key[1] < 0:
            return configs[0]  # arrays on the CPU: the launch says what is wrong
        if len(configs) > 1:
            gpu = cuda.device(key[1])
            found = self._tuned(key, gpu, grid, args, kwargs, configs)
            if found is None:
                return configs[0]
            configs = [found]
        return self.cache.setdefault(key, configs[0])

    def _tuned(
        self,
        key: tuple[Any, ...],
        gpu: cuda.Device,
        grid: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        configs: Sequence[Config],
    ) -> Config | None:
        """The fastest configuration; None for an empty grid, on which none is faster."""
        facts = self._facts(key, gpu, args, kwargs)
        identity = trial.identity_of(facts, configs)
        known = None if identity is None else trial.load(identity)
        if known is not None and len(known.trials) != len(configs):
            known = None
        if known is not None and known.best is not None:
            return configs[known.best]
        given = kwargs.get("stream")
        stream = current_stream(gpu.ordinal) if given is None else handle_of(given)
        self._refuse_capture(gpu, stream)
        tuning = Tuning(self, grid, args, kwargs, configs)
        if tuning.empty:
            return None
        for one, before in zip(tuning.trials, known.trials if known else ()):
            if before.fatal:
                one.reason, one.fatal = before.reason, True
        record = trial.Record(identity or "", facts, tuning.trials)
        try:
            record.best = tuning.trials.index(tuning.run(gpu, stream))
        finally:
            if identity is not None and (record.best is not None or any(t.fatal for t in record.trials)):
                trial.store(record)
        return configs[record.best]

    def _facts(
        self, key: tuple[Any, ...], gpu: cuda.Device, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        arrays = {}
        for name, value in named_arguments(self.kernel, args, kwargs).items():
            array = value.base if isinstance(value, TensorDescriptor) else value
            if is_array(array):
                kind = getattr(array, "dtype", None) or array.__cuda_array_interface__["typestr"]
                arrays[name] = str(kind).removeprefix("torch.")
        values = {name: value for name, (_, value) in zip(self.key, key[2])}
        return trial.facts_of(self.name, key[0], gpu, values, arrays)

    def _refuse_capture(self, gpu: cuda.Device, stream: int) -> None:
        if cuda.is_capturing(gpu, stream):
            raise CaptureError(
                f"{self.name} must be tuned for these arguments, which is not possible while a CUDA graph is being "
                f"captured; launch {self.name}[grid](...) with the same arguments once before the capture."
            )


def ahead(
    fn: Launchable, position: int | None, define: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Kernel, dict[str, Any], dict[str, Any]]:
    """(kernel, constants, options of the launch) for compiling ahead of time what may stand around a kernel.

    `position`: of the configuration to take, where it is tuned.  Raises `TuningError` where something is left open that
    only a launch could tell.
    """
    constants, launch = dict(define), dict(options)
    if position is not None and not any(isinstance(layer, Autotuner) for layer in _layers(fn)):
        raise TuningError(f"{fn.name} is not tuned, so it has no configurations to choose from.")
    for layer in _layers(fn):
        if isinstance(layer, Autotuner):
            config = _chosen_ahead(layer, position)
            for name in config.all_kwargs():
                if name in constants or name in launch:
                    raise TuningError(f"{fn.name}: the configuration {config} sets {name} already, so leave it out.")
            constants |= config.kwargs
            launch |= config.options
        elif isinstance(layer, Heuristics):
            open_ = [name for name in layer.values if name not in constants and name not in launch]
            if open_:
                raise TuningError(
                    f"{fn.name}: {' and '.join(open_)} would be computed by a heuristic at the launch; give the value "
                    "to compile for, as -D NAME=VALUE or as an option."
                )
    return fn.kernel if isinstance(fn, Wrapper) else fn, constants, launch


def _layers(fn: Launchable) -> Iterator[Launchable]:
    """What stands around a kernel, outermost first, and the kernel."""
    while isinstance(fn, Wrapper):
        yield fn
        fn = fn.fn
    yield fn


def _chosen_ahead(tuner: Autotuner, position: int | None) -> Config:
    if position is not None and 0 <= position < len(tuner.configs):
        return tuner.configs[position]
    wrong = "is tuned, so ahead of time one of its configurations must be chosen"
    if position is not None:
        wrong = f"has no configuration {position}"
    listed = "\n".join(f"  {i}: {config}" for i, config in enumerate(tuner.configs))
    raise TuningError(
        f"{tuner.name} {wrong}; give --config N, and see `tlxc tune show {tuner.name}` for those that were the fastest "
        f"on your GPUs. N is one of:\n{listed}"
    )
