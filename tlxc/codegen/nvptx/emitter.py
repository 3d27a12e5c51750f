"""NVIDIA primitives: intrinsics where LLVM can reason about them, inline PTX where it cannot.

Sources: PTX ISA (ld, st, atom, bar, shfl), LLVM's NVPTX usage guide.
"""

from __future__ import annotations

from tlxc.codegen.llvm_text import Writer
from tlxc.codegen.simt.emitter import Access, Emitter
from tlxc.codegen.simt.words import load_text, store_words, take_apart
from tlxc.ir.core import Module
from tlxc.targets import Target

_NV = "llvm.nvvm."
_AXES = "xyz"
_LETTER = {8: "h", 16: "h", 32: "r", 64: "l"}
_ASM_TYPE = {8: "i16", 16: "i16", 32: "i32", 64: "i64"}
_CONVERGENT = " #1"
_EVICTION = {
    "": "",
    "evict_first": ".L1::evict_first",
    "evict_last": ".L1::evict_last",
    "no_allocate": ".L1::no_allocate",
}
# element -> (PTX type of atom.add, register letter, LLVM type)
_ATOMIC = {
    "i32": ("u32", "r", "i32"),
    "u32": ("u32", "r", "i32"),
    "i64": ("u64", "l", "i64"),
    "u64": ("u64", "l", "i64"),
    "f32": ("f32", "f", "float"),
    "f16": ("noftz.f16", "h", "half"),
    "bf16": ("noftz.bf16", "h", "bfloat"),
}


class NvptxEmitter(Emitter):
    def __init__(self, target: Target, writer: Writer) -> None:
        super().__init__(target, writer)

    # -- module shell
    def header(self, module: Module) -> list[str]:
        lines = [f'target triple = "{self.target.triple}"']
        if module.attrs.get("shared"):
            lines.append("@smem = external addrspace(3) global [0 x i8], align 1024")
        return lines

    def kernel_head(self, name: str, params: list[str]) -> str:
        return f"define ptx_kernel void @{name}({', '.join(params)}) #0"

    def attributes(self, module: Module) -> list[str]:
        threads = module.attrs.get("total_warps", module.num_warps) * self.target.warp_size
        registers = '"nvvm.minctasm"="1"'  # as many as let one CTA run
        if module.maxnreg is not None:  # replaces that, so the bound that it gave has to be kept here
            registers = f'"nvvm.maxnreg"="{min(module.maxnreg, self.target.registers_per_sm // threads)}"'
        if module.cluster != (1, 1, 1):
            registers += f' "nvvm.cluster_dim"="{",".join(map(str, module.cluster))}"'
        return [
            f'attributes #0 = {{ convergent nounwind "nvvm.maxntid"="{threads}" {registers} }}',
            "attributes #1 = { convergent nounwind }",
        ]

    # -- where am I
    def thread_id(self) -> str:
        return self.w.call("i32", f"{_NV}read.ptx.sreg.tid.x", [])

    def uniform(self, value: str) -> str:
        return self.shuffle_index(value, "0")

    def program_id(self, axis: int) -> str:
        return self.w.call("i32", f"{_NV}read.ptx.sreg.ctaid.{_AXES[axis]}", [])

    def num_programs(self, axis: int) -> str:
        return self.w.call("i32", f"{_NV}read.ptx.sreg.nctaid.{_AXES[axis]}", [])

    # -- memory
    def load_global(self, access: Access, other: list[str] | None) -> list[str]:
        n, bits = access.count, access.word
        if access.predicate is None and not access.cache and not access.eviction:
            return self._plain_load(access)
        outs = [f"${i}" for i in range(n)]
        fills = other or ["0"] * n
        constraints = [f"={_LETTER[bits]}"] * n
        args: list[tuple[str, str]] = []
        text = ""
        at = ""
        if access.predicate is not None:
            constraints += [str(i) for i in range(n)]
            args += [(_ASM_TYPE[bits], self._asm_word(x, bits)) for x in fills]
            at = "@p "
            text = f"{{ .reg .pred p; setp.ne.b32 p, ${2 * n + 1}, 0; "
        address = f"${len(args) + n}"
        constraints.append("l")
        args.append(("ptr addrspace(1)", access.address))
        if access.predicate is not None:
            constraints.append("r")
            args.append(("i32", self.w.assign(f"zext i1 {access.predicate} to i32")))
        target = outs[0] if n == 1 else "{" + ", ".join(outs) + "}"
        text += f"{at}ld.global{self._modifiers(access)} {target}, [{address}];" + (" }" if at else "")
        return self._results(text, ",".join(constraints) + ",~{memory}", args, n, bits)

    def _plain_load(self, access: Access) -> list[str]:
        t, load = load_text(f"ptr addrspace(1) {access.address}", access.word, access.count)
        return take_apart(self.w, t, self.w.assign(load), access.count)

    def _modifiers(self, access: Access) -> str:
        vector = f".v{access.count}" if access.count > 1 else ""
        hint = _EVICTION[access.eviction] or access.cache  # PTX takes one of the two; both are hints only
        return f"{hint}{vector}.b{access.word}"

    def _asm_word(self, word: str, bits: int) -> str:
        """8-bit words travel through 16-bit registers."""
        if bits != 8 or word.isdigit():
            return word
        return self.w.assign(f"zext i8 {word} to i16")

    def _results(self, text: str, constraints: str, args: list[tuple[str, str]], n: int, bits: int) -> list[str]:
        w, t = self.w, _ASM_TYPE[bits]
        words = w.asm_values([t] * n, text, constraints, args)
        return [w.assign(f"trunc i16 {x} to i8") for x in words] if bits == 8 else words

    def store_global(self, access: Access, words: list[str]) -> None:
        n, bits, w = access.count, access.word, self.w
        if access.predicate is None and not access.cache and not access.eviction:
            store_words(w, f"ptr addrspace(1) {access.address}", words, bits)
            return
        values = [f"${i + 1}" for i in range(n)]
        source = values[0] if n == 1 else "{" + ", ".join(values) + "}"
        constraints = ["l"] + [_LETTER[bits]] * n
        args = [("ptr addrspace(1)", access.address)]
        args += [(_ASM_TYPE[bits], self._asm_word(x, bits)) for x in words]
        text = f"st.global{self._modifiers(access)} [$0], {source};"
        if access.predicate is not None:
            text = f"{{ .reg .pred p; setp.ne.b32 p, ${n + 1}, 0; @p {text} }}"
            constraints.append("r")
            args.append(("i32", w.assign(f"zext i1 {access.predicate} to i32")))
        w.asm("void", text, ",".join(constraints) + ",~{memory}", args)

    def atomic_add(self, address: str, value: str, element: str, predicate: str | None, sem: str, scope: str) -> str:
        ptx, letter, t = _ATOMIC[element]
        w = self.w
        raw = "i16" if letter == "h" else t
        word = w.assign(f"bitcast {t} {value} to i16") if letter == "h" else value
        atom = f"atom.global.{sem}.{scope}.add.{ptx} $0, [$2], $3;"
        zero = "0.0" if raw == "float" else "0"
        args = [(raw, zero), ("ptr addrspace(1)", address), (raw, word)]
        constraints = f"={letter},0,l,{letter}"
        if predicate is not None:
            atom = f"{{ .reg .pred p; setp.ne.b32 p, $4, 0; @p {atom} }}"
            args.append(("i32", w.assign(f"zext i1 {predicate} to i32")))
            constraints += ",r"
        old = w.asm(raw, atom, constraints + ",~{memory}", args)
        return w.assign(f"bitcast i16 {old} to {t}") if letter == "h" else old

    # -- warp and task
    def shuffle_xor(self, word: str, mask: int) -> str:
        args = [("i32", "-1"), ("i32", word), ("i32", str(mask)), ("i32", "31")]
        return self.w.call("i32", f"{_NV}shfl.sync.bfly.i32", args, _CONVERGENT)

    def shuffle_index(self, word: str, lane: str) -> str:
        args = [("i32", "-1"), ("i32", word), ("i32", lane), ("i32", "31")]
        return self.w.call("i32", f"{_NV}shfl.sync.idx.i32", args, _CONVERGENT)

    def barrier(self, id: str, num_warps: int, whole: bool) -> None:
        number = ("i32", id)
        if num_warps == 1:
            self.w.call("void", f"{_NV}bar.warp.sync", [("i32", "-1")], _CONVERGENT)
        elif whole:
            self.w.call("void", f"{_NV}barrier.cta.sync.aligned.all", [number], _CONVERGENT)
        else:
            threads = ("i32", str(num_warps * self.target.warp_size))
            self.w.call("void", f"{_NV}barrier.cta.sync.aligned.count", [number, threads], _CONVERGENT)

    def fence_async_shared(self) -> None:
        self.w.asm("void", "fence.proxy.async.shared::cta;", "~{memory}", [])

    def elect(self) -> str:
        text = "{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 $0, 1, 0, p; }"
        return self.w.assign(f"icmp ne i32 {self.w.asm('i32', text, '=r', [])}, 0")

    def set_registers(self, budget: int, launch: int) -> None:
        how = "inc" if budget > launch else "dec"
        self.w.call("void", f"{_NV}setmaxnreg.{how}.sync.aligned.u32", [("i32", str(budget))], _CONVERGENT)

    # -- maths
    _UNARY = {
        "exp2": f"{_NV}ex2.approx.f",
        "exp2.ftz": f"{_NV}ex2.approx.ftz.f",
        "log2": f"{_NV}lg2.approx.f",
        "sqrt": f"{_NV}sqrt.rn.f",
        "rsqrt": f"{_NV}rsqrt.approx.f",
    }

    def unary(self, kind: str, x: str) -> str:
        return self.w.call("float", self._UNARY[kind], [("float", x)])
