"""The hsaco linker, over the module shapes that code generation emits, checked by a parser of its own."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tlxc.codegen.amdgpu.link import LinkError, gnu_hash, link, sysv_hash
from tlxc.targets import all_targets

CPUS = [target.cpu for target in all_targets() if target.vendor == "amd"]


def kernel(body: str, name: str = "k") -> str:
    return f"define amdgpu_kernel void @{name}(ptr addrspace(1) %o, i32 %x) {{ {body} ret void }}\n"


STORE = "store i32 %x, ptr addrspace(1) %o"
THROUGH_LDS = kernel("%p = getelementptr i32, ptr addrspace(3) @l, i32 %x store i32 %x, ptr addrspace(3) %p "
                     "%v = load i32, ptr addrspace(3) @l store i32 %v, ptr addrspace(1) %o")  # fmt: skip

MODULES = {
    "one": kernel(STORE),
    "nine": "".join(kernel(STORE, f"kernel_{i}_of_nine") for i in range(9)),
    "forty": "".join(kernel(STORE, f"k{i}") for i in range(40)),
    "static_lds": "@l = internal addrspace(3) global [1024 x i32] poison, align 16\n" + THROUGH_LDS,
    "dynamic_lds": "@l = external addrspace(3) global [0 x i32], align 16\n" + THROUGH_LDS,
    "constants": "@t = internal addrspace(4) constant [8 x i32] "
    "[i32 3, i32 1, i32 4, i32 1, i32 5, i32 9, i32 2, i32 6]\n"
    + kernel("%p = getelementptr i32, ptr addrspace(4) @t, i32 %x %v = load i32, ptr addrspace(4) %p "
             "store i32 %v, ptr addrspace(1) %o"),
    "data_and_bss": "@d = internal addrspace(1) global [4 x i32] [i32 1, i32 2, i32 3, i32 4]\n"
    "@z = internal addrspace(1) global [64 x i32] zeroinitializer, align 64\n"
    + kernel("%p = getelementptr i32, ptr addrspace(1) @d, i32 %x %v = load i32, ptr addrspace(1) %p "
             "%q = getelementptr i32, ptr addrspace(1) @z, i32 %v store i32 %v, ptr addrspace(1) %q "
             "%w = atomicrmw add ptr addrspace(1) @d, i32 %v seq_cst"),
    "function": "define internal i32 @f(i32 %a) noinline { %r = mul i32 %a, 77 ret i32 %r }\n"
    + kernel("%v = call i32 @f(i32 %x) store i32 %v, ptr addrspace(1) %o"),
    "pointers": "@a = internal addrspace(4) constant i32 7\n@b = internal addrspace(4) constant i32 8\n"
    "@t = internal addrspace(4) constant [2 x ptr addrspace(4)] [ptr addrspace(4) @a, ptr addrspace(4) @b]\n"
    + kernel("%p = getelementptr ptr addrspace(4), ptr addrspace(4) @t, i32 %x %q = load ptr addrspace(4), "
             "ptr addrspace(4) %p %v = load i32, ptr addrspace(4) %q store i32 %v, ptr addrspace(1) %o"),
}  # fmt: skip

every_module = pytest.mark.parametrize("module", MODULES)
every_cpu = pytest.mark.parametrize("cpu", CPUS)


def compile_object(source: str, cpu: str) -> bytes:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    flag = '!llvm.module.flags = !{!0}\n!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}\n'
    module = llvm.parse_assembly('target triple = "amdgcn-amd-amdhsa"\n' + source + flag)
    module.verify()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=cpu, opt=2)
    return machine.emit_object(module)


@cache
def linked(module: str, cpu: str) -> tuple[bytes, bytes]:
    """The object and the hsaco of one module."""
    obj = compile_object(MODULES[module], cpu)
    return obj, link(obj)


@dataclass(frozen=True)
class Header:
    """A section header."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


@dataclass(frozen=True)
class Program:
    """A program header."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    align: int


@dataclass(frozen=True)
class Entry:
    """A symbol."""

    name: str
    type: int
    binding: int
    section: int
    address: int
    size: int


class Elf:
    """Just enough of an ELF reader to look at a linked file the way a loader does."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        (self.type, self.machine, _, _, program_offset, section_offset, self.flags, _, _, programs, _, sections,
         names) = struct.unpack_from("<HHIQQQIHHHHHH", data, 16)  # fmt: skip
        raw = [struct.unpack_from("<IIQQQQIIQQ", data, section_offset + 64 * i) for i in range(sections)]
        names_offset = raw[names][4]
        self.sections = [Header(self.string(names_offset + r[0]), *r[1:]) for r in raw]
        self.programs = []
        for at in range(program_offset, program_offset + 56 * programs, 56):
            type_, flags, offset, address, physical, *rest = struct.unpack_from("<IIQQQQQQ", data, at)
            assert physical == address
            self.programs.append(Program(type_, flags, offset, address, *rest))

    def string(self, offset: int) -> str:
        return self.data[offset : self.data.index(b"\0", offset)].decode()

    def section(self, name: str) -> Header:
        (found,) = [section for section in self.sections if section.name == name]
        return found

    def contents(self, name: str) -> bytes:
        section = self.section(name)
        return self.data[section.offset : section.offset + section.size]

    def symbols(self, table: str) -> list[Entry]:
        strings = self.sections[self.section(table).link].offset
        out = []
        for name, info, _, section, value, size in struct.iter_unpack("<IBBHQQ", self.contents(table)):
            out.append(Entry(self.string(strings + name), info & 15, info >> 4, section, value, size))
        return out

    def loads(self) -> list[Program]:
        return [program for program in self.programs if program.type == 1]

    def memory(self) -> bytearray:
        """The loaded image at address 0, relocated as the loader does it."""
        image = bytearray(max(load.address + load.memory_size for load in self.loads()))
        for load in self.loads():
            image[load.address : load.address + load.file_size] = self.data[load.offset : load.offset + load.file_size]
        if any(section.name == ".rela.dyn" for section in self.sections):
            for place, info, addend in struct.iter_unpack("<QQq", self.contents(".rela.dyn")):
                assert info == 13  # R_AMDGPU_RELATIVE64
                struct.pack_into("<q", image, place, addend)
        return image


def kernel_names(module: str) -> list[str]:
    return [line.split("@")[1].split("(")[0] for line in MODULES[module].splitlines() if "amdgpu_kernel" in line]


@every_cpu
@every_module
def test_headers_and_segments(module: str, cpu: str) -> None:
    obj, hsaco = linked(module, cpu)
    before, after = Elf(obj), Elf(hsaco)
    assert hsaco[:16] == obj[:16]
    assert (after.type, after.machine, after.flags) == (3, 224, before.flags)
    loads = after.loads()
    assert [load.flags for load in loads] == [4, 5, 6, 6][: len(loads)]
    assert loads[0].offset == loads[0].address == 0
    for load in loads:
        assert load.align == 4096 and load.address % 4096 == load.offset % 4096
        assert load.file_size <= load.memory_size
    for low, high in zip(loads, loads[1:]):
        assert (low.address + low.memory_size - 1) // 4096 < high.address // 4096  # no page has two protections
    kinds = [program.type for program in after.programs]
    assert kinds == [6] + [1] * len(loads) + [2, 0x6474E552, 0x6474E551, 4]
    header, note = after.programs[0], after.programs[-1]
    assert (header.offset, header.address, header.file_size) == (64, 64, 56 * len(kinds))
    assert hsaco[note.offset : note.offset + note.file_size] == before.contents(".note")


@every_cpu
@every_module
def test_sections_lie_in_their_segment(module: str, cpu: str) -> None:
    hsaco = Elf(linked(module, cpu)[1])
    for section in hsaco.sections[1:]:
        if not section.flags & 2:
            assert section.address == 0
            continue
        assert section.address % max(section.align, 1) == 0
        flags = 4 | (section.flags & 1) << 1 | (section.flags & 4) >> 2
        end = section.address + section.size
        (load,) = [load for load in hsaco.loads()
                   if load.address <= section.address and end <= load.address + load.memory_size]  # fmt: skip
        assert load.flags == flags
        if section.type != 8:
            assert section.offset - load.offset == section.address - load.address
            assert section.offset + section.size <= load.offset + load.file_size


@every_cpu
@every_module
def test_kernels_are_found_and_enter_their_code(module: str, cpu: str) -> None:
    obj, hsaco = Elf(linked(module, cpu)[0]), Elf(linked(module, cpu)[1])
    memory = hsaco.memory()
    code = {symbol.name: symbol for symbol in obj.symbols(".symtab")}
    for table in (".symtab", ".dynsym"):
        symbols = {symbol.name: symbol for symbol in hsaco.symbols(table)}
        for name in kernel_names(module):
            entry, descriptor = symbols[name], symbols[f"{name}.kd"]
            assert (descriptor.type, descriptor.size) == (1, 64)
            assert hsaco.sections[descriptor.section].name == ".rodata"
            assert (entry.type, entry.size) == (2, code[name].size)
            (offset,) = struct.unpack_from("<q", memory, descriptor.address + 16)
            assert descriptor.address + offset == entry.address
    assert set(symbols) - {""} == {name + end for name in kernel_names(module) for end in ("", ".kd")}
    if module == "one":  # no relocation in the code, so it must be the object's, byte for byte
        assert hsaco.contents(".text") == obj.contents(".text")


@every_cpu
@every_module
def test_both_hash_tables_find_every_symbol(module: str, cpu: str) -> None:
    hsaco = Elf(linked(module, cpu)[1])
    symbols = hsaco.symbols(".dynsym")
    for index, symbol in enumerate(symbols[1:], 1):
        assert find_in_hash(hsaco.contents(".hash"), symbols, symbol.name) == index
        assert find_in_gnu_hash(hsaco.contents(".gnu.hash"), symbols, symbol.name) == index
    for table, find in ((".hash", find_in_hash), (".gnu.hash", find_in_gnu_hash)):
        assert find(hsaco.contents(table), symbols, "absent") is None


def find_in_hash(table: bytes, symbols: list[Entry], name: str) -> int | None:
    buckets, count = struct.unpack_from("<II", table)
    words = struct.unpack_from(f"<{buckets + count}I", table, 8)
    index = words[sysv_hash(name.encode()) % buckets]
    while index and symbols[index].name != name:
        index = words[buckets + index]
    return index or None


def find_in_gnu_hash(table: bytes, symbols: list[Entry], name: str) -> int | None:
    buckets, first, bloom_words, shift = struct.unpack_from("<IIII", table)
    value = gnu_hash(name.encode())
    (bloom,) = struct.unpack_from("<Q", table, 16 + 8 * (value // 64 % bloom_words))
    if not (bloom >> value % 64 & 1 and bloom >> (value >> shift) % 64 & 1):
        return None
    at = 16 + 8 * bloom_words
    (index,) = struct.unpack_from("<I", table, at + 4 * (value % buckets))
    while index:
        (chained,) = struct.unpack_from("<I", table, at + 4 * buckets + 4 * (index - first))
        if chained | 1 == value | 1 and symbols[index].name == name:
            return index
        if chained & 1:
            break
        index += 1
    return None


def test_hash_functions() -> None:
    # Values of the ELF gABI's and the GNU hash's own definitions.
    assert (gnu_hash(b""), gnu_hash(b"printf"), gnu_hash(b"exit")) == (0x1505, 0x156B2BB8, 0x7C967E3F)
    assert (sysv_hash(b""), sysv_hash(b"printf"), sysv_hash(b"exit")) == (0, 0x077905A6, 0x0006CF04)


@every_cpu
@every_module
def test_dynamic_section(module: str, cpu: str) -> None:
    hsaco = Elf(linked(module, cpu)[1])
    tags = dict(struct.iter_unpack("<QQ", hsaco.contents(".dynamic")))
    assert tags[6] == hsaco.section(".dynsym").address and tags[11] == 24
    assert tags[5] == hsaco.section(".dynstr").address and tags[10] == hsaco.section(".dynstr").size
    assert tags[4] == hsaco.section(".hash").address and tags[0x6FFFFEF5] == hsaco.section(".gnu.hash").address
    assert hsaco.section(".dynsym").info == 1
    locals_end = hsaco.section(".symtab").info
    bindings = [symbol.binding for symbol in hsaco.symbols(".symtab")]
    assert not any(bindings[:locals_end]) and all(bindings[locals_end:])
    if module == "pointers":
        assert (tags[7], tags[8], tags[9], tags[0x6FFFFFF9]) == (hsaco.section(".rela.dyn").address, 48, 24, 2)
    else:
        assert not {7, 8, 9, 0x6FFFFFF9} & set(tags)


@every_cpu
def test_data_is_where_the_symbols_say(cpu: str) -> None:
    def words(module: str, name: str, count: int, format_: str = "I") -> tuple[int, ...]:
        hsaco = Elf(linked(module, cpu)[1])
        (symbol,) = [symbol for symbol in hsaco.symbols(".symtab") if symbol.name == name]
        return struct.unpack_from(f"<{count}{format_}", hsaco.memory(), symbol.address)

    assert words("constants", "t", 8) == (3, 1, 4, 1, 5, 9, 2, 6)
    assert words("data_and_bss", "d", 4) == (1, 2, 3, 4)
    assert words("data_and_bss", "z", 64) == (0,) * 64
    memory = Elf(linked("pointers", cpu)[1]).memory()
    assert [struct.unpack_from("<I", memory, at)[0] for at in words("pointers", "t", 2, "Q")] == [7, 8]


@every_cpu
def test_linking_is_deterministic(cpu: str) -> None:
    obj, hsaco = linked("data_and_bss", cpu)
    assert link(obj) == hsaco


REFUSED = {
    "exported_global": (
        "@g = addrspace(1) global i32 5\n"
        + kernel("%v = load i32, ptr addrspace(1) @g store i32 %v, ptr addrspace(1) %o"),
        "Symbol g is exported and therefore reached through a global offset table, which an hsaco made here does not "
        "have; give it internal linkage.",
    ),
    "undefined": (
        "@g = external addrspace(1) global i32\n"
        + kernel("%v = load i32, ptr addrspace(1) @g store i32 %v, ptr addrspace(1) %o"),
        "Symbol g is undefined; an hsaco is linked from one module, so define it there with internal linkage.",
    ),
    "no_kernel": (
        "define internal void @f() { ret void }\n@llvm.used = appending global [1 x ptr] [ptr @f]\n",
        "The object exports no kernel; compile a module with at least one amdgpu_kernel function of external linkage.",
    ),
}  # fmt: skip


@every_cpu
@pytest.mark.parametrize("case", REFUSED)
def test_refused_modules(case: str, cpu: str) -> None:
    source, message = REFUSED[case]
    with pytest.raises(LinkError) as error:
        link(compile_object(source, cpu))
    assert str(error.value) == message


@pytest.mark.parametrize("data", [b"", b"\x7fELF", bytes(64), "hsaco", "x86"])
def test_refuses_what_is_not_an_object(data: bytes | str) -> None:
    if data == "hsaco":
        data = linked("one", CPUS[0])[1]
    elif data == "x86":
        data = linked("one", CPUS[0])[0][:18] + struct.pack("<H", 62) + linked("one", CPUS[0])[0][20:]
    assert isinstance(data, bytes)
    with pytest.raises(LinkError) as error:
        link(data)
    assert str(error.value) == (
        "The input is not a relocatable AMDGPU ELF64 object; pass what LLVM's emit_object returns for an "
        "amdgcn-amd-amdhsa target machine."
    )


@cache
def lld() -> str | None:
    """An ld.lld that knows code object 5 and later (LLVM 19 on)."""
    for name in (os.environ.get("TLXC_LLD", ""), *(f"ld.lld-{version}" for version in range(22, 18, -1)), "ld.lld"):
        if name and (path := shutil.which(name)):
            version = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
            numbers = version.partition("LLD ")[2].split(".")[0]
            if numbers.isdigit() and int(numbers) >= 19:
                return path
    return None


@every_cpu
@every_module
def test_loaded_image_equals_that_of_lld(module: str, cpu: str, tmp_path: Path) -> None:
    linker = lld()
    if linker is None:
        pytest.skip("no ld.lld of LLVM 19 or later on PATH (or in TLXC_LLD)")
    obj, hsaco = linked(module, cpu)
    (tmp_path / "k.o").write_bytes(obj)
    subprocess.run([linker, "-shared", str(tmp_path / "k.o"), "-o", str(tmp_path / "k.hsaco")], check=True)
    ours, theirs = Elf(hsaco), Elf((tmp_path / "k.hsaco").read_bytes())
    assert ours.programs == theirs.programs
    images = [elf.memory() for elf in (ours, theirs)]
    for image in images:  # the file header tells where the section table is, which is not loaded
        image[40:48], image[60:64] = bytes(8), bytes(4)
    assert images[0] == images[1]
