"""The op table: every op kind is one row, and every layer dispatches on `kind`.

Rows live in `tlxc.ir.ops.<family>`; importing `tlxc.ir.ops` fills `OPS`.  A row states operands, results, attributes,
traits and a verifier.  A test walks the table and fails for a kind that a layer neither implements nor refuses by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .core import Op

FAMILIES = ("math", "shape", "reduce", "memory", "buffer", "barrier", "tma", "mma", "task", "cluster", "control")

# What a trait promises:
#   pure          no effect; may be duplicated, moved and deleted
#   elementwise   operands and results have one shape and one layout
#   cheap         index arithmetic: recomputed in whatever layout a consumer wants, never converted
#   relabel       moves no data: the result's layout is a function of the operand's
#   reads_global / writes_global / reads_shared / writes_shared   memory effects
#   convergent    all threads of the task must arrive together
#   structured    owns regions
#   terminator    ends a region
TRAITS = frozenset(
    "pure elementwise cheap relabel reads_global writes_global reads_shared writes_shared convergent structured "
    "terminator".split()
)


class VerifyError(Exception):
    """An op breaks the rule of its row; the text says which."""


@dataclass(frozen=True)
class Row:
    """`operands`: names; a trailing `?` marks an optional one, a trailing `*` any number (last only).
    `results`: a count, or -1 for any number.  `attrs`: names that must be present; `optional`: names that may be."""

    name: str
    family: str
    operands: tuple[str, ...]
    results: int
    attrs: tuple[str, ...]
    optional: tuple[str, ...]
    traits: frozenset[str]
    verify: Callable[[Op], None]
    doc: str
    kinds: tuple[str, ...] = ()

    def has(self, trait: str) -> bool:
        return trait in self.traits


OPS: dict[str, Row] = {}


def row(
    name: str,
    family: str,
    operands: str = "",
    results: int = 1,
    attrs: str = "",
    optional: str = "",
    traits: str = "",
    verify: Callable[[Op], None] = lambda op: None,
    doc: str = "",
    kinds: str = "",
) -> None:
    """Adds one row; the string arguments are space-separated names.  `kinds` are the element kinds it computes on."""
    wanted = frozenset(traits.split())
    assert name not in OPS and family in FAMILIES and wanted <= TRAITS and doc, name
    OPS[name] = Row(
        name,
        family,
        tuple(operands.split()),
        results,
        tuple(attrs.split()),
        tuple(optional.split()),
        wanted,
        verify,
        doc,
        tuple(kinds.split()),
    )


def require(condition: bool, message: str) -> None:
    if not condition:
        raise VerifyError(message)


def traits(op: Op) -> frozenset[str]:
    return OPS[op.kind].traits


def is_pure(op: Op) -> bool:
    """No effect, regions included."""
    if "structured" in traits(op):
        return all(is_pure(o) or "terminator" in traits(o) for r in op.regions for o in r.walk())
    return "pure" in traits(op)


def check_row(op: Op) -> None:
    """Arity, attribute names and the row's own verifier; raises VerifyError."""
    r = OPS.get(op.kind)
    if r is None:
        raise VerifyError(f"no op is named {op.kind}")
    names = r.operands
    variadic = bool(names) and names[-1].endswith("*")
    fixed = names[:-1] if variadic else names
    require(
        len(op.operands) >= len(fixed) if variadic else len(op.operands) == len(fixed),
        f"{op.kind} takes {len(fixed)}{' or more' if variadic else ''} operands, found {len(op.operands)}",
    )
    for name, v in zip(fixed, op.operands):
        require(v is not None or name.endswith("?"), f"{op.kind}: operand `{name}` is missing")
    require(
        r.results < 0 or len(op.results) == r.results, f"{op.kind} has {r.results} results, found {len(op.results)}"
    )
    have = set(op.attrs)
    missing, extra = set(r.attrs) - have, have - set(r.attrs) - set(r.optional)
    require(not missing, f"{op.kind}: attribute {', '.join(sorted(missing))} is missing")
    require(not extra, f"{op.kind}: attribute {', '.join(sorted(extra))} is unknown")
    r.verify(op)
