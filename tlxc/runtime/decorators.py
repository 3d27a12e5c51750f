"""What decorates Python functions: `@tlxc.kernel` and `@tlxc.constexpr_function`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
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


def constexpr_function(fn: F) -> F:
    """Lets kernels call an ordinary Python function with compile-time arguments; it runs as they are compiled."""
    fn.__tlxc_constexpr__ = True  # type: ignore[attr-defined]
    return fn


@constexpr_function
def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below `n`; 1 for n <= 1."""
    return 1 << max(0, n - 1).bit_length()
