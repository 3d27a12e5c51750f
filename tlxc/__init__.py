"""tlxc: GPU kernels in Python, down to the barrier.

`from tlxc import tl, tlx` is the language; `@tlxc.kernel` makes a kernel.  Importing this package loads neither a
driver nor the compiler: what is behind a name is loaded when the name is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tlxc.errors import CompileError as CompileError
    from tlxc.errors import TlxcError as TlxcError
    from tlxc.language import tl as tl
    from tlxc.language import tlx as tlx
    from tlxc.language.math import cdiv as cdiv
    from tlxc.runtime.config import Config as Config
    from tlxc.runtime.decorators import autotune as autotune
    from tlxc.runtime.decorators import constexpr_function as constexpr_function
    from tlxc.runtime.decorators import heuristics as heuristics
    from tlxc.runtime.decorators import kernel as kernel
    from tlxc.runtime.decorators import next_power_of_2 as next_power_of_2
    from tlxc.runtime.descriptor import TensorDescriptor as TensorDescriptor
    from tlxc.runtime.hooks import launch_hook as launch_hook
    from tlxc.runtime.simulate import simulate as simulate
    from tlxc.runtime.torch_op import torch_op as torch_op
    from tlxc.runtime.trap import explain_trap as explain_trap
    from tlxc.simulator.reports import SimulationError as SimulationError

# name -> (module, attribute of it or None for the module itself)
_NAMES: dict[str, tuple[str, str | None]] = {
    "tl": ("tlxc.language.tl", None),
    "tlx": ("tlxc.language.tlx", None),
    "cdiv": ("tlxc.language.math", "cdiv"),
    "kernel": ("tlxc.runtime.decorators", "kernel"),
    "autotune": ("tlxc.runtime.decorators", "autotune"),
    "heuristics": ("tlxc.runtime.decorators", "heuristics"),
    "Config": ("tlxc.runtime.config", "Config"),
    "constexpr_function": ("tlxc.runtime.decorators", "constexpr_function"),
    "next_power_of_2": ("tlxc.runtime.decorators", "next_power_of_2"),
    "TensorDescriptor": ("tlxc.runtime.descriptor", "TensorDescriptor"),
    "simulate": ("tlxc.runtime.simulate", "simulate"),
    "SimulationError": ("tlxc.simulator.reports", "SimulationError"),
    "launch_hook": ("tlxc.runtime.hooks", "launch_hook"),
    "torch_op": ("tlxc.runtime.torch_op", "torch_op"),
    "explain_trap": ("tlxc.runtime.trap", "explain_trap"),
    "CompileError": ("tlxc.errors", "CompileError"),
    "TlxcError": ("tlxc.errors", "TlxcError"),
}

__all__ = [*_NAMES, "__version__"]  # noqa: PLE0604  (names of `_NAMES` are resolved by `__getattr__`)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'tlxc' has no attribute {name!r}")
    module, attribute = _NAMES[name]
    loaded = import_module(module)
    value = loaded if attribute is None else getattr(loaded, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
