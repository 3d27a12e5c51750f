"""Streams as raw handles: torch's current one where torch is in use, or what a launch names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tlxc.errors import TlxcError


class StreamError(TlxcError, TypeError):
    """What a launch names as its stream is none."""


def torch_stream() -> Callable[[int], int] | None:
    """A function from device to torch's current stream there (a raw handle); None where torch is not in use."""
    torch = sys.modules.get("torch")
    return getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)


def current_stream(device: int) -> int:
    """torch's current stream, else the legacy default stream, which waits for and is waited for by all others."""
    current = torch_stream()
    return 0 if current is None else current(device)


def handle_of(stream: Any) -> int:
    """The raw handle of a stream: a handle, a stream of torch or CuPy, or what has `__cuda_stream__`."""
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr"):  # torch, CuPy
        if isinstance(handle := getattr(stream, name, None), int):
            return handle
    raise StreamError(
        f"stream is {stream!r}; give a raw handle as an integer, a torch.cuda.Stream or an object with __cuda_stream__."
    )
