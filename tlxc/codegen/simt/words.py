"""Elements as the integer words of memory accesses: packing several small ones into a word, and back."""

from __future__ import annotations

from tlxc.codegen.llvm_text import Writer, llvm_type
from tlxc.ir.types import Element


def to_word(w: Writer, name: str, element: Element) -> tuple[str, int]:
    """(an element as an integer of its memory width, that width in bits)"""
    kind = llvm_type(element)
    if kind.startswith("ptr"):
        return w.assign(f"ptrtoint {kind} {name} to i64"), 64
    if kind == "i1":
        return w.assign(f"zext i1 {name} to i8"), 8
    if kind.startswith("i"):
        return name, element.bits
    return w.assign(f"bitcast {kind} {name} to i{element.bits}"), element.bits


def from_word(w: Writer, word: str, element: Element) -> str:
    kind = llvm_type(element)
    if kind.startswith("ptr"):
        return w.assign(f"inttoptr i64 {word} to {kind}")
    if kind == "i1":
        return w.assign(f"icmp ne i8 {word}, 0")
    if kind.startswith("i"):
        return word
    return w.assign(f"bitcast i{element.bits} {word} to {kind}")


def word_shape(count: int, size: int) -> tuple[int, int]:
    """(bits of a word, words) of an access of `count` elements of `size` bytes."""
    total = count * size
    if size == 8:
        return 64, count
    return (8 * total, 1) if total <= 4 else (32, total // 4)


def pack(w: Writer, names: list[str], element: Element) -> list[str]:
    """Elements to the words of one access."""
    size = element.bytes
    bits, count = word_shape(len(names), size)
    words = [to_word(w, n, element)[0] for n in names]
    per = bits // (8 * size)
    if per == 1:
        return words
    out = []
    for i in range(count):
        t, vector = w.vector(words[i * per : (i + 1) * per], f"i{8 * size}")
        out.append(w.assign(f"bitcast {t} {vector} to i{bits}"))
    return out


def unpack(w: Writer, words: list[str], element: Element, count: int) -> list[str]:
    """Words of one access to `count` elements."""
    size = element.bytes
    bits, _ = word_shape(count, size)
    per = bits // (8 * size)
    if per == 1:
        return [from_word(w, x, element) for x in words]
    out = []
    for x in words:
        t = f"<{per} x i{8 * size}>"
        vector = w.assign(f"bitcast i{bits} {x} to {t}")
        for j in range(per):
            out.append(from_word(w, w.assign(f"extractelement {t} {vector}, i32 {j}"), element))
    return out


def load_text(pointer: str, bits: int, count: int) -> tuple[str, str]:
    """(type, load instruction) of `count` words at `pointer` (its type and name), aligned to their whole size."""
    t = f"i{bits}" if count == 1 else f"<{count} x i{bits}>"
    return t, f"load {t}, {pointer}, align {count * bits // 8}"


def take_apart(w: Writer, t: str, value: str, count: int) -> list[str]:
    """The words of a loaded value of type `t`."""
    return [value] if count == 1 else [w.assign(f"extractelement {t} {value}, i32 {i}") for i in range(count)]


def store_words(w: Writer, pointer: str, words: list[str], bits: int) -> None:
    """One store of all words at `pointer` (its type and name), aligned to their whole size."""
    t, value = w.vector(words, f"i{bits}")
    w.emit(f"store {t} {value}, {pointer}, align {len(words) * bits // 8}")
