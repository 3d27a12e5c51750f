"""A C header that loads and launches a compiled kernel: cubins, tensor maps, parameters, cluster, workspace.

One header serves all NVIDIA targets of a compilation; loading takes the cubin of the device at hand.  It includes
cuda.h and nothing of tlxc, and is C99 and C++11.  What it does at a launch is what `runtime.launcher` does.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from string import Template
from typing import Any

from tlxc import __version__
from tlxc.compiler import Compiled
from tlxc.deploy import c_text
from tlxc.deploy.facts import L2_PROMOTION, MAP_ALIGN, STORED_ROW, map_type, requirements
from tlxc.deploy.grid import CGrid, parse_grid
from tlxc.frontend.signature import Argument, Signature
from tlxc.ir.types import Descriptor, Pointer
from tlxc.runtime.cuda import PORTABLE_CLUSTER

_KEYWORDS = frozenset(
    "alignas alignof and asm auto bool break case catch char class const continue default delete do double else enum "
    "extern float for goto if inline int long namespace new not operator or private protected public register restrict "
    "return short signed sizeof static struct switch template this throw try typedef union unsigned using virtual void "
    "volatile while xor "
    # the header's own
    "kernel grid grid_x grid_y grid_z stream config params status cluster workspace dependent".split()
)
_C_TYPES = {"i1": "bool", "f32": "float"} | {
    f"{prefix}{bits}": f"{'u' * (prefix == 'u')}int{bits}_t" for prefix in "iu" for bits in (8, 16, 32, 64)
}
_MOST_RANK = 5


def _c_name(name: str) -> str:
    """A parameter's name in C, which is another one where C or the header has that name."""
    return name + "_" * (name in _KEYWORDS)


@dataclass(frozen=True)
class _Param:
    """A parameter of the kernel in C.  `map_index`: its place among the tensor maps, None for others."""

    source: str  # its name in the kernel
    argument: Argument
    map_index: int | None

    @property
    def name(self) -> str:
        """Its name in C."""
        return _c_name(self.source)

    @property
    def declaration(self) -> str:
        type_ = self.argument.type
        if isinstance(type_, Descriptor):
            return f"const CUtensorMap *{self.name}"
        return f"{'CUdeviceptr' if isinstance(type_, Pointer) else _C_TYPES[type_.dtype.short]} {self.name}"

    @property
    def address(self) -> str:
        """Where the launch finds the value."""
        return f"(void *){self.name}" if self.map_index is not None else f"&{self.name}"

    @property
    def broken_promise(self) -> str | None:
        """A condition in C that is true where the value is not what the code relies on; None where it always is."""
        needs = requirements(self.argument)
        if self.map_index is not None:
            return f"(size_t){self.name} % {MAP_ALIGN}"
        number = needs.get("align", needs.get("divisible", 1))
        return f"{self.name} % {number}" if number > 1 else None


def _params(signature: Signature) -> list[_Param]:
    out: list[_Param] = []
    for name, argument in signature.arguments:
        is_map = isinstance(argument.type, Descriptor)
        index = sum(p.map_index is not None for p in out) if is_map else None
        out.append(_Param(name, argument, index))
    return out


def emit_header(
    name: str,
    signature: Signature,
    variants: Sequence[Compiled],
    files: Sequence[str] | None,
    grid: str | None = None,
) -> str:
    """The header for a kernel that is compiled for one or several NVIDIA targets.

    `name` is what its functions begin with.  `files`: the name of each variant's cubin in a folder that the program
    gives; None to hold the cubins in the header.  `grid`: see `grid.parse_grid`.
    """
    params = _params(signature)
    maps = [p for p in params if p.map_index is not None]
    values = {**_names(name, signature, variants, files), **_launch_values(name, params, signature, variants)}
    values |= {"rank": _MOST_RANK, "l2": L2_PROMOTION, "row": STORED_ROW, "map_count": len(maps)}

    def fill(text: str, **more: Any) -> str:
        return Template(text).substitute(values, **more)

    values["map_fields"] = fill(c_text.MAP_FIELDS) if maps else ""
    sections = [fill(c_text.HEAD), fill(c_text.VARIANT), fill(c_text.LOAD)]
    if maps:
        sections += [fill(c_text.ENCODE), *(fill(c_text.MAP, **_map_values(p)) for p in maps)]
    if grid is not None:
        sections.append(fill(c_text.GRID, **_grid_values(params, parse_grid(grid, signature, _c_name))))
    return "".join([*sections, fill(c_text.LAUNCH)])


def _names(
    name: str, signature: Signature, variants: Sequence[Compiled], files: Sequence[str] | None
) -> dict[str, Any]:
    """What the sections before the launch say."""
    embedded = files is None
    return {
        "name": name,
        "kernel": variants[0].name,
        "guard": f"{name.upper()}_H",
        "targets": ", ".join(v.target for v in variants),
        "version": __version__,
        "constants": "".join(_constants(name, signature)),
        "images": "".join(_image(name, v) for v in variants) if embedded else "",
        "image_type": "const void *image;" if embedded else "const char *file;",
        "rows": ",\n".join(_row(name, v, files[i] if files else None) for i, v in enumerate(variants)),
        "count": len(variants),
        "place": "" if embedded else ", const char *folder",
        "path": "" if embedded else c_text.PATH,
        "load": c_text.LOAD_IMAGE if embedded else c_text.LOAD_FILE,
        "large_cluster": c_text.LARGE_CLUSTER if prod(signature.cluster) > PORTABLE_CLUSTER else "",
    }


def _launch_values(
    name: str, params: Sequence[_Param], signature: Signature, variants: Sequence[Compiled]
) -> dict[str, str]:
    """What the launch says."""
    workspace = any(v.metadata["workspace"] for v in variants)
    waits = all(v.metadata["waits_for_grid"] for v in variants)
    pdl = {key: Template(getattr(c_text, key.upper())).substitute(macro=f"{name.upper()}_LAUNCH_PDL") if waits else ""
           for key in ("pdl", "attribute", "dependent")}  # fmt: skip
    refusals = [f"\n    if ({p.broken_promise})\n        return CUDA_ERROR_INVALID_VALUE; /* `{p.name}` */"
                for p in params if p.broken_promise]  # fmt: skip
    return {
        "declarations": "".join(f",\n    {p.declaration}" for p in params),
        "addresses": ", ".join([p.address for p in params] + ["&workspace"] * workspace) or "NULL",
        "promises": "".join(refusals),
        "workspace_variable": c_text.WORKSPACE_VARIABLE if workspace else "",
        "workspace_new": c_text.WORKSPACE_NEW if workspace else "",
        "workspace_free": c_text.WORKSPACE_FREE if workspace else "",
        **pdl,
    }


def _constants(name: str, signature: Signature) -> Iterator[str]:
    """The compile-time parameters that are numbers, as macros."""
    for parameter, value in signature.constants:
        if isinstance(value, (bool, int, float)):
            text = str(int(value)) if isinstance(value, (bool, int)) else repr(value)
            yield f"#define {name}_const_{parameter} {f'({text})' if text.startswith('-') else text}\n"


def _image(name: str, variant: Compiled) -> str:
    """The cubin, as words so that it is aligned; zeros behind it up to a whole word."""
    binary = variant.binary + bytes(-len(variant.binary) % 8)
    words = [f"0x{word:x}u" for (word,) in struct.iter_unpack("<Q", binary)]
    lines = "\n".join("    " + ", ".join(words[i : i + 6]) + "," for i in range(0, len(words), 6))
    return f"static const uint64_t {name}_{variant.target}_cubin[] = {{\n{lines}\n}};\n"


def _row(name: str, variant: Compiled, file: str | None) -> str:
    """One entry of the table of variants."""
    facts = variant.metadata
    match = re.fullmatch(r"sm_(\d+)(\d)", variant.target)
    assert match is not None
    image = f"{name}_{variant.target}_cubin" if file is None else f'"{file}"'
    numbers = f"{facts['threads']}, {facts['shared']}, {facts['workspace']}"
    fields = [match[1], match[2], image, numbers, "{" + ", ".join(map(str, facts["cluster"])) + "}"]
    maps = [_map_row(p) for p in facts["params"] if "box" in p]
    if maps:
        fields.append("{" + ", ".join(maps) + "}")
    return "    {" + ", ".join(fields) + "}"


def _map_row(facts: dict[str, Any]) -> str:
    box = ", ".join(map(str, reversed(facts["box"])))
    swizzle = f"{facts['swizzle']}B" if facts["swizzle"] else "NONE"
    return f"{{{{{box}}}, CU_TENSOR_MAP_SWIZZLE_{swizzle}, {int(facts['stored'])}}}"


def _map_values(p: _Param) -> dict[str, Any]:
    """What the function says that makes the tensor map of a parameter."""
    type_ = p.argument.type
    assert isinstance(type_, Descriptor)
    return {
        "param": p.name,
        "index": p.map_index,
        "dimensions": len(type_.shape),
        "data_type": map_type(type_.dtype),
        "size": type_.dtype.bytes,
        "element": type_.dtype.name,
        "block": "x".join(map(str, type_.shape)),
    }


def _grid_values(params: Sequence[_Param], grid: CGrid) -> dict[str, str]:
    """What the function says that computes the grid."""
    used = [p.declaration for p in params if p.source in grid.used]
    return {"integers": "".join(f", {text}" for text in used), **dict(zip("xyz", grid.extents))}
