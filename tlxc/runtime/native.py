"""`launch.ll` as functions that CPython calls: compiled once a process, by llvmlite.

Builds of Python whose objects or calls look otherwise (free-threaded, other than CPython) have no such functions and
launch through cuda.bindings.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tlxc.runtime import cuda

_METH_FASTCALL, _METH_KEYWORDS = 0x80, 0x02
_FUNCTIONS = {"launch": _METH_FASTCALL, "guarded": _METH_FASTCALL | _METH_KEYWORDS}
# Names of attributes and methods that native code asks Python objects for: interned, so they live as long as we do.
_NAMES = tuple(
    map(sys.intern, ("data_ptr", "dtype", "get_device", "base", "shape", "stride", "strides", "block_shape", "padding"))
)


def available() -> bool:
    """Whether this build of Python can be called by, and call, `launch.ll`."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    class_at = ctypes.sizeof(ctypes.c_void_p)  # builds that trace references have other fields first
    return ctypes.c_void_p.from_address(id(1) + class_at).value == id(int)


class _MethodDef(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


# Launchers point into their Native, and the garbage collector may look at them last.
_alive: list[Native] = []


class Native:
    """The compiled functions, with the addresses of this process; `driver_address` gives those of the driver."""

    def __init__(self, driver_address: Callable[[str], int] = cuda.address_of) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        module = llvm.parse_assembly((Path(__file__).parent / "launch.ll").read_text())
        module.verify()
        # Symbols may be anywhere in memory, which only the large code model assumes.
        machine = llvm.Target.from_default_triple().create_target_machine(opt=0, codemodel="large")
        self._engine = llvm.create_mcjit_compiler(module, machine)
        for function in module.functions:
            if function.is_declaration and not function.name.startswith("llvm."):
                self._engine.add_global_mapping(function, _address(function.name, driver_address))
        for name in _NAMES:
            self._engine.add_global_mapping(module.get_global_variable(name), id(name))
        self._engine.finalize_object()
        # CPython keeps a pointer to a definition, not a copy.
        self._definitions = {
            name: _MethodDef(name.encode(), self._engine.get_function_address(name), flags, None)
            for name, flags in _FUNCTIONS.items()
        }
        new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        self._new = new(("PyCFunction_NewEx", ctypes.pythonapi))
        _alive.append(self)

    def function(self, name: str, self_: Any) -> Callable[..., Any]:
        """The function of this name with its first argument bound."""
        made: Callable[..., Any] = self._new(ctypes.addressof(self._definitions[name]), self_, None)
        return made


_lock = threading.Lock()
_functions: Native | None = None


def functions() -> Native:
    """The process's native functions; only where `available()`."""
    global _functions
    with _lock:
        if _functions is None:
            _functions = Native()
    return _functions


def _address(name: str, driver_address: Callable[[str], int]) -> int:
    if name.startswith("cu"):
        return driver_address(name)
    address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert address is not None
    return address
