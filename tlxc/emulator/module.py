"""LLVM IR text to a module of kernels, blocks and global variables. Declarations, metadata and debug records are
skipped; anything else that is not understood is an EmulatorError naming the line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tlxc.emulator.cursor import CLOSE, OPEN, Cursor, constant_bytes, name_of, tokenize
from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.parse import TERMINATORS, Instruction, parse_instruction
from tlxc.emulator.values import Type, align_of

_NAMED_TYPE = re.compile(r"^(%[\w.$-]+) = type (.*)$", re.M)
_LABEL = re.compile(r'^(?:"([^"]*)"|([\w.$-]+)):')


@dataclass
class Block:
    """`origin` is the name that phis know the block by, where it is a piece of a larger one."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)
    origin: str = ""

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


def _spelled_out(text: str) -> str:
    """The text with named types replaced by what they name; a definition becomes an empty line."""
    named = dict(_NAMED_TYPE.findall(text))
    if not named:
        return text
    text = _NAMED_TYPE.sub("", text)
    return re.sub("|".join(rf"{re.escape(name)}(?![\w.$-])" for name in named), lambda m: named[m[0]], text)


class _Lines:
    """Logical lines: tokens of physical lines joined until brackets balance."""

    def __init__(self, text: str) -> None:
        self.lines, self.at = _spelled_out(text).split("\n"), 0

    def next(self) -> str | None:
        if self.at >= len(self.lines):
            return None
        self.at += 1
        return self.lines[self.at - 1]

    def balanced_tokens(self, first: str) -> list[str]:
        tokens = tokenize(first)
        while (missing := sum((t in OPEN) - (t in CLOSE) for t in tokens)) > 0:
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
    name, space, external = name_of(c.take()), 0, False
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
    name = name_of(c.take())
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
        name = name_of(c.take()) if c.peek.startswith("%") else str(sum(1 for _, p in params if p.isdigit()))
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
