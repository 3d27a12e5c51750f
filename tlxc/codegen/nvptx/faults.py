"""PTX that assemblers translate wrongly, written otherwise.

Found by random programs on an H200 and seen in the machine code of ptxas 12.9.86 and 13.0.88, for sm_90 and sm_100:

* `max(max(a, -b), c)` of 32-bit signed integers, and `min` likewise, becomes one VIMNMX3 in which the negation of the
  second operand is lost.  A complement and an addition are not folded so; the addition goes into VIADDMNMX.
* `max(x, 0) == 0` of 16-bit integers becomes a VIMNMX.S16x2 whose two predicates go into one register, so that the
  half which nobody asked about decides.  In 32 bits the comparison is an instruction of its own.
"""

from __future__ import annotations

import re

_MIN_MAX_32 = re.compile(r"\b(?:min|max)\.s32\b")
_NEG = re.compile(r"\bneg\.s(?P<bits>16|32)\s+(?P<to>%\w+), (?P<of>%\w+);")
_MIN_MAX_16 = re.compile(r"\b(?P<op>min|max)\.(?P<sign>[su])16\s+(?P<to>%\w+), (?P<a>%\w+), (?P<b>%\w+|-?\d+);")


def without_faults(ptx: str) -> str:
    """The same program without the patterns above."""
    ptx = _MIN_MAX_16.sub(_in_32_bits, ptx)
    return _NEG.sub(_by_complement, ptx) if _MIN_MAX_32.search(ptx) else ptx


def _by_complement(match: re.Match[str]) -> str:
    bits, to, of = match["bits"], match["to"], match["of"]
    return f"not.b{bits} {to}, {of}; add.s{bits} {to}, {to}, 1;"


def _in_32_bits(match: re.Match[str]) -> str:
    """An immediate is a number of 16 bits, which may be printed with the other sign."""
    op, sign, to, a, b = match["op"], match["sign"], match["to"], match["a"], match["b"]
    if b.startswith("%"):
        second = f"cvt.{sign}32.{sign}16 b, {b};"
    else:
        low = int(b) & 0xFFFF
        second = f"mov.b32 b, {low - 0x10000 if sign == 's' and low >= 0x8000 else low};"
    first = f"cvt.{sign}32.{sign}16 a, {a};"
    return f"{{ .reg .b32 a, b; {first} {second} {op}.{sign}32 a, a, b; cvt.u16.u32 {to}, a; }}"
