"""Arrays whose content must be the same before every launch that only measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tlxc.errors import TlxcError
from tlxc.runtime.descriptor import TensorDescriptor


class Restored:
    """`zeroed` and `kept` name arguments: arrays to set to zero before each run, and arrays whose content is put back
    after each.  Everything happens in the order of the arrays' own stream, as the launches do."""

    def __init__(self, zeroed: Sequence[str], kept: Sequence[str], arguments: Mapping[str, Any]) -> None:
        self._zeroed = [_tensor("reset_to_zero", name, arguments) for name in zeroed]
        self._kept = [(tensor := _tensor("restore_value", name, arguments), tensor.clone()) for name in kept]

    def reset(self) -> None:
        for tensor in self._zeroed:
            tensor.zero_()

    def restore(self) -> None:
        for tensor, content in self._kept:
            tensor.copy_(content)


def _tensor(option: str, name: str, arguments: Mapping[str, Any]) -> Any:
    """A tensor of torch, or what has its methods."""
    value = arguments.get(name)
    array = value.base if isinstance(value, TensorDescriptor) else value
    if not all(hasattr(array, method) for method in ("zero_", "clone", "copy_")):
        raise TlxcError(
            f"{option} names `{name}`, which is a {type(array).__name__}; it can be a torch tensor or a "
            "TensorDescriptor of one. Of other arrays let pre_hook and post_hook take care."
        )
    return array
