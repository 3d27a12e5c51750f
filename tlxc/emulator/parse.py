"""LLVM IR text to a module of functions, blocks and instructions. Metadata, debug records and attributes that do not
change the meaning are skipped; anything else that is not understood is an EmulatorError naming the line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.values import (
    FLOATS,
    ArrayType,
    FloatType,
    IntType,
    MetadataType,
    PointerType,
    ScalarType,
    StructType,
    Type,
    VectorType,
    VoidType,
    align_of,
    element_type,
    lane_type,
    size_of,
    to_bytes,
    vector_count,
)

_TOKEN = re.compile(
    r"""\s+|;.*                                           # blank, comment
    |(c?"[^"]*"                                           # string
    |[%@$]"[^"]*"|[%@$][\w.$-]+|![\w.]*|\#\w+              # names, metadata, attribute groups
    |-?\d+\.\d*(?:[eE][+-]?\d+)?|-?[\w$][\w.$]*|\.\.\.     # numbers, words
    |.)""",
    re.VERBOSE,
)
_LABEL = re.compile(r'^(?:"([^"]*)"|([\w.$-]+)):')
_OPEN, _CLOSE = frozenset("([{<"), frozenset(")]}>")
_FLAGS = frozenset(
    "nuw nsw exact disjoint fast nnan ninf nsz arcp contract afn reassoc inbounds samesign nneg nusw volatile atomic "
    "weak tail musttail notail sideeffect alignstack inteldialect".split()
)
_CALLING_CONVENTIONS = frozenset("ccc fastcc coldcc ptx_kernel ptx_device amdgpu_kernel spir_kernel".split())


@dataclass(frozen=True)
class Operand:
    """`kind` is local (value: name), global (name), const (array of shape () or (count,), or a tuple of them), or
    expr (value: opcode, operands, source type)."""

    type: Type
    kind: str
    value: Any


@dataclass
class Instruction:
    """One instruction. `type` is the result type; `detail` holds what only some opcodes have (see the parsers)."""

    opcode: str
    dst: str | None
    type: Type
    operands: tuple[Operand, ...]
    line: int
    text: str
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass
class Block:
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    @property
    def terminator(self) -> Instruction:
        return self.instructions[-1]

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(self.terminator.detail.get("targets", ()))


@dataclass
class Function:
    name: str
    params: list[tuple[Type, str]]
    blocks: dict[str, Block]
    is_amd: bool
    attributes: str = ""


@dataclass
class GlobalVariable:
    """`data` is None where the initial contents are not defined (shared memory)."""

    name: str
    space: int
    type: Type
    align: int
    external: bool
    data: bytes | None


@dataclass
class Module:
    kernels: dict[str, Function] = field(default_factory=dict)
    globals: dict[str, GlobalVariable] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)


def tokenize(text: str) -> list[str]:
    return [token for token in _TOKEN.findall(text) if token]


def _name(token: str) -> str:
    """%name, @name or %"name" without the sigil and quotes."""
    return token[1:].strip('"')


class Cursor:
    """Reads one logical line token by token."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at = tokens, 0

    @property
    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek
        self.at += 1
        return token

    def accept(self, *tokens: str) -> bool:
        if self.peek in tokens:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise EmulatorError(f"Expected '{token}', found '{self.peek or 'the end of the line'}'.")

    def skip_balanced(self) -> None:
        """Over one bracketed group, the cursor standing at its opening bracket."""
        depth = 0
        while True:
            token = self.take()
            depth += (token in _OPEN) - (token in _CLOSE)
            if not depth or not token:
                return

    def skip_flags(self) -> set[str]:
        flags = set()
        while self.peek in _FLAGS:
            flags.add(self.take())
        return flags

    def skip_attributes(self) -> None:
        """Parameter, return and function attributes: words, strings, `align N`, `name(...)`, `#n`."""
        while True:
            token = self.peek
            if token == "align":
                self.at += 2
            elif token.startswith(('"', "#")):
                self.at += 1
                if self.accept("="):
                    self.at += 1
            elif re.fullmatch(r"[a-z]\w*", token) and token not in _CONSTANT_WORDS:
                self.at += 1
            else:
                return
            if self.peek == "(":
                self.skip_balanced()

    def type(self) -> Type:
        token = self.take()
        if token == "ptr":
            space = 0
            if self.accept("addrspace"):
                self.expect("(")
                space = int(self.take())
                self.expect(")")
            return PointerType(space)
        if token[0] == "i" and token[1:].isdigit():
            bits = int(token[1:])
            if bits > 64:
                raise EmulatorError(f"The integer type {token} is not supported; i1 to i64 are.")
            return IntType(bits)
        if token in FLOATS:
            return FloatType(token)
        if token == "<" and self.accept("{"):
            return self._struct(packed=True)
        if token in ("<", "["):
            return self._sequence(token)
        if token == "{":
            return self._struct(packed=False)
        if token == "void":
            return VoidType()
        if token == "metadata":
            return MetadataType()
        raise EmulatorError(f"The type '{token}' is not supported by the emulator.")

    def _sequence(self, opening: str) -> Type:
        count = int(self.take())
        self.expect("x")
        element = self.type()
        self.expect(">" if opening == "<" else "]")
        if opening == "[":
            return ArrayType(count, element)
        if not isinstance(element, (IntType, FloatType, PointerType)):
            raise EmulatorError(f"A vector of {element} is not supported.")
        return VectorType(count, element)

    def _struct(self, packed: bool) -> StructType:
        fields = []
        while not self.accept("}"):
            fields.append(self.type())
            self.accept(",")
        if packed:
            self.expect(">")
        return StructType(tuple(fields), packed)

    # -- values
    def typed_value(self) -> Operand:
        type_ = self.type()
        self.skip_attributes()
        return self.value(type_)

    def value(self, type_: Type) -> Operand:
        if isinstance(type_, MetadataType):
            while self.peek not in (",", ")", ""):
                self.skip_balanced()
            return Operand(type_, "const", ())
        token = self.peek
        if token[0] in "%@":
            self.at += 1
            return Operand(type_, "local" if token[0] == "%" else "global", _name(token))
        if token in _EXPRESSIONS:
            return self._expression(type_)
        return Operand(type_, "const", self.constant(type_))

    def constant(self, type_: Type) -> Any:
        token = self.take()
        if token in ("zeroinitializer", "poison", "undef", "null"):
            return zero(type_)
        if token == "splat":
            self.expect("(")
            element = self.constant(self.type())
            self.expect(")")
            return np.full(vector_count(type_), element, element.dtype)
        if token == "<" and self.peek != "{":
            return np.stack(self._constant_list(">"))
        if token in ("{", "["):
            return tuple(self._constant_list("}" if token == "{" else "]"))
        if token.startswith('c"'):
            data = re.sub(r"\\([0-9A-Fa-f]{2})", lambda m: chr(int(m[1], 16)), token[2:-1]).encode("latin-1")
            return tuple(np.array(byte, np.uint8) for byte in data)
        return scalar_constant(token, lane_type(type_))

    def _constant_list(self, closing: str) -> list[Any]:
        values = []
        while not self.accept(closing):
            values.append(self.constant(self.type()))
            self.accept(",")
        return values

    def _expression(self, type_: Type) -> Operand:
        opcode = self.take()
        self.skip_flags()
        if opcode == "getelementptr" and self.peek == "inrange":
            self.at += 1
            self.skip_balanced()
        self.expect("(")
        source: Type | None = None
        if opcode == "getelementptr":
            source = self.type()
            self.expect(",")
        operands = [self.typed_value()]
        while self.accept(","):
            operands.append(self.typed_value())
        if self.accept("to"):
            self.type()
        self.expect(")")
        return Operand(type_, "expr", (opcode, tuple(operands), source))


_CONSTANT_WORDS = frozenset("true false null poison undef zeroinitializer splat c none".split())
_EXPRESSIONS = frozenset("getelementptr ptrtoint inttoptr addrspacecast bitcast trunc add sub".split())
_CONSTANT_WORDS |= _EXPRESSIONS


def zero(type_: Type) -> Any:
    """The all-zero constant; also what `poison` and `undef` become."""
    if isinstance(type_, StructType):
        return tuple(zero(f) for f in type_.fields)
    if isinstance(type_, ArrayType):
        return tuple(zero(type_.element) for _ in range(type_.count))
    type_ = lane_type(type_)
    return np.zeros(vector_count(type_) or (), type_.dtype)


def scalar_constant(token: str, type_: Type) -> Any:
    element: ScalarType = element_type(type_)
    if token in ("true", "false"):
        return np.array(token == "true")
    try:
        if isinstance(element, FloatType):
            return _float_constant(token, element)
        value = int(token, 16) if token.startswith("0x") else int(token)
    except ValueError:
        raise EmulatorError(f"'{token}' is not a constant of type {type_}.") from None
    if isinstance(element, PointerType):
        return np.array(value, np.uint64)
    return np.array(value & ((1 << element.bits) - 1), element.dtype)


def _float_constant(token: str, type_: FloatType) -> Any:
    """Hexadecimal forms: 0xH half, 0xR bfloat, 0x the bits of a double (also for float)."""
    if token.startswith("0xH"):
        return np.array(int(token[3:], 16), np.uint16).view(np.float16)
    if token.startswith("0xR"):
        return np.array(int(token[3:], 16), np.uint16).view(FLOATS["bfloat"])
    if token.startswith("0x"):
        return np.array(int(token, 16), np.uint64).view(np.float64).astype(type_.dtype)
    return np.array(float(token)).astype(type_.dtype)


def constant_bytes(value: Any, type_: Type) -> bytes:
    """The memory image of a constant."""
    if isinstance(type_, ArrayType):
        return b"".join(constant_bytes(v, type_.element) for v in value)
    if isinstance(type_, StructType):
        image = bytearray(type_.size)
        for offset, element, part in zip(type_.offsets, type_.fields, value):
            image[offset : offset + size_of(element)] = constant_bytes(part, element)
        return bytes(image)
    return to_bytes(np.asarray(value)[None], type_).tobytes()


# -- instructions: each parser returns (result type, operands, detail)


def _parse_binary(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    first = c.typed_value()
    c.expect(",")
    return first.type, [first, c.value(first.type)], {}


def _parse_compare(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    predicate = c.take()
    type_, operands, _ = _parse_binary(c)
    count = vector_count(type_)
    result: Type = VectorType(count, IntType(1)) if count else IntType(1)
    return result, operands, {"predicate": predicate}


def _parse_cast(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    operand = c.typed_value()
    c.expect("to")
    return c.type(), [operand], {}


def _parse_typed_list(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    """freeze, fneg, select, insertelement, shufflevector, extractelement: typed operands, result like the obvious."""
    c.skip_flags()
    operands = [c.typed_value()]
    while c.peek == "," and not c.tokens[c.at + 1].startswith("!"):
        c.take()
        operands.append(c.typed_value())
    return operands[0].type, operands, {}


def _parse_select(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    _, operands, detail = _parse_typed_list(c)
    return operands[1].type, operands, detail


def _parse_extractelement(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    type_, operands, detail = _parse_typed_list(c)
    return element_type(type_), operands, detail


def _parse_shufflevector(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    type_, operands, detail = _parse_typed_list(c)
    return VectorType(vector_count(operands[2].type), element_type(type_)), operands, detail


def _parse_indices(c: Cursor) -> list[int]:
    indices = []
    while c.peek == "," and not c.tokens[c.at + 1].startswith("!"):
        c.take()
        indices.append(int(c.take()))
    return indices


def _parse_extractvalue(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    aggregate = c.typed_value()
    indices = _parse_indices(c)
    type_ = aggregate.type
    for index in indices:
        type_ = _field(type_, index)
    return type_, [aggregate], {"indices": indices}


def _field(type_: Type, index: int) -> Type:
    if isinstance(type_, StructType):
        return type_.fields[index]
    if isinstance(type_, ArrayType):
        return type_.element
    raise EmulatorError(f"{type_} is not an aggregate.")


def _parse_insertvalue(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    aggregate = c.typed_value()
    c.expect(",")
    element = c.typed_value()
    return aggregate.type, [aggregate, element], {"indices": _parse_indices(c)}


def _parse_gep(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    source = c.type()
    c.expect(",")
    type_, operands, _ = _parse_typed_list(c)
    return type_, operands, {"source": source}


def _parse_memory_suffix(c: Cursor) -> dict[str, Any]:
    """`syncscope("...") ordering, align N` after a pointer operand; only the alignment matters here."""
    align = None
    while c.peek and not c.peek.startswith("!"):
        token = c.take()
        if token == "align":
            align = int(c.take())
        elif token == "," and c.peek.startswith("!"):
            break
    return {"align": align}


def _parse_load(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    type_ = c.type()
    c.expect(",")
    pointer = c.typed_value()
    return type_, [pointer], _parse_memory_suffix(c)


def _parse_store(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    value = c.typed_value()
    c.expect(",")
    pointer = c.typed_value()
    return VoidType(), [value, pointer], _parse_memory_suffix(c)


def _parse_atomicrmw(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    operation = c.take()
    pointer = c.typed_value()
    c.expect(",")
    value = c.typed_value()
    return value.type, [pointer, value], {"operation": operation, **_parse_memory_suffix(c)}


def _parse_cmpxchg(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    operands = [c.typed_value()]
    for _ in range(2):
        c.expect(",")
        operands.append(c.typed_value())
    return StructType((operands[1].type, IntType(1))), operands, _parse_memory_suffix(c)


def _parse_phi(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    type_ = c.type()
    operands, blocks = [], []
    while c.accept("["):
        operands.append(c.value(type_))
        c.expect(",")
        blocks.append(_name(c.take()))
        c.expect("]")
        if not (c.peek == "," and c.tokens[c.at + 1] == "["):
            break
        c.take()
    return type_, operands, {"blocks": blocks}


def _parse_label(c: Cursor) -> str:
    c.expect("label")
    return _name(c.take())


def _parse_br(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    if c.peek == "label":
        return VoidType(), [], {"targets": [_parse_label(c)]}
    condition = c.typed_value()
    c.expect(",")
    then = _parse_label(c)
    c.expect(",")
    return VoidType(), [condition], {"targets": [then, _parse_label(c)]}


def _parse_switch(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    """targets: the default, then one per case value."""
    value = c.typed_value()
    c.expect(",")
    targets, cases = [_parse_label(c)], []
    c.expect("[")
    while not c.accept("]"):
        cases.append(int(c.typed_value().value))
        c.expect(",")
        targets.append(_parse_label(c))
    return VoidType(), [value], {"targets": targets, "cases": cases}


def _parse_ret(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    if c.take() != "void":
        raise EmulatorError("Only kernels are executed, and a kernel returns void.")
    return VoidType(), [], {}


def _parse_nothing(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    return VoidType(), [], {}


def _parse_call(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    while c.peek in _CALLING_CONVENTIONS:
        c.take()
    while c.peek in _RETURN_ATTRIBUTES:
        c.take()
        if c.peek == "(":
            c.skip_balanced()
    type_ = c.type()
    detail: dict[str, Any] = {}
    if c.peek == "(":  # a full function type
        c.skip_balanced()
    if c.accept("asm"):
        detail["effects"] = c.skip_flags()
        detail["asm"] = _unescape(c.take()[1:-1])
        c.expect(",")
        detail["constraints"] = _unescape(c.take()[1:-1])
    elif c.peek.startswith("@"):
        detail["callee"] = _name(c.take())
    else:
        raise EmulatorError(f"Only direct calls and inline asm are supported, found a call of '{c.peek}'.")
    c.expect("(")
    operands = []
    while not c.accept(")"):
        operands.append(c.typed_value())
        c.accept(",")
    return type_, operands, detail


_RETURN_ATTRIBUTES = frozenset("noundef signext zeroext inreg noalias nonnull range nofpclass dereferenceable".split())


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-9A-Fa-f]{2})", lambda m: chr(int(m[1], 16)), text)


BINARY = frozenset("add sub mul udiv sdiv urem srem shl lshr ashr and or xor fadd fsub fmul fdiv frem".split())
CASTS = frozenset(
    "trunc zext sext fptrunc fpext fptoui fptosi uitofp sitofp ptrtoint ptrtoaddr inttoptr bitcast "
    "addrspacecast".split()
)
_PARSERS: dict[str, Callable[[Cursor], tuple[Type, list[Operand], dict[str, Any]]]] = {
    **dict.fromkeys(BINARY, _parse_binary),
    **dict.fromkeys(CASTS, _parse_cast),
    **dict.fromkeys(("freeze", "fneg", "insertelement"), _parse_typed_list),
    **dict.fromkeys(("icmp", "fcmp"), _parse_compare),
    **dict.fromkeys(("unreachable", "fence"), _parse_nothing),
    "select": _parse_select,
    "extractelement": _parse_extractelement,
    "shufflevector": _parse_shufflevector,
    "extractvalue": _parse_extractvalue,
    "insertvalue": _parse_insertvalue,
    "getelementptr": _parse_gep,
    "load": _parse_load,
    "store": _parse_store,
    "atomicrmw": _parse_atomicrmw,
    "cmpxchg": _parse_cmpxchg,
    "phi": _parse_phi,
    "br": _parse_br,
    "switch": _parse_switch,
    "ret": _parse_ret,
    "call": _parse_call,
}
TERMINATORS = frozenset(("br", "switch", "ret", "unreachable"))


def parse_instruction(tokens: list[str], line: int, text: str) -> Instruction:
    cursor = Cursor(tokens)
    dst = None
    if len(tokens) > 1 and tokens[1] == "=":
        dst = _name(cursor.take())
        cursor.take()
    while cursor.peek in ("tail", "musttail", "notail"):
        cursor.take()
    opcode = cursor.take()
    parser = _PARSERS.get(opcode)
    if parser is None:
        raise EmulatorError(f"The instruction '{opcode}' is not supported by the emulator.")
    type_, operands, detail = parser(cursor)
    return Instruction(opcode, dst, type_, tuple(operands), line, text, detail)


class _Lines:
    """Logical lines: tokens of physical lines joined until brackets balance."""

    def __init__(self, text: str) -> None:
        self.lines, self.at = text.split("\n"), 0

    def next(self) -> str | None:
        if self.at >= len(self.lines):
            return None
        self.at += 1
        return self.lines[self.at - 1]

    def balanced_tokens(self, first: str) -> list[str]:
        tokens = tokenize(first)
        while (missing := sum((t in _OPEN) - (t in _CLOSE) for t in tokens)) > 0:
            more = self.next()
            if more is None:
                raise EmulatorError(f"{missing} brackets are never closed.")
            tokens += tokenize(more)
        return tokens


def parse_module(text: str) -> Module:
    """Kernels, global variables and attribute groups of `text`; declarations and metadata are skipped."""
    lines, module = _Lines(text), Module()
    while (line := lines.next()) is not None:
        number = lines.at
        try:
            if line.startswith("@"):
                variable = _parse_global(lines.balanced_tokens(line))
                module.globals[variable.name] = variable
            elif line.startswith("attributes #"):
                group, _, body = line.partition("=")
                module.attributes[group.split()[1]] = body.strip()
            elif line.startswith("define"):
                _parse_define(line, lines, module)
            elif not re.match(r"\s*(?:;|$)|declare|target|source_filename|!|module asm|\$|%.* = type|\}", line):
                raise EmulatorError("This line is outside of a function and is not understood.")
        except EmulatorError as error:
            if error.located:
                raise
            raise EmulatorError(f"{error}\n  LLVM line {number}: {line.strip()[:200]}", located=True) from None
    for function in module.kernels.values():
        groups = re.findall(r"#\d+", function.attributes)
        function.attributes = " ".join([function.attributes, *(module.attributes.get(g, "") for g in groups)])
    return module


def _parse_global(tokens: list[str]) -> GlobalVariable:
    """`@name = [linkage] [addrspace(n)] global|constant TYPE [initialiser] [, align n]`"""
    c = Cursor(tokens)
    name, space, external = _name(c.take()), 0, False
    c.expect("=")
    while c.peek not in ("global", "constant"):
        word = c.take()
        external |= word in ("external", "extern_weak")
        if word == "addrspace":
            c.expect("(")
            space = int(c.take())
            c.expect(")")
        elif not word:
            raise EmulatorError("Only global variables are supported at module level, no aliases.")
    c.take()
    type_ = c.type()
    data = None
    if not external and space != 3 and c.peek not in ("undef", "poison"):
        data = constant_bytes(c.constant(type_), type_)
    align = int(tokens[tokens.index("align") + 1]) if "align" in tokens else max(1, align_of(type_))
    return GlobalVariable(name, space, type_, align, external, data)


def _parse_define(line: str, lines: _Lines, module: Module) -> None:
    while not line.rstrip().endswith("{"):
        more = lines.next()
        if more is None:
            raise EmulatorError("The function has no body.")
        line += " " + more
    c = Cursor(tokenize(line))
    words = []
    while not c.peek.startswith("@"):
        words.append(c.take())
        if not c.peek:
            raise EmulatorError("The function has no name.")
    name = _name(c.take())
    params = _parse_params(c)
    attributes = " ".join(c.tokens[c.at :])
    blocks = _parse_body(lines, first=str(sum(1 for _, p in params if p.isdigit())))
    if "ptx_kernel" in words or "amdgpu_kernel" in words:
        module.kernels[name] = Function(name, params, blocks, "amdgpu_kernel" in words, attributes)


def _parse_params(c: Cursor) -> list[tuple[Type, str]]:
    params: list[tuple[Type, str]] = []
    c.expect("(")
    while not c.accept(")"):
        type_ = c.type()
        c.skip_attributes()
        name = _name(c.take()) if c.peek.startswith("%") else str(sum(1 for _, p in params if p.isdigit()))
        params.append((type_, name))
        c.accept(",")
    return params


def _parse_body(lines: _Lines, first: str) -> dict[str, Block]:
    """Blocks up to the closing brace; an unnamed entry block gets the number LLVM gives it."""
    blocks: dict[str, Block] = {}
    block: Block | None = None
    while (line := lines.next()) is not None and not line.startswith("}"):
        number, text = lines.at, line.strip()
        if not text or text[0] in ";#":
            continue
        label = _LABEL.match(text)
        if label:
            block = blocks[label[1] or label[2]] = Block(label[1] or label[2])
            continue
        if block is None:
            block = blocks[first] = Block(first)
        try:
            block.instructions.append(parse_instruction(lines.balanced_tokens(line), number, text))
        except EmulatorError as error:
            raise EmulatorError(f"{error}\n  LLVM line {number}: {text[:200]}", located=True) from None
    for block in blocks.values():
        if not block.instructions or block.terminator.opcode not in TERMINATORS:
            raise EmulatorError(f"The block '{block.name}' does not end in br, switch, ret or unreachable.")
    return blocks
