"""The texts in which code can be read (SASS, PTX, the assembly of AMD): instructions, branches, and their classes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Classes = tuple[tuple[str, str], ...]  # (class, pattern of the mnemonic's start), the first that fits counts


@dataclass(frozen=True)
class Form:
    """`label` and `instruction` are patterns of a line; the groups of `instruction` are a predicate (or nothing), the
    mnemonic and its operands.  `jump`: of mnemonics that go to the label in their operands.  `always`: whether an
    instruction with (predicate, mnemonic, operands) is a jump without a condition.  `end`: of mnemonics behind which
    nothing follows.  `spin`: of the mnemonic by which a loop waits for a barrier."""

    name: str
    label: str
    instruction: str
    jump: str
    target: str
    always: Callable[[str, str, str], bool]
    end: str
    spin: str
    classes: Classes

    def kind(self, mnemonic: str) -> str:
        """The class that an instruction is counted under."""
        return next((name for name, pattern in self.classes if re.match(pattern, mnemonic)), OTHER)


OTHER = "other"
# Classes that any loop may have or lack: they do not tell one from another
PLAIN = frozenset(
    (OTHER, "MOV", "mov", "integer", "branch", "vector integer", "scalar", "wait", "VOTE", "vote", "LDC")
)

_SASS: Classes = (
    ("HGMMA", r"[HIQB]GMMA|UTC\w*MMA"),
    ("HMMA", r"[HIDQO]MMA"),
    ("TMA", r"UTMA(LDG|STG|REDG)|UBLK(CP|RED)"),
    ("LDGSTS", r"LDGSTS"),
    ("LDS", r"LDS"),
    ("STS", r"STS"),
    ("LDC", r"U?LDC"),
    ("LDG", r"LDG|LD\b"),
    ("STG", r"STG|ST\b"),
    ("LDL", r"LDL"),
    ("STL", r"STL"),
    ("ATOM", r"ATOM|RED\b"),
    ("SHFL", r"SHFL|REDUX"),
    ("VOTE", r"VOTE|MATCH"),
    ("BAR", r"BAR|UCGABAR|ERRBAR|MEMBAR|FENCE"),
    ("SYNCS", r"SYNCS"),
    ("WARPGROUP", r"WARPGROUP"),
    ("MUFU", r"MUFU"),
    ("F2FP", r"F2|I2|FRND"),
    ("FFMA", r"FFMA"),
    ("FADD", r"FADD"),
    ("FMUL", r"FMUL"),
    ("FMNMX", r"FMNMX|FSEL|FSETP|FSET\b"),
    ("HFMA2", r"H(FMA|ADD|MUL|MNMX|SET)"),
    ("MOV", r"U?MOV|U?PRMT|U?SEL|S2U?R|R2UR|CS2R|IMAD\.MOV"),
    ("integer", r"U?IMAD|U?IADD|U?LEA|U?ISETP|U?LOP|U?SHF|U?IABS|U?IMNMX|VI|U?PLOP|U?BREV|U?FLO|U?POPC|U?SGXT|U?BMSK"),
    ("branch", r"BRA|BRX|JMP|EXIT|BSSY|BSYNC|WARPSYNC|CALL|RET|YIELD|NANOSLEEP|DEPBAR"),
)
_PTX: Classes = (
    ("wgmma", r"wgmma\.mma"),
    ("mma", r"w?mma\."),
    ("TMA", r"cp\.(reduce\.)?async\.bulk\.(tensor|shared|global|prefetch)"),
    ("cp.async", r"cp\.async"),
    ("ld.shared", r"ld\.shared|ldmatrix"),
    ("st.shared", r"st\.(async\.)?shared|stmatrix"),
    ("ld.global", r"ld\.(\w+\.)*global"),
    ("st.global", r"st\.(\w+\.)*global"),
    ("local", r"(ld|st)\.local"),
    ("atom", r"atom|red\."),
    ("shfl", r"shfl|redux"),
    ("vote", r"vote|match"),
    ("mbarrier", r"mbarrier"),
    ("bar", r"bar\.|barrier|fence|membar"),
    ("wgmma.sync", r"wgmma\."),
    ("ex2 lg2 rcp", r"(ex2|lg2|r?sqrt|rcp|sin|cos|tanh)\."),
    ("cvt", r"cvt\."),
    ("fma", r"fma\."),
    ("float", r"(add|sub|mul|max|min|abs|neg|setp|selp|div)\.(\w+\.)*b?f\d"),
    ("mov", r"mov|prmt|selp|cvta|ld\.param"),
    ("integer", r"add|sub|mul|mad|shl|shr|and|or|xor|not|setp|min|max|shf|bf|div|rem|lop3|elect"),
    ("branch", r"bra|ret|exit"),
)
_AMD: Classes = (
    ("mfma", r"v_(mfma|smfmac|wmma|swmmac)"),
    ("ds_read", r"ds_(read|load)"),
    ("ds_write", r"ds_(write|store)"),
    ("permute", r"ds_(bpermute|permute|swizzle)|v_permlane|v_readlane|v_writelane"),
    ("load", r"(global|flat|buffer)_load"),
    ("store", r"(global|flat|buffer)_store"),
    ("scratch", r"scratch_"),
    ("atomic", r"\w+_atomic"),
    ("s_load", r"s_(buffer_)?load"),
    ("barrier", r"s_barrier"),
    ("wait", r"s_wait"),
    ("exp log rcp", r"v_(exp|log|rcp|rsq|sqrt|sin|cos)"),
    ("cvt", r"v_(pk_)?cvt"),
    ("fma", r"v_(pk_|dual_)?(fma|fmac|mac)\w*_"),
    ("float", r"v_(pk_|dual_)?(add|sub|mul|max|min|med3|cmpx?_\w+)\w*_f\d"),
    ("mov", r"v_(mov|cndmask|readfirstlane|accvgpr|perm|dual_mov)|s_(mov|cselect)"),
    ("vector integer", r"v_"),
    ("branch", r"s_c?branch|s_endpgm|s_setpc"),
    ("scalar", r"s_"),
)

SASS = Form(
    "SASS",
    label=r"\s*(\.L_x_\d+):",
    instruction=r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)(.*?);",
    jump=r"BRA|BRX|JMP",
    target=r"`\((\.L_x_\d+)\)",
    always=lambda predicate, mnemonic, operands: not predicate and operands.lstrip().startswith("`"),
    end=r"EXIT|RET",
    spin=r"SYNCS\.PHASECHK|USETMAXREG",
    classes=_SASS,
)
PTX = Form(
    "PTX",
    label=r"(\$L\w+):",
    instruction=r"\s*(?:@(!?%?\w+)\s+)?([a-z]\w*(?:[.:]+\w+)*)(.*?);",
    jump=r"bra",
    target=r"(\$L\w+)",
    always=lambda predicate, mnemonic, operands: not predicate,
    end=r"ret|exit",
    spin=r"mbarrier\.\w*wait",
    classes=_PTX,
)
AMD = Form(
    "assembly",
    label=r"(\.LBB\w+):",
    instruction=r"\s+()((?:s|v|ds|global|flat|buffer|scratch|tensor|image)_\w+)(.*)",
    jump=r"s_c?branch",
    target=r"(\.LBB\w+)",
    always=lambda predicate, mnemonic, operands: mnemonic == "s_branch",
    end=r"s_endpgm|s_setpc",
    spin=r"s_sleep",
    classes=_AMD,
)
