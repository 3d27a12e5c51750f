"""What decorates Python functions: `@tlxc.kernel`, `@tlxc.autotune`, `@tlxc.heuristics`, `@tlxc.constexpr_function`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from tlxc.runtime.autotune import Autotuner
    from tlxc.runtime.config import Config
    from tlxc.runtime.heuristics import Heuristics, Launchable
    from tlxc.runtime.kernel import Kernel

F = TypeVar("F", bound=Callable[..., Any])


@overload
def kernel(fn: Callable[..., Any], /) -> Kernel: ...
@overload
def kernel(
    *,
    num_warps: int = 4,
    maxnreg: int | None = None,
    ctas_per_cga: tuple[int, ...] | None = None,
    do_not_specialize: Sequence[str | int] = (),
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    num_warps: int = 4,
    maxnreg: int | None = None,
    ctas_per_cga: tuple[int, ...] | None = None,
    do_not_specialize: Sequence[str | int] = (),
) -> Any:
    """Makes a kernel of a function: `@tlxc.kernel`, or `@tlxc.kernel(num_warps=8, do_not_specialize=["n"])`.

    num_warps, maxnreg: warps of a CTA, and registers that a thread may use at most (24 to 255, NVIDIA targets; None: no
    limit), where the launch gives none.  ctas_per_cga: likewise the CTAs of a cluster along x, y and z, as (2, 1, 1),
    which group those of the grid; its extents must be multiples of them (None: no cluster).  do_not_specialize:
    parameters, by name or position, whose values are not tested for 1, for divisibility by 16 or for 16-byte alignment.
    """
    from tlxc.runtime.kernel import Kernel

    def decorate(fn: Callable[..., Any]) -> Kernel:
        return Kernel(fn, num_warps, do_not_specialize, maxnreg, ctas_per_cga)

    return decorate if fn is None else decorate(fn)


def autotune(
    configs: Sequence[Config],
    key: Sequence[str] = (),
    *,
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[[dict[str, Any]], Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    do_bench: Callable[..., Any] | None = None,
    limit_s: float = 10.0,
) -> Callable[[Launchable], Autotuner]:
    """Launches a kernel with the fastest of several configurations; stands above `@tlxc.kernel`.

    The first launch with new values of the arguments that `key` names, other dtypes of arrays, another GPU or another
    source compiles all `configs` in parallel, times them on the GPU with the arguments of the launch, and keeps the
    choice on disk.  All later launches take that.  A configuration that fails, spills, or does not end within
    `limit_s` seconds is skipped; `tlxc tune show` says why.

    prune_configs_by: `early_config_prune(configs, named_args, **kwargs)` returns those to try; of these the `top_k` (a
    number, or a float as a fraction) are tried of which `perf_model(**arguments)` is lowest.  reset_to_zero: arrays to
    zero before each run that measures.  restore_value: arrays to put back as they were after it.  pre_hook(arguments)
    and post_hook(arguments, exception=...): called before and after it.  do_bench(call, quantiles=...): measures in
    place of tlxc, in milliseconds.
    """
    from tlxc.runtime.autotune import Autotuner

    def decorate(fn: Launchable) -> Autotuner:
        return Autotuner(
            fn, configs, key, prune_configs_by, reset_to_zero, restore_value, pre_hook, post_hook, do_bench, limit_s
        )

    return decorate


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Launchable], Heuristics]:
    """Computes arguments of a kernel at each launch; stands above `@tlxc.kernel`, and below `@tlxc.autotune`.

    values: for parameters and options of the launch by name, a function from all other arguments by name, those of a
    configuration included.
    """
    from tlxc.runtime.heuristics import Heuristics

    def decorate(fn: Launchable) -> Heuristics:
        return Heuristics(fn, values)

    return decorate


def constexpr_function(fn: F) -> F:
    """Lets kernels call an ordinary Python function with compile-time arguments; it runs as they are compiled."""
    fn.__tlxc_constexpr__ = True  # type: ignore[attr-defined]
    return fn


@constexpr_function
def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below `n`; 1 for n <= 1."""
    return 1 << max(0, n - 1).bit_length()
