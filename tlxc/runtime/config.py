"""What an autotuner tries: values of a kernel's parameters, and options of its launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tlxc.runtime.bind import ArgumentError
from tlxc.runtime.cache import stable_text
from tlxc.runtime.fast_bind import OPTIONS

TUNED = tuple(name for name in OPTIONS if name != "stream")  # options that decide how fast a launch is


class Config:
    """One configuration: `tlxc.Config({"BM": 128, "BN": 256}, num_warps=8, ctas_per_cga=(2, 1, 1))`.

    kwargs: values of parameters by name.  options: those of a launch (`num_warps`, `maxnreg`, `ctas_per_cga`,
    `launch_pdl`); what is not given is the kernel's own.  pre_hook: called with all arguments by name before every
    launch with this configuration, to set the `block_shape` of descriptors, say.
    """

    def __init__(
        self,
        kwargs: Mapping[str, Any] | None = None,
        *,
        pre_hook: Callable[[dict[str, Any]], Any] | None = None,
        **options: Any,
    ) -> None:
        self.kwargs, self.options, self.pre_hook = dict(kwargs or {}), options, pre_hook
        for name in options:
            if name not in TUNED:
                raise ArgumentError(
                    f"A Config has no option `{name}`; launch options are {', '.join(TUNED[:-1])} and {TUNED[-1]}. "
                    "Values of the kernel's parameters go into the dict before them."
                )
        for name in self.kwargs:
            if name in OPTIONS:
                raise ArgumentError(
                    f"A Config is given `{name}` among values of parameters, but it is an option of the launch; give "
                    f"it by itself, as in Config({{...}}, {name}={self.kwargs[name]!r})."
                )

    def __getattr__(self, name: str) -> Any:
        """A launch option; None where the kernel's own is taken."""
        if name in TUNED and "options" in self.__dict__:
            return self.options.get(name)
        raise AttributeError(f"'Config' object has no attribute {name!r}")

    def all_kwargs(self) -> dict[str, Any]:
        """Parameters and options, as a launch takes them."""
        return {**self.kwargs, **self.options}

    @property
    def identity(self) -> str | None:
        """Text that is equal exactly for configurations with equal values, in every process; None where one of the
        values has no such text."""
        texts = {name: stable_text(value) for name, value in self.all_kwargs().items()}
        return None if None in texts.values() else " ".join(f"{name}={texts[name]}" for name in sorted(texts))

    def __str__(self) -> str:
        return " ".join(f"{name}={value!r}" for name, value in self.all_kwargs().items()) or "no change"

    def __repr__(self) -> str:
        return f"<Config {self}>"
