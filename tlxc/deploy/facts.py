"""What a loader must know of a binary, as JSON-able data.  Sizes are bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from tlxc import __version__
from tlxc.compiler import Compiled
from tlxc.frontend.signature import Argument, Signature
from tlxc.ir.types import Descriptor, DType, Pointer

MAP_BYTES = 128  # of a tensor map
MAP_ALIGN = 64
STORED_ROW = 16  # a store by TMA writes rows to a multiple of so many bytes, beyond the extent where that is none
L2_PROMOTION = "CU_TENSOR_MAP_L2_PROMOTION_L2_256B"
# Short name of a dtype -> what follows CU_TENSOR_MAP_DATA_TYPE_; copies do not look at the sign of integers
_MAP_TYPES = {
    "i8": "UINT8", "u8": "UINT8", "i16": "UINT16", "u16": "UINT16", "u32": "UINT32", "i32": "INT32", "u64": "UINT64",
    "i64": "INT64", "f16": "FLOAT16", "f32": "FLOAT32", "bf16": "BFLOAT16",
}  # fmt: skip


def map_type(dtype: DType) -> str:
    """The CUtensorMapDataType of a dtype, by its name in C."""
    return f"CU_TENSOR_MAP_DATA_TYPE_{_MAP_TYPES[dtype.short]}"


def launch_facts(compiled: Compiled, signature: Signature, files: Mapping[str, str]) -> dict[str, Any]:
    """What a loader must know to launch the binary; `files` are those beside the JSON, by kind."""
    facts = compiled.metadata
    copied = ("registers", "spill_bytes", "stack_bytes", "notes", "assembler")
    return {
        "tlxc": __version__,
        "name": compiled.name,
        "target": compiled.target,
        "num_warps": facts["num_warps"],
        "maxnreg": facts["maxnreg"],
        "cluster": facts["cluster"],
        "threads": facts["threads"],
        "shared": compiled.shared,
        "memory_map": [_buffer_facts(*row) for row in facts["memory_map"]],
        "workspace": _workspace_facts(facts["workspace"]),
        "waits_for_grid": facts["waits_for_grid"],
        "grid": "CTAs along x, y and z: tl.program_id(0), (1) and (2); a CTA has `threads` threads along x",
        "params": [
            _parameter_facts(name, argument, compiled_to)
            for (name, argument), compiled_to in zip(signature.arguments, facts["params"])
        ],
        "constants": {name: _plain(value) for name, value in signature.constants},
        "files": dict(files),
        "sha256": hashlib.sha256(compiled.binary).hexdigest(),
        **{name: facts[name] for name in copied},
    }


def _buffer_facts(offset: int, size: int, name: str, first: int, last: int) -> dict[str, Any]:
    """Where a buffer lies in shared memory, and the lines of the source between which it is in use."""
    return {"buffer": name, "offset": offset, "bytes": size, "lines": [first, last]}


def _workspace_facts(size: int) -> dict[str, Any] | None:
    """What the loader allocates for every launch and passes as one more parameter; None where the kernel takes none."""
    if not size:
        return None
    return {"bytes_per_cta": size, "align": 128, "passed": "as a pointer after the params, to memory of this launch"}


def requirements(argument: Argument) -> dict[str, int]:
    """What the code relies on: the loader checks it before a launch."""
    if isinstance(argument.type, Descriptor):
        return {"align": MAP_ALIGN}
    if isinstance(argument.type, Pointer):
        return {"align": max(argument.align, argument.type.dtype.bytes)}
    return {"divisible": argument.divisible} if argument.divisible > 1 else {}


def _parameter_facts(name: str, argument: Argument, facts: Mapping[str, Any]) -> dict[str, Any]:
    type_, described = argument.type, isinstance(argument.type, Descriptor)
    out = {
        "name": name,
        "type": facts["type"] if described else str(type_),
        "size": MAP_BYTES if described else type_.bytes if isinstance(type_, Pointer) else type_.dtype.bytes,
        "requires": requirements(argument),
    }
    if isinstance(type_, Descriptor):
        out["tensor_map"] = _map_facts(type_, facts)
    return out


def _map_facts(type_: Descriptor, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The tensor map that stands for a descriptor, for cuTensorMapEncodeTiled: boxes of so many elements, slowest
    dimension first, with a swizzle of so many bytes.  Where the kernel stores by it, rows are a multiple of
    `row_multiple` bytes."""
    return {
        "data_type": map_type(type_.dtype),
        "rank": len(type_.shape),
        "box": facts["box"],
        "swizzle": facts["swizzle"],
        "l2_promotion": L2_PROMOTION,
        "row_multiple": STORED_ROW if facts["stored"] else type_.dtype.bytes,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
