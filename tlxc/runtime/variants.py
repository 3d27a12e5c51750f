"""Specialisations of a kernel in words: what each is for, and why one was compiled although others were there."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tlxc.frontend.signature import Signature
from tlxc.runtime.artifact import CompiledKernel
from tlxc.runtime.cache import PARAMETER, Cache, default_cache, key
from tlxc.runtime.grid import Cluster

LOGGER = logging.getLogger("tlxc")
_CHANGED = {
    "tlxc": "tlxc itself changed",
    "source": "the source, a function that it calls or a module constant changed",
}


@dataclass(frozen=True)
class Variant:
    """One specialisation that was compiled or read from the cache, and why it was wanted."""

    reason: str
    target: str
    num_warps: int
    maxnreg: int | None
    cluster: Cluster
    arguments: Mapping[str, str]
    compiled: CompiledKernel

    def __str__(self) -> str:
        made = self.compiled
        origin = "from the cache" if made.origin == "cache" else "compiled"
        return (
            f"{self.target} ({_listed(self.arguments, _given(self.options))}): {made.registers} registers, "
            f"{made.shared} bytes shared, {made.spill_bytes} bytes of spills; {origin}: {self.reason}"
        )

    @property
    def options(self) -> dict[str, str]:
        """The options of the launch, in words."""
        return {"num_warps": str(self.num_warps), "maxnreg": str(self.maxnreg), "ctas_per_cga": str(self.cluster)}


def _given(options: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in options.items() if text not in ("None", "(1, 1, 1)")}


def variant(known: Iterable[Variant], signature: Signature, target: str, compiled: CompiledKernel) -> Variant:
    """The variant of a signature, with its reason: what is different from the nearest of those that are `known`."""
    made = Variant(
        "", target, signature.num_warps, signature.maxnreg, signature.cluster, describe_signature(signature), compiled
    )
    return Variant(**{**vars(made), "reason": _reason(list(known), made)})


def _reason(known: list[Variant], new: Variant) -> str:
    peers = [v for v in known if v.target == new.target]
    if not peers:
        return f"first use on {new.target}" if known else "first use"
    facts = {**new.arguments, **new.options}
    nearest = min((differences({**v.arguments, **v.options}, facts) for v in peers), key=len)
    return "; ".join(nearest) or "a module constant or the source changed"


def describe_signature(signature: Signature) -> dict[str, str]:
    """Each parameter's specialisation in words."""
    return {name: f"= {value!r}" for name, value in signature.constants} | {
        name: str(argument) for name, argument in signature.arguments
    }


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What changed, one text each."""
    return [
        _CHANGED.get(name) or f"{name.removeprefix(PARAMETER)}: {old.get(name)} -> {text}"
        for name, text in new.items()
        if old.get(name) != text
    ]


def specialisation(facts: Mapping[str, str]) -> str:
    """Parameters and options of a stored variant, in one line."""
    named = {name.removeprefix(PARAMETER): text for name, text in facts.items() if name.startswith(PARAMETER)}
    options = {name: text for name, text in facts.items() if name in ("num_warps", "maxnreg", "ctas_per_cga")}
    return _listed(named, _given(options))


def _listed(parameters: Mapping[str, str], options: Mapping[str, str]) -> str:
    told = [f"{name} {text}" if text.startswith("= ") else f"{name}: {text}" for name, text in parameters.items()]
    return "; ".join([*told, *(f"{name}={text}" for name, text in options.items())])


# -- across processes ------------------------------------------------------------------------------------------------


def explain(
    name: str, facts: Mapping[str, str] | None, compiled: CompiledKernel | None, known: Sequence[Variant]
) -> str:
    """See `Kernel.explain_recompile`.  `facts` of the specialisation, `compiled` where this process has it, and the
    variants that are `known`."""
    cache = default_cache()
    if compiled is not None:
        told = "is read from the cache" if compiled.origin == "cache" else "was compiled"
        text = f"This process has it; it {told}."
    elif facts is None:
        text = "A launch compiles it."
    elif cache.load(key(facts)) is not None:
        text = f"A launch reads it from the cache ({key(facts)[:12]})."
    else:
        text = "A launch compiles it: it is not in the cache."
    if facts is None:
        return (
            f"{name}: {text} It is in no cache, because a compile-time value has no name that holds in other "
            "processes, or because TLXC_TRAP_ON_TIMEOUT is set."
        )
    return f"{name}: {text} {_nearest(name, facts, known, cache)}"


def _nearest(name: str, facts: Mapping[str, str], known: Iterable[Variant], cache: Cache) -> str:
    """What is different from the nearest other specialisation, in this process or in the cache."""
    found = [
        (differences(v.compiled.facts, facts), "in this process")
        for v in known
        if v.compiled.facts and v.compiled.facts != facts
    ]
    found += [
        (differences(stored.header.facts, facts), f"in the cache, last used {_when(stored.used)}")
        for stored in cache.entries()
        if stored.header and stored.header.metadata.get("name") == name and stored.header.facts != facts
    ]
    if not found:
        return "Neither this process nor the cache has another specialisation."
    nearest, where = min(found, key=lambda pair: len(pair[0]))
    return f"The nearest other one is {where}; different are:" + "".join(f"\n  {text}" for text in nearest)


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def log(name: str, made: Variant, known: Sequence[Variant]) -> None:
    """Tells the logger `tlxc` about a new variant; why one was compiled is looked up only where somebody listens."""
    if not LOGGER.isEnabledFor(logging.INFO):
        return
    why = ""
    if made.compiled.origin == "compiled" and made.compiled.facts:
        why = f" {_nearest(name, made.compiled.facts, known, default_cache())}"
    LOGGER.info("%s for %s.%s", name, made, why)
