"""Activations of float32 tiles in a few instructions, as exact as 16-bit results can show.

Each is the positive part of x less a bump that is the same for x and -x: no element of a matrix is special, and large
ones of either sign come out exact.
"""

from __future__ import annotations

from tlxc import tl

LOG2_E = tl.constexpr(1.4426950408889634)

# 1 / (1 + e) for e in [0, 1], highest power first; relative error 5.2e-5.
RECIPROCAL = tl.constexpr((-0.1044844, 0.4179377, -0.7705729, 0.9534208, -0.9962757, 0.999949))

# The normal distribution's upper tail at BUMP_CENTRE + u, for |u| <= BUMP_CENTRE.  gelu is within 1.6e-5.
BUMP_CENTRE = tl.constexpr(2.25)
TAIL = tl.constexpr((-1.308794e-05, 4.456048e-05, 0.0001713859, -0.0009933972, 0.0006441083, 0.006103136, -0.02163423,
                     0.03573786, -0.03170907, 0.01222122))  # fmt: skip


def polynomial(x, COEFFICIENTS: tl.constexpr):
    """By Horner's rule, highest power first."""
    y = COEFFICIENTS[0] * x + COEFFICIENTS[1]
    for coefficient in COEFFICIENTS[2:]:
        y = y * x + coefficient
    return y


def gated(x, z):
    """x * sigmoid(z), where z has the sign of x."""
    e = tl.exp2(-LOG2_E * tl.abs(z), ftz=True)
    return tl.maximum(x, 0.0) - tl.abs(x) * (e * polynomial(e, RECIPROCAL))


def gelu(x):
    """x times the normal distribution at x."""
    size = tl.minimum(tl.abs(x), 2 * BUMP_CENTRE)
    return tl.maximum(x, 0.0) - size * polynomial(size - BUMP_CENTRE, TAIL)


def activate(x, NAME: tl.constexpr):
    """The activation of that name; "" is none.  "gelu_tanh" is the usual approximation of "gelu"."""
    tl.static_assert(NAME in ("", "relu", "silu", "gelu", "gelu_tanh"), f"no activation is called {NAME!r}")
    if NAME == "relu":
        return tl.maximum(x, 0.0)
    if NAME == "silu":
        return gated(x, x)
    if NAME == "gelu":
        return gelu(x)
    if NAME == "gelu_tanh":
        return gated(x, x * (1.5957691216057308 + 0.07135481282925772 * (x * x)))
    return x
