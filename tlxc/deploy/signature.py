"""Signatures and values as the command line has them: `--signature "*f16:16, *f16, n=i32:16, BLOCK=1024"`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tlxc.errors import TlxcError
from tlxc.frontend.source import Parameter
from tlxc.ir.types import DTYPES
from tlxc.runtime.text_types import parse_type

_WORDS = {"true": True, "false": False} | {prefix + t.name: t for t in DTYPES.values() for prefix in ("", "tl.")}
_NAMED = re.compile(r"([^\W\d]\w*)\s*=\s*(.*)", re.DOTALL)
_OPEN, _CLOSE = "([{<", ")]}>"


class SignatureError(TlxcError, ValueError):
    """A text that is no signature of the kernel."""


def parse_value(text: str) -> Any:
    """A compile-time value: a Python literal, true, false or the name of a dtype; other text is a string."""
    if text in _WORDS:
        return _WORDS[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def parse_signature(text: str, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """By name, for the parameters that the text speaks of: an `Argument`, or the value that is known at compile time.

    Entries are in the order of the parameters or NAME=ENTRY.  A run-time parameter gets a type (see `text_types`), or a
    number or None that it always has; a compile-time parameter gets its value.
    """
    names = [p.name for p in parameters]
    out: dict[str, Any] = {}
    named = False
    for position, entry in enumerate(_entries(text)):
        match = _NAMED.fullmatch(entry)
        named = named or match is not None
        if match is None and named:
            raise SignatureError(f"The signature has {entry!r} after an entry with a name; write NAME={entry}.")
        if match is None and position >= len(names):
            raise SignatureError(f"The signature has more entries than the {len(names)} parameters: {_list(names)}.")
        name, value = (match[1], match[2]) if match else (names[position], entry)
        if name not in names:
            raise SignatureError(f"The signature names {name!r}, but the parameters are {_list(names)}.")
        if name in out:
            raise SignatureError(f"The signature has `{name}` twice.")
        out[name] = _meaning(parameters[names.index(name)], value)
    return out


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)


def _entries(text: str) -> Iterator[str]:
    """The parts between commas that no bracket encloses."""
    depth, start = 0, 0
    for i, character in enumerate(text + ","):
        depth += (character in _OPEN) - (character in _CLOSE)
        if character == "," and (depth == 0 or i == len(text)):
            entry = text[start:i].strip()
            if not entry:
                raise SignatureError(f"The signature {text!r} has an empty entry.")
            yield entry
            start = i + 1


def _meaning(parameter: Parameter, text: str) -> Any:
    if parameter.constexpr:
        return parse_value(text)
    found = parse_type(text)
    if found is not None:
        return found
    value = parse_value(text)
    if value is not None and not isinstance(value, (bool, int, float)):
        raise SignatureError(
            f"The signature gives `{parameter.name}` {text!r}, which is no type; write one such as i32, i32:16, f32, "
            "*f16, *f16:16 or desc<64x64xf16>, or the number that it always is."
        )
    return value
