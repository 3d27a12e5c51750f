"""Operators of torch that launch kernels: `torch_op`.

To torch such an operator is opaque: `torch.compile` puts it into its graph as it is, and autograd asks for a backward.
Shapes and dtypes of its results are found by running the Python function on fake tensors, for which launches do
nothing (see `fake`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from tlxc.errors import TlxcError
from tlxc.runtime.fake import shapes_only

_ANNOTATIONS = (
    "annotate every parameter as torch.Tensor, int, float, bool, str, torch.dtype, torch.device, a Sequence or an "
    "Optional of these, and the result as torch.Tensor, a tuple of them, or None"
)


class TorchOpError(TlxcError, TypeError):
    """A function that cannot become an operator of torch."""


def torch_op(
    name: str, *, mutates_args: str | Iterable[str] = (), schema: str | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """Makes an operator of torch of a function that allocates results and launches kernels: `@torch_op("mine::scale")`.

    name: namespace and name.  mutates_args: the parameters whose tensors the kernels write, or "unknown".  schema: the
    operator's, as "(Tensor x, float s) -> Tensor"; without one it follows from the annotations, which must be complete.

    Returns torch's `torch.library.CustomOpDef`, which is called like the function.  It works in `torch.compile`: the
    function runs on fake tensors there, with kernels that do nothing, so results may depend on shapes, dtypes and
    numbers only; where they depend on more, say what they are with `.register_fake(function)`.  For a backward use
    `.register_autograd(backward, setup_context=...)`.  Results may not be, or be views of, arguments.

    Needs torch 2.6 or newer, which is imported when an operator is made.  Errors: `TorchOpError`.
    """

    def decorate(fn: Callable[..., Any]) -> Any:
        library = _library()
        if not callable(fn) or hasattr(fn, "__tlxc_source__"):
            raise TorchOpError(
                f"torch_op makes an operator of a Python function that launches kernels, but was given {fn!r}; write a "
                "function that allocates the results and launches the kernel."
            )
        if name.count("::") != 1 or not all(part.isidentifier() for part in name.split("::")):
            raise TorchOpError(f'The name of an operator is {name!r}; write a namespace and a name, as "mine::scale".')
        mutated = mutates_args if isinstance(mutates_args, str) else tuple(mutates_args)
        try:
            op = library.custom_op(name, fn, mutates_args=mutated, schema=schema)
        except (ValueError, RuntimeError) as error:
            where = f"{fn.__name__} ({fn.__code__.co_filename}:{fn.__code__.co_firstlineno})"
            raise TorchOpError(
                f"{where} cannot become the operator {name}: {str(error).rstrip('.')}. To fix it, {_ANNOTATIONS}; "
                "mutates_args names tensor parameters."
            ) from error
        op.register_fake(_on_shapes(fn))
        return op

    return decorate


def _on_shapes(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def fake(*args: Any, **kwargs: Any) -> Any:
        with shapes_only():
            return fn(*args, **kwargs)

    return fake


def _library() -> Any:
    try:
        from torch import library
    except ImportError as error:
        raise TorchOpError("torch_op needs torch, which is not installed; run: pip install torch") from error
    return library
