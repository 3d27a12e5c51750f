"""Contestants that torch does not bring along: plain Triton kernels, and flash-attn-4, where they are installed.

`gemm` and `attention` give calls by name, of what can be imported here; `sys.path` decides, so a fork of Triton is a
contestant by PYTHONPATH.  The Triton kernels are what one writes there in an hour, with the fastest tiles.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]


def installed(module: str) -> bool:
    """Whether a module can be imported; its packages are imported to find out."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def gemm(torch: Any, a: Any, b: Any) -> dict[str, Call]:
    """a @ b for 2-D row-major tensors."""
    return {"Triton": _triton_gemm(torch, a, b)} if installed("triton.tools.tensor_descriptor") else {}


def attention(torch: Any, q: Any, k: Any, v: Any, causal: bool) -> dict[str, Call]:
    """Attention forward for (batch, heads, N, D)."""
    calls: dict[str, Call] = {}
    *_, n, d = q.shape
    if installed("triton.tools.tensor_descriptor") and q.shape == k.shape and n % 128 == 0 and d <= 128:
        calls["Triton"] = _triton_attention(torch, q, k, v, causal)
    if installed("flash_attn.cute"):
        from flash_attn.cute import flash_attn_func

        heads_last = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
        calls["flash-attn-4"] = lambda: flash_attn_func(*heads_last, causal=causal)[0].transpose(1, 2)
    return calls


def _triton_gemm(torch: Any, a: Any, b: Any) -> Call:
    from triton.tools.tensor_descriptor import TensorDescriptor

    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    bm, bn, bk = (128, 256, 64) if m >= 128 else (64, 128, 64)
    blocks = ((a, [bm, bk]), (b, [bk, bn]), (c, [bm, bn]))
    described = [TensorDescriptor.from_tensor(x, block) for x, block in blocks]
    sms = torch.cuda.get_device_properties(a.device).multi_processor_count
    grid = (min(sms, -(-m // bm) * -(-n // bn)),)
    options = dict(BM=bm, BN=bn, BK=bk, GROUP=8, num_warps=8 if m >= 128 else 4, num_stages=3)

    def call() -> Any:
        _kernels().gemm[grid](*described, m, n, k, **options)
        return c

    return call


def _triton_attention(torch: Any, q: Any, k: Any, v: Any, causal: bool) -> Call:
    from triton.tools.tensor_descriptor import TensorDescriptor

    *_, n, d = q.shape
    heads = q.numel() // (n * d)
    o = torch.empty_like(q)
    bm, bn = 128, 128 if d <= 64 else 64
    described = [
        TensorDescriptor.from_tensor(x.reshape(heads * n, d), [rows, d])
        for x, rows in ((q, bm), (k, bn), (v, bn), (o, bm))
    ]
    options = dict(D=d, BM=bm, BN=bn, CAUSAL=causal, num_warps=8, num_stages=3)

    def call() -> Any:
        _kernels().attention[(n // bm, heads)](*described, n, d**-0.5 * 1.4426950408889634, **options)
        return o

    return call


@functools.cache
def _kernels() -> Any:
    import _triton_kernels

    return _triton_kernels
