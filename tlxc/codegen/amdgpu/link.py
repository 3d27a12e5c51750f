"""Relocatable AMDGPU object (what LLVM emits) to a loadable hsaco, without an external linker.

The input is one translation unit: kernels in ``.text``, their descriptors in ``.rodata``, the metadata note, and
optionally constants, data and bss. Every reference must resolve inside the file. The output has the sections,
addresses, segments and hash tables that ``ld.lld -shared`` gives the same input, so the two can be compared byte for
byte wherever lld is at hand.

File image, low to high addresses; each group starts a new page with a file offset congruent to its address::

    R    notes .dynsym .gnu.hash .hash .dynstr [.rela.dyn] read-only data
    RX   code
    RW   [.data.rel.ro] .dynamic .relro_padding      (read-only after relocation)
    RW   [data] [bss]
    --   .symtab .shstrtab .strtab                    (not loaded)

Both symbol tables are written because ROCm's loader reads ``.symtab`` by default and ``.dynsym`` on request.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag

from ...errors import TlxcError

PAGE = 4096
EHDR_SIZE, PHDR_SIZE, SHDR_SIZE, SYM_SIZE, RELA_SIZE, DYN_SIZE = 64, 56, 64, 24, 24, 16
EM_AMDGPU = 224
ET_REL, ET_DYN = 1, 3
SHN_UNDEF, SHN_RESERVED, SHN_AMDGPU_LDS, SHN_ABS, SHN_COMMON = 0, 0xFF00, 0xFF00, 0xFFF1, 0xFFF2
STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2
STV_INTERNAL, STV_HIDDEN = 1, 2
_NOTES, _READ_ONLY, _CODE, _RELRO, _DATA, _BSS = range(6)  # see _group_of


class LinkError(TlxcError):
    """The object cannot become an hsaco; the text says which symbol or relocation stands in the way."""


class Sht(IntEnum):
    """Section types that are read or written here."""

    PROGBITS = 1
    SYMTAB = 2
    STRTAB = 3
    RELA = 4
    HASH = 5
    DYNAMIC = 6
    NOTE = 7
    NOBITS = 8
    REL = 9
    DYNSYM = 11
    GNU_HASH = 0x6FFFFFF6


class Shf(IntFlag):
    """Section flags that survive linking; all others describe the relocatable file only."""

    WRITE = 1
    ALLOC = 2
    EXECINSTR = 4
    MERGE = 0x10
    STRINGS = 0x20


_KEPT_FLAGS = int(Shf.WRITE | Shf.ALLOC | Shf.EXECINSTR | Shf.MERGE | Shf.STRINGS)


class Pt(IntEnum):
    """Segment types."""

    LOAD = 1
    DYNAMIC = 2
    NOTE = 4
    PHDR = 6
    GNU_STACK = 0x6474E551
    GNU_RELRO = 0x6474E552


PF_R, PF_RX, PF_RW = 4, 5, 6


class Dt(IntEnum):
    """Entries of ``.dynamic``."""

    NULL = 0
    HASH = 4
    STRTAB = 5
    SYMTAB = 6
    RELA = 7
    RELASZ = 8
    RELAENT = 9
    STRSZ = 10
    SYMENT = 11
    GNU_HASH = 0x6FFFFEF5
    RELACOUNT = 0x6FFFFFF9


class Reloc(IntEnum):
    """AMDGPU relocation types (LLVM's AMDGPU usage guide, section ELF relocation records)."""

    ABS32_LO = 1
    ABS64 = 3
    REL32 = 4
    REL64 = 5
    ABS32 = 6
    GOTPCREL = 7
    GOTPCREL32_LO = 8
    GOTPCREL32_HI = 9
    REL32_LO = 10
    REL32_HI = 11
    RELATIVE64 = 13


_GOT_RELOCS = frozenset({Reloc.GOTPCREL, Reloc.GOTPCREL32_LO, Reloc.GOTPCREL32_HI})


@dataclass(eq=False)
class Section:
    """One section, of the input or of the output; ``address`` and ``offset`` are valid after layout."""

    name: bytes
    type: int
    flags: int
    align: int
    data: bytearray
    size: int
    entry_size: int = 0
    link: int = 0
    info: int = 0
    address: int = 0
    offset: int = 0

    @property
    def occupies_file(self) -> bool:
        return self.type != Sht.NOBITS


@dataclass(eq=False)
class Symbol:
    """One symbol of the input; ``value`` is relative to its section."""

    name: bytes
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def binding(self) -> int:
        return self.info >> 4

    @property
    def exported(self) -> bool:
        return self.binding in (STB_GLOBAL, STB_WEAK) and self.other & 3 not in (STV_INTERNAL, STV_HIDDEN)


@dataclass(frozen=True)
class Relocation:
    """``place`` in input section ``target`` takes the address of ``symbol`` plus ``addend``, encoded as ``type``."""

    target: int
    place: int
    type: int
    symbol: Symbol
    addend: int


@dataclass(frozen=True)
class Segment:
    """One program header."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    align: int


@dataclass
class ObjectFile:
    """The parsed input."""

    ident: bytes
    flags: int
    sections: list[Section]
    symbols: list[Symbol]
    relocations: list[Relocation]


@dataclass
class Image:
    """The output under construction. ``placed`` maps an input section index to the section that carries it."""

    groups: list[list[Section]] = field(default_factory=list)
    placed: dict[int, Section] = field(default_factory=dict)
    unloaded: list[Section] = field(default_factory=list)
    loads: list[Segment] = field(default_factory=list)
    end_offset: int = 0

    @property
    def sections(self) -> list[Section]:
        return [section for group in self.groups for section in group] + self.unloaded

    def index_of(self, section: Section) -> int:
        """Section header index; 0 is the null section."""
        return next(i for i, other in enumerate(self.sections, 1) if other is section)


@dataclass(frozen=True)
class DynamicTables:
    """Sections that the loader finds symbols and relocations with. ``symbols`` is in ``.dynsym`` order."""

    symbols: list[Symbol]
    name_offsets: dict[bytes, int]
    relative: list[Relocation]
    dynsym: Section
    gnu_hash: Section
    hash: Section
    dynstr: Section
    rela: Section | None
    dynamic: Section


def link(obj: bytes) -> bytes:
    """Link one relocatable AMDGPU ELF64 object into a shared object that HIP can load.

    Raises `LinkError` for anything else, for undefined or exported-through-GOT symbols, and for relocations that
    a kernel module of internal symbols never has.
    """
    source = _read_object(obj)
    _check_symbols(source.symbols)
    image = Image()
    tables = _plan(source, image)
    _assign_addresses(image)
    _relocate(source, image)
    _fill_tables(tables, image)
    _add_symbol_table(source, image, tables)
    return _serialise(source, image, _segments(image, tables))


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def _read_object(obj: bytes) -> ObjectFile:
    magic = b"\x7fELF\x02\x01"  # 64 bits, little-endian
    if len(obj) < EHDR_SIZE or obj[:6] != magic or struct.unpack_from("<HH", obj, 16) != (ET_REL, EM_AMDGPU):
        raise LinkError(
            "The input is not a relocatable AMDGPU ELF64 object; pass what LLVM's emit_object returns for "
            "an amdgcn-amd-amdhsa target machine."
        )
    (header_offset,) = struct.unpack_from("<Q", obj, 40)
    (flags,) = struct.unpack_from("<I", obj, 48)
    count, names_index = struct.unpack_from("<HH", obj, 60)
    headers = [struct.unpack_from("<IIQQQQIIQQ", obj, header_offset + SHDR_SIZE * i) for i in range(count)]
    names_offset = headers[names_index][4]
    sections = []
    for name, type_, section_flags, _, offset, size, link_, info, align, entry_size in headers:
        data = bytearray() if type_ == Sht.NOBITS else bytearray(obj[offset : offset + size])
        sections.append(
            Section(
                _c_string(obj, names_offset + name), type_, section_flags, align, data, size, entry_size, link_, info
            )
        )
    symbols = _read_symbols(sections)
    return ObjectFile(obj[:16], flags, sections, symbols, list(_read_relocations(sections, symbols)))


def _read_symbols(sections: list[Section]) -> list[Symbol]:
    table = next((section for section in sections if section.type == Sht.SYMTAB), None)
    if table is None:
        raise LinkError(
            "The object has no symbol table, so it defines no kernel; compile a module with at least one "
            "amdgpu_kernel function."
        )
    strings = bytes(sections[table.link].data)
    symbols = []
    for offset in range(0, table.size, SYM_SIZE):
        name, info, other, section, value, size = struct.unpack_from("<IBBHQQ", table.data, offset)
        symbols.append(Symbol(_c_string(strings, name), info, other, section, value, size))
    return symbols


def _read_relocations(sections: list[Section], symbols: list[Symbol]) -> Iterator[Relocation]:
    for section in sections:
        if section.type not in (Sht.RELA, Sht.REL) or not sections[section.info].flags & Shf.ALLOC:
            continue
        if section.type == Sht.REL:
            raise LinkError(
                f"Section {_text(section.name)} holds relocations without addends; AMDGPU objects carry "
                "them with addends (RELA)."
            )
        for offset in range(0, section.size, RELA_SIZE):
            place, info, addend = struct.unpack_from("<QQq", section.data, offset)
            yield Relocation(section.info, place, info & 0xFFFFFFFF, symbols[info >> 32], addend)


def _check_symbols(symbols: list[Symbol]) -> None:
    """Every symbol must be defined in a section of this file, or be absolute."""
    for symbol in symbols[1:]:
        name = _text(symbol.name)
        if symbol.section == SHN_UNDEF:
            raise LinkError(
                f"Symbol {name} is undefined; an hsaco is linked from one module, so define it there with "
                "internal linkage."
            )
        if symbol.section == SHN_AMDGPU_LDS:
            raise LinkError(
                f"Symbol {name} is an LDS variable with external linkage; give the LDS pool internal "
                "linkage, so that its offset is fixed at compile time."
            )
        if symbol.section >= SHN_RESERVED and symbol.section != SHN_ABS:
            raise LinkError(
                f"Symbol {name} is a common symbol or has reserved section index {symbol.section:#x}; "
                "define it with internal linkage and an initialiser."
            )
    if not any(symbol.exported for symbol in symbols):
        raise LinkError(
            "The object exports no kernel; compile a module with at least one amdgpu_kernel function of "
            "external linkage."
        )


# ---------------------------------------------------------------------------------------------------------------------
# Choosing sections and their order


def _plan(source: ObjectFile, image: Image) -> DynamicTables:
    """Create all loaded sections in file order, with final sizes; addresses and contents of tables come later."""
    exported = [symbol for symbol in source.symbols if symbol.exported]
    strings, name_offsets = _string_table(exported)  # in the order of the object, unlike .dynsym
    in_bucket_order, hash_table = _gnu_hash_table(exported)
    relative = [r for r in source.relocations if r.type == Reloc.ABS64 and r.symbol.section != SHN_ABS]
    tables = _dynamic_sections(in_bucket_order, name_offsets, relative, hash_table, strings)

    def carry(wanted: int) -> list[Section]:
        carried = []
        for index, section in enumerate(source.sections):
            if section.flags & Shf.ALLOC and section.size and _group_of(section) == wanted:
                out = Section(
                    section.name,
                    section.type,
                    section.flags & _KEPT_FLAGS,
                    section.align,
                    bytearray(section.data),
                    section.size,
                )
                image.placed[index] = out
                carried.append(out)
        return carried

    lookup = [tables.dynsym, tables.gnu_hash, tables.hash, tables.dynstr, *([tables.rela] if tables.rela else [])]
    padding = Section(b".relro_padding", Sht.NOBITS, Shf.ALLOC | Shf.WRITE, 1, bytearray(), 0)
    image.groups = [
        [*carry(_NOTES), *lookup, *carry(_READ_ONLY)],
        carry(_CODE),
        [*carry(_RELRO), tables.dynamic, padding],
        [*carry(_DATA), *carry(_BSS)],
    ]
    if not image.groups[1]:
        raise LinkError("The object has no code; compile a module with at least one amdgpu_kernel function.")
    if not image.groups[3]:
        image.groups.pop()
    return tables


def _group_of(section: Section) -> int:
    """Which part of the image a loaded input section belongs to."""
    if section.type == Sht.NOTE:
        return _NOTES
    if section.flags & Shf.EXECINSTR:
        return _CODE
    if not section.flags & Shf.WRITE:
        return _READ_ONLY
    if section.name.startswith(b".data.rel.ro"):
        return _RELRO
    return _BSS if section.type == Sht.NOBITS else _DATA


def _dynamic_sections(
    symbols: list[Symbol], name_offsets: dict[bytes, int], relative: list[Relocation], hash_table: bytes, strings: bytes
) -> DynamicTables:
    def table(name: bytes, type_: Sht, align: int, data: bytes, entry_size: int = 0, flags: int = Shf.ALLOC) -> Section:
        return Section(name, type_, flags, align, bytearray(data), len(data), entry_size)

    # Tags: SYMTAB, SYMENT, STRTAB, STRSZ, GNU_HASH, HASH, NULL; four more describe .rela.dyn.
    tag_count = 11 if relative else 7
    return DynamicTables(
        symbols,
        name_offsets,
        relative,
        dynsym=table(b".dynsym", Sht.DYNSYM, 8, bytes(SYM_SIZE * (len(symbols) + 1)), SYM_SIZE),
        gnu_hash=table(b".gnu.hash", Sht.GNU_HASH, 8, hash_table),
        hash=table(b".hash", Sht.HASH, 4, _sysv_hash_table(symbols), 4),
        dynstr=table(b".dynstr", Sht.STRTAB, 1, strings),
        rela=table(b".rela.dyn", Sht.RELA, 8, bytes(RELA_SIZE * len(relative)), RELA_SIZE) if relative else None,
        dynamic=table(b".dynamic", Sht.DYNAMIC, 8, bytes(DYN_SIZE * tag_count), DYN_SIZE, Shf.ALLOC | Shf.WRITE),
    )


def _gnu_hash_table(symbols: list[Symbol]) -> tuple[list[Symbol], bytes]:
    """The symbols in bucket order, and the ``.gnu.hash`` contents: header, 64-bit Bloom filter, buckets, chain."""
    bucket_count = max(len(symbols) // 4, 1)
    hashes = {symbol.name: gnu_hash(symbol.name) for symbol in symbols}
    ordered = sorted(symbols, key=lambda symbol: hashes[symbol.name] % bucket_count)
    shift, words = 26, 1
    while words < len(ordered) * 12 // 64 + 1:
        words *= 2
    bloom, buckets, chain = [0] * words, [0] * bucket_count, []
    for i, symbol in enumerate(ordered):
        value = hashes[symbol.name]
        bloom[value // 64 % words] |= 1 << value % 64 | 1 << (value >> shift) % 64
        buckets[value % bucket_count] = buckets[value % bucket_count] or i + 1
        last = i + 1 == len(ordered) or hashes[ordered[i + 1].name] % bucket_count != value % bucket_count
        chain.append(value & ~1 | last)
    header = struct.pack("<IIII", bucket_count, 1, words, shift)
    return ordered, header + struct.pack(f"<{words}Q{bucket_count}I{len(chain)}I", *bloom, *buckets, *chain)


def _sysv_hash_table(symbols: list[Symbol]) -> bytes:
    """``.hash`` contents with as many buckets as symbols (the null symbol included)."""
    count = len(symbols) + 1
    buckets, chain = [0] * count, [0] * count
    for i, symbol in enumerate(symbols, 1):
        bucket = sysv_hash(symbol.name) % count
        chain[i], buckets[bucket] = buckets[bucket], i
    return struct.pack(f"<II{2 * count}I", count, count, *buckets, *chain)


def gnu_hash(name: bytes) -> int:
    """The hash function of ``.gnu.hash``."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def sysv_hash(name: bytes) -> int:
    """The hash function of ``.hash`` (System V ABI)."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


# ---------------------------------------------------------------------------------------------------------------------
# Addresses and contents


def _program_header_count(image: Image) -> int:
    has_note = any(section.type == Sht.NOTE for section in image.groups[0])
    return 1 + len(image.groups) + 3 + has_note  # PHDR, LOADs, DYNAMIC + GNU_RELRO + GNU_STACK, NOTE


def _assign_addresses(image: Image) -> None:
    """Give every loaded section its address and file offset, and record one LOAD segment per group."""
    offset = address = EHDR_SIZE + PHDR_SIZE * _program_header_count(image)
    for group, flags in zip(image.groups, (PF_R, PF_RX, PF_RW, PF_RW)):
        if image.loads:
            address += PAGE  # the next page; offset and address stay congruent
        for section in group:
            skip = _align(address, section.align) - address
            address, offset = address + skip, offset + skip
            section.address, section.offset = address, offset
            if section.name == b".relro_padding":
                section.size = _align(address, PAGE) - address
                continue  # takes no file space, and the next group starts a page of its own anyway
            address += section.size
            offset += section.size if section.occupies_file else 0
        # The first segment also holds the file and program headers.
        first_offset, first_address = (group[0].offset, group[0].address) if image.loads else (0, 0)
        end = group[-1].address + group[-1].size
        image.loads.append(
            Segment(Pt.LOAD, flags, first_offset, first_address, offset - first_offset, end - first_address, PAGE)
        )
    image.end_offset = offset


def _address_of(symbol: Symbol, image: Image) -> int:
    if symbol.section == SHN_ABS:
        return symbol.value
    section = image.placed.get(symbol.section)
    if section is None:
        raise LinkError(
            f"Symbol {_text(symbol.name)} lies in a section that is empty or not loaded; define it in "
            "code, constant or data memory."
        )
    return section.address + symbol.value


def _relocate(source: ObjectFile, image: Image) -> None:
    for relocation in source.relocations:
        target = image.placed.get(relocation.target)
        if target is None:
            raise LinkError(
                f"A relocation against {_text(relocation.symbol.name)} applies to an empty section, so the "
                "object is damaged; emit it again."
            )
        symbol = relocation.symbol
        value = _address_of(symbol, image) + relocation.addend
        if relocation.type == Reloc.ABS64 and symbol.section != SHN_ABS:
            if not target.flags & Shf.WRITE:
                raise LinkError(
                    f"The address of {_text(symbol.name)} is stored in read-only section "
                    f"{_text(target.name)}; store it in relocatable constant data (.data.rel.ro)."
                )
            continue  # the loader adds the load address: see .rela.dyn
        format_, encoded = _encode(relocation, value, value - (target.address + relocation.place))
        struct.pack_into(format_, target.data, relocation.place, encoded)


def _encode(relocation: Relocation, absolute: int, relative: int) -> tuple[str, int]:
    """The struct format and the value to store for a relocation that is resolved at link time."""
    type_, symbol = relocation.type, relocation.symbol
    if type_ == Reloc.REL64:
        return "<q", relative
    if type_ == Reloc.REL32:
        if not -(2**31) <= relative < 2**31:
            raise LinkError(
                f"The distance to {_text(symbol.name)} ({relative} bytes) does not fit the 32 bits of its "
                "reference; make the module smaller than 2 GiB."
            )
        return "<i", relative
    if type_ == Reloc.REL32_LO:
        return "<I", relative & 0xFFFFFFFF
    if type_ == Reloc.REL32_HI:
        return "<I", relative >> 32 & 0xFFFFFFFF
    if symbol.section == SHN_ABS and type_ in (Reloc.ABS32, Reloc.ABS32_LO):
        return "<I", absolute & 0xFFFFFFFF
    if symbol.section == SHN_ABS and type_ == Reloc.ABS64:
        return "<Q", absolute & 0xFFFFFFFFFFFFFFFF
    if type_ in _GOT_RELOCS:
        raise LinkError(
            f"Symbol {_text(symbol.name)} is exported and therefore reached through a global offset table, "
            "which an hsaco made here does not have; give it internal linkage."
        )
    raise LinkError(
        f"Relocation type {type_} against {_text(symbol.name)} is not supported; references may be "
        "relative, or 64-bit addresses in constant data."
    )


def _fill_tables(tables: DynamicTables, image: Image) -> None:
    """Write ``.dynsym``, ``.rela.dyn`` and ``.dynamic`` and the section header links among them."""
    for i, symbol in enumerate(tables.symbols, 1):
        struct.pack_into(
            "<IBBHQQ",
            tables.dynsym.data,
            SYM_SIZE * i,
            *_symbol_record(symbol, tables.name_offsets[symbol.name], image),
        )
    tags: list[tuple[Dt, int]] = []
    if tables.rela:
        for i, relocation in enumerate(tables.relative):
            place = image.placed[relocation.target].address + relocation.place
            value = _address_of(relocation.symbol, image) + relocation.addend
            struct.pack_into("<QQq", tables.rela.data, RELA_SIZE * i, place, Reloc.RELATIVE64, value)
        tags = [
            (Dt.RELA, tables.rela.address),
            (Dt.RELASZ, tables.rela.size),
            (Dt.RELAENT, RELA_SIZE),
            (Dt.RELACOUNT, len(tables.relative)),
        ]
        tables.rela.link = image.index_of(tables.dynsym)
    tags += [
        (Dt.SYMTAB, tables.dynsym.address),
        (Dt.SYMENT, SYM_SIZE),
        (Dt.STRTAB, tables.dynstr.address),
        (Dt.STRSZ, tables.dynstr.size),
        (Dt.GNU_HASH, tables.gnu_hash.address),
        (Dt.HASH, tables.hash.address),
        (Dt.NULL, 0),
    ]
    tables.dynamic.data[:] = b"".join(struct.pack("<QQ", tag, value) for tag, value in tags)
    tables.dynsym.link = tables.dynamic.link = image.index_of(tables.dynstr)
    tables.dynsym.info = 1  # index of the first non-local symbol
    tables.gnu_hash.link = tables.hash.link = image.index_of(tables.dynsym)


def _symbol_record(symbol: Symbol, name_offset: int, image: Image) -> tuple[int, int, int, int, int, int]:
    address = _address_of(symbol, image)
    index = SHN_ABS if symbol.section == SHN_ABS else image.index_of(image.placed[symbol.section])
    return name_offset, symbol.info, symbol.other, index, address, symbol.size


def _add_symbol_table(source: ObjectFile, image: Image, tables: DynamicTables) -> None:
    """Append ``.symtab``, ``.shstrtab``, ``.strtab``: local symbols, ``_DYNAMIC``, then global ones."""
    symbols = source.symbols[1:]
    local = [s for s in symbols if s.binding == STB_LOCAL and (s.section == SHN_ABS or s.section in image.placed)]
    other = [s for s in symbols if s.binding != STB_LOCAL]
    dynamic = Symbol(b"_DYNAMIC", 0, STV_HIDDEN, SHN_UNDEF, 0, 0)
    strings, records = bytearray(b"\0"), bytearray(SYM_SIZE)
    for symbol in [*local, dynamic, *other]:
        record = (
            (len(strings), symbol.info, symbol.other, image.index_of(tables.dynamic), tables.dynamic.address, 0)
            if symbol is dynamic
            else _symbol_record(symbol, len(strings), image)
        )
        records += struct.pack("<IBBHQQ", *record)
        strings += symbol.name + b"\0"
    symtab = Section(b".symtab", Sht.SYMTAB, 0, 8, records, len(records), SYM_SIZE)
    shstrtab = Section(b".shstrtab", Sht.STRTAB, 0, 1, bytearray(), 0)
    strtab = Section(b".strtab", Sht.STRTAB, 0, 1, strings, len(strings))
    image.unloaded = [symtab, shstrtab, strtab]
    symtab.link, symtab.info = image.index_of(strtab), 2 + len(local)  # null, locals, _DYNAMIC
    shstrtab.data = bytearray(b"\0" + b"".join(section.name + b"\0" for section in image.sections))
    shstrtab.size = len(shstrtab.data)
    for section in image.unloaded:
        section.offset = _align(image.end_offset, section.align)
        image.end_offset = section.offset + section.size


# ---------------------------------------------------------------------------------------------------------------------
# Writing


def _segments(image: Image, tables: DynamicTables) -> list[Segment]:
    headers_size = PHDR_SIZE * _program_header_count(image)
    dynamic, relro = tables.dynamic, image.loads[2]
    segments = [
        Segment(Pt.PHDR, PF_R, EHDR_SIZE, EHDR_SIZE, headers_size, headers_size, 8),
        *image.loads,
        Segment(Pt.DYNAMIC, PF_RW, dynamic.offset, dynamic.address, dynamic.size, dynamic.size, 8),
        Segment(Pt.GNU_RELRO, PF_R, relro.offset, relro.address, relro.file_size, relro.memory_size, 1),
        Segment(Pt.GNU_STACK, PF_RW, 0, 0, 0, 0, 0),
    ]
    notes = [section for section in image.groups[0] if section.type == Sht.NOTE]
    if notes:
        first, last = notes[0], notes[-1]
        size = last.address + last.size - first.address
        segments.append(Segment(Pt.NOTE, PF_R, first.offset, first.address, size, size, first.align))
    return segments


def _serialise(source: ObjectFile, image: Image, segments: list[Segment]) -> bytes:
    sections = image.sections
    header_offset = _align(image.end_offset, 8)
    out = bytearray(header_offset + SHDR_SIZE * (len(sections) + 1))
    names_index = image.index_of(image.unloaded[1])
    out[:EHDR_SIZE] = source.ident + struct.pack(
        "<HHIQQQIHHHHHH",
        ET_DYN,
        EM_AMDGPU,
        1,
        0,
        EHDR_SIZE,
        header_offset,
        source.flags,
        EHDR_SIZE,
        PHDR_SIZE,
        len(segments),
        SHDR_SIZE,
        len(sections) + 1,
        names_index,
    )
    for i, seg in enumerate(segments):
        struct.pack_into(
            "<IIQQQQQQ",
            out,
            EHDR_SIZE + PHDR_SIZE * i,
            seg.type,
            seg.flags,
            seg.offset,
            seg.address,
            seg.address,
            seg.file_size,
            seg.memory_size,
            seg.align,
        )
    name_offset = 1
    for i, section in enumerate(sections, 1):
        if section.occupies_file:
            out[section.offset : section.offset + section.size] = section.data
        struct.pack_into(
            "<IIQQQQIIQQ",
            out,
            header_offset + SHDR_SIZE * i,
            name_offset,
            section.type,
            section.flags,
            section.address,
            section.offset,
            section.size,
            section.link,
            section.info,
            section.align,
            section.entry_size,
        )
        name_offset += len(section.name) + 1
    return bytes(out)


def _string_table(symbols: list[Symbol]) -> tuple[bytes, dict[bytes, int]]:
    """String table contents and the offset of each name in it."""
    data, offsets = bytearray(b"\0"), {}
    for symbol in symbols:
        offsets[symbol.name] = len(data)
        data += symbol.name + b"\0"
    return bytes(data), offsets


def _align(value: int, alignment: int) -> int:
    return (value + alignment - 1) & -alignment if alignment > 1 else value


def _c_string(data: bytes, offset: int) -> bytes:
    return data[offset : data.index(b"\0", offset)]


def _text(name: bytes) -> str:
    return name.decode(errors="replace") or "<unnamed>"
