"""AMD primitives.  Objects take no inline assembly, so predicates become branches and everything else is an intrinsic.

Sources: LLVM's AMDGPU usage guide (kernel arguments, workgroup ids, memory model).
"""

from __future__ import annotations

from tlxc.codegen.simt.emitter import Access, Emitter
from tlxc.codegen.simt.words import load_text, store_words, take_apart
from tlxc.ir.core import Module

_AMD = "llvm.amdgcn."
_AXES = "xyz"
_CONVERGENT = " #1"
_LLVM = {"i32": "i32", "u32": "i32", "i64": "i64", "u64": "i64", "f32": "float", "f16": "half", "bf16": "bfloat"}
_SCOPE = {"cta": 'syncscope("workgroup") ', "gpu": 'syncscope("agent") ', "sys": ""}
_ORDER = {"relaxed": "monotonic", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}


class AmdgpuEmitter(Emitter):
    # -- module shell
    def header(self, module: Module) -> list[str]:
        lines = [f'target triple = "{self.target.triple}"']
        if shared := module.attrs.get("shared"):
            lines.append(f"@smem = internal addrspace(3) global [{shared} x i8] poison, align 1024")
        return lines

    def kernel_head(self, name: str, params: list[str]) -> str:
        return f"define amdgpu_kernel void @{name}({', '.join(params)}) #0"

    def attributes(self, module: Module) -> list[str]:
        threads = module.num_warps * self.target.warp_size
        return [
            f'attributes #0 = {{ convergent nounwind "amdgpu-flat-work-group-size"="{threads},{threads}" '
            '"uniform-work-group-size"="true" }',
            "attributes #1 = { convergent nounwind }",
            "!llvm.module.flags = !{!0}",
            '!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}',
        ]

    # -- where am I
    def thread_id(self) -> str:
        return self.w.call("i32", f"{_AMD}workitem.id.x", [])

    def uniform(self, value: str) -> str:
        return self.w.call("i32", f"{_AMD}readfirstlane.i32", [("i32", value)], _CONVERGENT)

    def program_id(self, axis: int) -> str:
        return self.w.call("i32", f"{_AMD}workgroup.id.{_AXES[axis]}", [])

    def num_programs(self, axis: int) -> str:
        """Code object v5: the implicit arguments begin with the three workgroup counts as u32."""
        base = self.w.call("ptr addrspace(4)", f"{_AMD}implicitarg.ptr", [])
        at = self.w.assign(f"getelementptr i32, ptr addrspace(4) {base}, i32 {axis}")
        return self.w.assign(f"load i32, ptr addrspace(4) {at}, align 4")

    # -- memory
    def _guarded(self, predicate: str) -> tuple[str, str, str]:
        """Opens a block that runs where the predicate holds: (block before, block inside, block after)."""
        w = self.w
        before, inside, after = w.block, w.new_block("on"), w.new_block("off")
        w.branch(predicate, inside, after)
        w.start(inside)
        return before, inside, after

    def load_global(self, access: Access, other: list[str] | None) -> list[str]:
        w, n = self.w, access.count
        t, load = load_text(f"ptr addrspace(1) {access.address}", access.word, n)
        if access.predicate is None:
            return take_apart(w, t, w.assign(load), n)
        _, fill = w.vector(other or ["0"] * n, f"i{access.word}")
        before, inside, after = self._guarded(access.predicate)
        loaded = w.assign(load)
        w.jump(after)
        w.start(after)
        return take_apart(w, t, w.assign(f"phi {t} [ {fill}, %{before} ], [ {loaded}, %{inside} ]"), n)

    def store_global(self, access: Access, words: list[str]) -> None:
        w = self.w
        after = self._guarded(access.predicate)[2] if access.predicate is not None else None
        store_words(w, f"ptr addrspace(1) {access.address}", words, access.word)
        if after is not None:
            w.jump(after)
            w.start(after)

    def atomic_add(self, address: str, value: str, element: str, predicate: str | None, sem: str, scope: str) -> str:
        w, t = self.w, _LLVM[element]
        how = "add" if t.startswith("i") else "fadd"
        atomic = f"atomicrmw {how} ptr addrspace(1) {address}, {t} {value} {_SCOPE[scope]}{_ORDER[sem]}"
        if predicate is None:
            return w.assign(atomic)
        before, inside, after = self._guarded(predicate)
        old = w.assign(atomic)
        w.jump(after)
        w.start(after)
        zero = "0" if t.startswith("i") else "0.0" if t == "float" else "0xH0000" if t == "half" else "0xR0000"
        return w.assign(f"phi {t} [ {zero}, %{before} ], [ {old}, %{inside} ]")

    # -- warp and task
    def _lane(self) -> str:
        low = self.w.call("i32", f"{_AMD}mbcnt.lo", [("i32", "-1"), ("i32", "0")])
        if self.target.warp_size == 32:
            return low
        return self.w.call("i32", f"{_AMD}mbcnt.hi", [("i32", "-1"), ("i32", low)])

    def shuffle_xor(self, word: str, mask: int) -> str:
        return self.shuffle_index(word, self.w.assign(f"xor i32 {self._lane()}, {mask}"))

    def shuffle_index(self, word: str, lane: str) -> str:
        at = self.w.assign(f"shl i32 {lane}, 2")
        return self.w.call("i32", f"{_AMD}ds.bpermute", [("i32", at), ("i32", word)], _CONVERGENT)

    def barrier(self, id: str, num_warps: int, whole: bool) -> None:
        self.w.emit('fence syncscope("workgroup") release')
        self.w.call("void", f"{_AMD}s.barrier", [], _CONVERGENT)
        self.w.emit('fence syncscope("workgroup") acquire')

    def fence_async_shared(self) -> None:
        raise AssertionError("no asynchronous proxy on AMD; nothing inserts this fence")

    def elect(self) -> str:
        return self.w.assign(f"icmp eq i32 {self._lane()}, 0")

    def set_registers(self, budget: int, launch: int) -> None:
        raise AssertionError("AMD targets have no register budgets; tasks are refused before")

    # -- maths: v_exp_f32 and v_log_f32 flush denormals, LLVM's expansions of the generic intrinsics do not
    _UNARY = {
        "exp2": "llvm.exp2.f32",
        "exp2.ftz": f"{_AMD}exp2.f32",
        "log2": "llvm.log2.f32",
        "sqrt": "llvm.sqrt.f32",
        "rsqrt": f"{_AMD}rsq.f32",
    }

    def unary(self, kind: str, x: str) -> str:
        return self.w.call("float", self._UNARY[kind], [("float", x)])
