"""Prints tile IR; `tlxc.ir.parser` reads it back to the same module.

    #0 = 1024 r[i1,i2] l[i4,i8,i16,i32,i64] w[i128,i256]          layouts, numbered as they appear
    module @scale(%x: ptr<f16> align 16, %n: i32 divisible 16) warps 4 maxnreg 64 {      `maxnreg` only if set
      %0 = program_id {axis = 0} : i32
      %1 = load %p, %mask, _ : tensor<1024xf16, #0>               `_` is an absent operand
      %2 = for %lo, %hi, %step, %init : f32 {
      ^(%i: i32, %acc: f32):
        yield %acc
      }
    }
    !0 = "scale.py" 4 11 32                                       source spans, with locations=True
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tlxc.errors import Location

from .core import Module, Op, Region, Value
from .layout import Layout
from .memory import Memory
from .types import Buffer, Descriptor, DType, Tensor, Type


def print_module(module: Module, locations: bool = False) -> str:
    return Printer(locations).module(module)


def _string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


class Printer:
    def __init__(self, locations: bool = False) -> None:
        self.locations = locations
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.layouts: dict[str, int] = {}
        self.spans: dict[Location, int] = {}
        self.count = 0

    # -- names and tables
    def name(self, v: Value) -> str:
        if v not in self.names:
            base = v.name
            if base and not base.isdigit():
                text, n = base, 1
                while text in self.taken:
                    n += 1
                    text = f"{base}.{n}"
            else:
                text, self.count = str(self.count), self.count + 1
            self.taken.add(text)
            self.names[v] = text
        return "%" + self.names[v]

    def alias(self, layout: Layout | Memory) -> str:
        kind = "memory " if isinstance(layout, Memory) else ""
        return f"#{self.layouts.setdefault(kind + str(layout), len(self.layouts))}"

    def span(self, loc: Location) -> int:
        if loc not in self.spans:
            for caller in loc.callers:
                self.span(caller)
            self.spans[loc] = len(self.spans)
        return self.spans[loc]

    # -- pieces
    def type(self, t: Type) -> str:
        if isinstance(t, Tensor) and t.layout is not None:
            return f"tensor<{'x'.join(map(str, t.shape))}x{t.element}, {self.alias(t.layout)}>"
        if isinstance(t, Buffer) and t.layout is not None:
            return f"{str(replace(t, layout=None))[:-1]}, {self.alias(t.layout)}>"
        if isinstance(t, Descriptor) and t.box_layout is not None:
            return f"{str(replace(t, box_layout=None))[:-1]}, {self.alias(t.box_layout)}>"
        return str(t)

    def attr(self, value: Any) -> str:
        if isinstance(value, bool) or value is None:
            return {True: "true", False: "false", None: "none"}[value]
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            return value.hex() if math.isfinite(value) else str(value)
        if isinstance(value, str):
            return _string(value)
        if isinstance(value, (tuple, list)):
            return f"({', '.join(map(self.attr, value))})"
        if isinstance(value, DType):
            return f"${value.short}"
        if isinstance(value, (Layout, Memory)):
            return self.alias(value)
        raise TypeError(f"an attribute of type {type(value).__name__} cannot be printed")

    def attrs(self, attrs: dict[str, Any]) -> str:
        return f" {{{', '.join(f'{k} = {self.attr(v)}' for k, v in attrs.items())}}}" if attrs else ""

    # -- ops, regions, module
    def op(self, op: Op, indent: str, out: list[str]) -> None:
        results = ", ".join(map(self.name, op.results))
        operands = ", ".join("_" if v is None else self.name(v) for v in op.operands)
        types = ", ".join(self.type(v.type) for v in op.results)
        line = f"{indent}{results + ' = ' if results else ''}{op.kind}{' ' if operands else ''}{operands}"
        line += self.attrs(op.attrs) + (f" : {types}" if types else "")
        at = f" !{self.span(op.loc)}" if self.locations and op.loc is not None else ""
        if not op.regions:
            out.append(line + at)
            return
        out.append(line + " {")
        for i, region in enumerate(op.regions):
            if i:
                out.append(f"{indent}}} {{")
            self.region(region, indent, out)
        out.append(indent + "}" + at)

    def region(self, region: Region, indent: str, out: list[str]) -> None:
        if region.args:
            out.append(f"{indent}^({', '.join(f'{self.name(a)}: {self.type(a.type)}' for a in region.args)}):")
        for op in region.ops:
            self.op(op, indent + "  ", out)

    def module(self, module: Module) -> str:
        params = []
        for p in module.params:
            text = f"{self.name(p.value)}: {self.type(p.type)}"
            params.append(text + f" align {p.align}" * bool(p.align) + f" divisible {p.divisible}" * (p.divisible != 1))
        limit = "" if module.maxnreg is None else f" maxnreg {module.maxnreg}"
        limit += f" cluster {self.attr(module.cluster)}" if module.cluster != (1, 1, 1) else ""
        warps = f"warps {module.num_warps}{limit}"
        head = f"module @{module.name}({', '.join(params)}) {warps}{self.attrs(module.attrs)} {{"
        body: list[str] = []
        self.region(module.body, "", body)
        lines = [f"#{i} = {text}" for text, i in self.layouts.items()] + [head, *body, "}"]
        for loc, i in self.spans.items():
            callers = "".join(f" !{self.spans[c]}" for c in loc.callers)
            lines.append(f"!{i} = {_string(loc.file)} {loc.line} {loc.column} {loc.end_column}{callers}")
        return "\n".join(lines) + "\n"
