"""Argument binding: tokens, specialisations, and what is refused, in full text."""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_driver import Array, Dtype, bfloat16, float16, float32, float64, int32

from tlxc import TensorDescriptor, tl, tlx
from tlxc.errors import CompileError
from tlxc.frontend.signature import Argument
from tlxc.frontend.source import Source
from tlxc.ir import types as ir
from tlxc.runtime import cuda
from tlxc.runtime.bind import ArgumentError, Binder
from tlxc.runtime.descriptor import DescriptorError
from tlxc.runtime.tokens import freeze


def plain(x, y, n, s=1.5, BLOCK: tl.constexpr = 64):  # type: ignore[no-untyped-def]
    pass


def annotated(
    x: tl.ptr(tl.float16),
    n: tl.int32,
    big: tl.int64,
    small: tl.uint8,
    eps: tl.float32,
    on: tl.int1,
    *,
    MODE: tl.constexpr,
):  # type: ignore[no-untyped-def, valid-type]
    pass


def binder(fn: Any = plain, **options: Any) -> Binder:
    return Binder(Source.of(fn), options.pop("num_warps", 4), **options)


class Stub:
    """A kernel without plans: a launch gives what the generated function computed."""

    def __init__(self) -> None:
        self.state = SimpleNamespace(plans={}, checks=())

    def slow(self, grid: Any, key: Any, given: Any, values: Any) -> Any:
        return key, values


class Bound:
    """A Binder with its generated functions."""

    def __init__(self, fn: Any = plain, **options: Any) -> None:
        self.binder = binder(fn, **options)
        self._launch, self._given = self.binder.generate(Stub())  # type: ignore[arg-type]

    def fast(self, *args: Any, **kwargs: Any) -> Any:
        return self._launch((1,), *args, **kwargs)

    def resolve(self, *args: Any, ahead: bool = False, **kwargs: Any) -> Any:
        return self.binder.resolve(self.binder.check(self._given(*args, **kwargs)), ahead)


def resolve(*args: Any, fn: Any = plain, ahead: bool = False, **kwargs: Any) -> Any:
    return Bound(fn).resolve(*args, ahead=ahead, **kwargs)


def arguments(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """Each parameter's Argument or constant."""
    signature = resolve(*args, **kwargs).signature
    return dict(signature.arguments) | dict(signature.constants)


def refusal(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(ArgumentError) as error:
        resolve(*args, **kwargs)
    where = kwargs.get("fn", plain)
    prefix = f"{where.__name__} ({__file__}:{where.__code__.co_firstlineno})"
    assert str(error.value).startswith(prefix)
    return str(error.value)[len(prefix) :].lstrip(": ")


A = Array()
I32, I32_16 = Argument(ir.Scalar(ir.int32)), Argument(ir.Scalar(ir.int32), divisible=16)


def test_arrays() -> None:
    found = arguments(Array(float16), Array(bfloat16, address=0x10008), 5)
    assert found["x"] == Argument(ir.Pointer(ir.float16), 16)
    assert found["y"] == Argument(ir.Pointer(ir.bfloat16), 0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, I32_16), (1, 1), (5, I32), (48, I32_16), (-16, I32_16), (2**31 - 1, I32), (-(2**31), I32_16),
        (2**31, Argument(ir.Scalar(ir.int64), divisible=16)), (-(2**31) - 1, Argument(ir.Scalar(ir.int64))),
        (2**63 - 1, Argument(ir.Scalar(ir.int64))), (2**63, Argument(ir.Scalar(ir.uint64), divisible=16)),
        (2**64 - 1, Argument(ir.Scalar(ir.uint64))), (True, Argument(ir.Scalar(ir.int1))),
        (2.5, Argument(ir.Scalar(ir.float32))), (None, None),
        (np.int64(5), I32), (np.float32(2), Argument(ir.Scalar(ir.float32))),
        (np.bool_(True), Argument(ir.Scalar(ir.int1))), (tl.constexpr(48), I32_16),
    ],
)  # fmt: skip
def test_scalars(value: Any, expected: Any) -> None:
    found = arguments(A, A, value)["n"]
    assert (found, type(found)) == (expected, type(expected))


def test_the_key_changes_exactly_with_the_specialisation() -> None:
    made = Bound()
    samples = [
        (A, A, 5), (A, A, 7), (Array(address=0x20000), A, 5), (Array(address=0x20002), A, 5),
        (Array(address=0x20004), A, 5), (Array(float32), A, 5), (Array(bfloat16), A, 5), (A, A, 1), (A, A, 16),
        (A, A, 0), (A, A, True), (A, A, 1.0), (A, A, 2.0),
        (A, A, None), (A, A, 2**40), (A, A, 2**40 + 1), (A, A, 2**63), (A, A, 5, None), (A, A, 5, 3),
    ]  # fmt: skip
    by_key: dict[Any, set[Any]] = {}
    by_identity: dict[Any, set[Any]] = {}
    for sample in samples:
        key, _ = made.fast(*sample)
        identity = made.resolve(*sample).identity
        by_key.setdefault(key, set()).add(identity)
        by_identity.setdefault(identity, set()).add(key)
    assert all(len(found) == 1 for found in by_key.values())
    assert all(len(found) == 1 for found in by_identity.values())


@pytest.mark.parametrize(
    "pair", [(1, True), (1, 1.0), (0.0, -0.0), ((1,), (True,)), ((1, (2,)), (1, (2.0,))), (0, None)]
)
def test_constants_that_python_calls_equal_are_told_apart(pair: tuple[Any, Any]) -> None:
    made = Bound()
    keys = [made.fast(A, A, 5, BLOCK=value)[0] for value in pair]
    assert keys[0] != keys[1]
    identities = [made.resolve(A, A, 5, BLOCK=value).identity for value in pair]
    assert identities[0] != identities[1]
    assert freeze(float("nan")) == freeze(float("nan"))


def test_constants_of_many_kinds() -> None:
    class Mode(enum.Enum):
        A = 1

    for value in (64, "text", tl.float16, None, plain, Mode.A, (1, tl.float16, None)):
        found = arguments(A, A, 5, BLOCK=value)
        assert found["BLOCK"] is value
    assert arguments(A, A, 5, BLOCK=tl.constexpr(32))["BLOCK"] == 32
    assert type(arguments(A, A, 5, BLOCK=np.int64(32))["BLOCK"]) is int


def test_values_and_kinds() -> None:
    made = Bound()
    key, values = made.fast(A, Array(address=0x20000), 1, s=2.5)
    assert values == (0x10000, 0x20000, 1, 2.5)
    assert key[-2:] == (4, 0)
    assert made.fast(A, A, 1, maxnreg=64)[0][-2:] == ((4, 64, None, bool, False), 0)
    bound = made.resolve(A, A, 1)
    assert bound.kinds == b"iisf"
    assert (bound.device, bound.signature.num_warps) == (0, 4)


def test_maxnreg_is_part_of_the_specialisation() -> None:
    made = Bound(maxnreg=128)
    options: tuple[dict[str, Any], ...] = ({}, {"maxnreg": 24}, {"maxnreg": 255}, {"maxnreg": None})
    assert len({made.fast(A, A, 5, **given)[0] for given in options}) == 4
    found = [made.resolve(A, A, 5, **given) for given in options]
    assert [bound.signature.maxnreg for bound in found] == [128, 24, 255, None]
    assert len({bound.identity for bound in found}) == 4
    assert made.resolve(A, A, 5, maxnreg=np.int64(128)).identity == found[0].identity
    assert resolve(A, A, 5).signature.maxnreg is None


def test_do_not_specialize() -> None:
    for names in (["n", "x"], [2, 0]):
        made = Bound(do_not_specialize=names)
        keys = {made.fast(Array(address=a), A, n)[0] for a in (0x10, 0x12) for n in (0, 1, 5, 16)}
        assert len(keys) == 1
        for n in (0, 1, 5, 16):
            found = dict(made.resolve(A, A, n).signature.arguments)
            assert (found["n"], found["x"]) == (I32, Argument(ir.Pointer(ir.float16), 0))
    with pytest.raises(ArgumentError, match="do_not_specialize names 'k'; the parameters are x, y, n, s, BLOCK."):
        Bound(do_not_specialize=["k"])


def test_annotations_fix_types() -> None:
    found = arguments(A, 5, 16, 255, 3, False, MODE="a", fn=annotated)
    assert found["x"] == Argument(ir.Pointer(ir.float16), 16)
    assert found["big"] == Argument(ir.Scalar(ir.int64), divisible=16)
    assert found["small"] == Argument(ir.Scalar(ir.uint8))
    assert found["eps"] == Argument(ir.Scalar(ir.float32))
    assert found["on"] == Argument(ir.Scalar(ir.int1))
    made = Bound(annotated)
    assert made.resolve(A, 5, 16, 255, 3, False, MODE="a").kinds == b"iiiifi"
    good, bad = (made.fast(A, 5, 16, small, 3, False, MODE="a")[0] for small in (255, 256))
    assert good != bad
    good, bad = (made.fast(A, 5, 16, np.int64(small), 3, False, MODE="a")[0] for small in (255, 256))
    assert good != bad


def test_element_types_come_from_the_arguments() -> None:
    found = arguments(Array(float32), 5, 16, 255, 3, False, MODE="a", fn=annotated)
    assert found["x"] == Argument(ir.Pointer(ir.float32), 16)


def test_dtypes_stand_for_pointers_ahead_of_time() -> None:
    torch = pytest.importorskip("torch")
    for stand_in in (tl.float16, torch.float16, tl.ptr(tl.float16), torch.zeros(4, dtype=torch.float16)):
        assert arguments(stand_in, A, 5, ahead=True)["x"] == Argument(ir.Pointer(ir.float16), 16)


def test_a_declared_signature_assumes_nothing() -> None:
    made = Bound(annotated)
    signature = made.binder.declared_signature({"MODE": 3, "n": 7}, num_warps=8)
    assert [name for name, _ in signature.arguments] == ["x", "big", "small", "eps", "on"]
    assert all((a.align, a.divisible) == (0, 1) for _, a in signature.arguments)
    assert (signature.constants, signature.num_warps) == ((("n", 7), ("MODE", 3)), 8)
    limits = [Bound(annotated, maxnreg=96).binder.declared_signature({"MODE": 3}, **given).maxnreg
              for given in ({}, {"maxnreg": 40}, {"maxnreg": None})]  # fmt: skip
    assert (signature.maxnreg, limits) == (None, [96, 40, None])
    with pytest.raises(ArgumentError, match="maxnreg is 300; it may be an integer from 24 to 255"):
        made.binder.declared_signature({"MODE": 3}, maxnreg=300)
    with pytest.raises(ArgumentError, match="missing argument `MODE`; compile-time parameters are passed by name"):
        made.binder.declared_signature({})
    with pytest.raises(ArgumentError, match="the type of `x` is not declared; annotate it, as in `x: tl.ptr"):
        Bound().binder.declared_signature({})


ALIGNED, EIGHTS = Argument(ir.Pointer(ir.float16), 64), Argument(ir.Scalar(ir.int32), divisible=8)


def promising(x: tl.ptr(tl.float16, align=64), n: tl.divisible(tl.int32, 8)):  # type: ignore[no-untyped-def, valid-type]
    pass


def test_promises_of_annotations_are_checked() -> None:
    assert arguments(Array(address=64), 8, fn=promising) == {"x": ALIGNED, "n": EIGHTS}
    assert refusal(Array(address=32), 8, fn=promising) == (
        "argument `x` is a tensor on cuda:0 of torch.float16 at an address that is not a multiple of the 64 bytes "
        "that its annotation promises; pass a copy (.clone()) or change the annotation."
    )
    assert refusal(Array(address=64), 12, fn=promising) == (
        "argument `n` is 12, but its annotation promises a multiple of 8."
    )
    made = Bound(promising)
    assert len({made.fast(Array(address=a), 8)[0] for a in (32, 64)}) == 2
    for numbers in ((8, 12), (np.int64(8), np.int64(12)), (False, True)):
        assert len({made.fast(Array(address=64), n)[0] for n in numbers}) == 2


def test_cuda_array_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "pointer_device", lambda address: 1 if address else None)

    def foreign(typestr: str, address: int) -> Any:
        return SimpleNamespace(__cuda_array_interface__={"data": (address, False), "typestr": typestr, "shape": (4,)})

    found = arguments(foreign("<f2", 0x20), foreign("|b1", 0x21), 5)
    assert (found["x"], found["y"]) == (Argument(ir.Pointer(ir.float16), 16), Argument(ir.Pointer(ir.int1), 0))
    assert Bound().fast(foreign("<i4", 0x20), foreign("<i4", 0x20), 5)[0][-1] == 1
    assert "is an array of type <c8; kernels take arrays of bool, int8" in refusal(foreign("<c8", 0x20), A, 5)
    assert "but kernels run on the GPU" in refusal(foreign("<f2", 0), A, 5)


# -- descriptors


def described(x: tlx.tensor_descriptor_type(tl.float16, (64, 64)), n: tl.int32):  # type: ignore[no-untyped-def, valid-type]
    pass


def descriptor(array: Any = None, block: Any = (8, 64), **changes: Any) -> TensorDescriptor:
    base = array or Array(shape=(128, 256))
    fields = {"base": base, "shape": base.shape, "strides": base.stride(), "block_shape": block}
    return TensorDescriptor(**fields | changes)


def test_descriptors() -> None:
    made = descriptor()
    assert (list(made.shape), list(made.strides), made.dtype) == ([128, 256], [256, 1], ir.float16)
    found = arguments(made, A, 5)
    assert found["x"] == Argument(ir.Descriptor((8, 64), ir.float16))
    bound = resolve(made, A, 5)
    assert (bound.kinds, bound.device) == (b"miif", 0)
    key, values = Bound().fast(made, A, 5)
    assert values == (made, 0x10000, 5, 1.5) and key[-1] == 0


def test_descriptors_of_tensors_are_checked_each() -> None:
    """Also after one that differs only where it matters."""
    good = Array(address=0x20, shape=(128, 256))
    for _ in range(2):
        TensorDescriptor.from_tensor(good, [8, 64])
        for array, block, padding in (
            (Array(address=0x28, shape=(128, 256)), [8, 64], "zero"),
            (Array(float64, address=0x20, shape=(128, 256)), [8, 64], "zero"),
            (Array(address=0x20, shape=(128, 255)), [8, 64], "zero"),
            (good, [8, 64.0], "zero"),
            (good, [8, 63], "zero"),
            (good, [8], "zero"),
            (good, 8, "zero"),
            (good, [8, 64], "none"),
            (good, [8, 64], ["zero"]),
        ):
            with pytest.raises(DescriptorError):
                TensorDescriptor.from_tensor(array, block, padding)


def test_arrays_stand_for_declared_descriptors() -> None:
    def fn(x: tlx.tensor_descriptor_type(tl.float16, (8, 64)), n):  # type: ignore[no-untyped-def]
        pass

    bound = Bound(fn)
    array = Array(address=0x20, shape=(128, 256))
    wanted = bound.resolve(TensorDescriptor.from_tensor(array, (8, 64)), 5)
    assert bound.resolve(array, 5).identity == wanted.identity and wanted.kinds == b"mi"
    key, values = bound.fast(array, 5)
    assert isinstance(values[0], TensorDescriptor) and values[0].base is array
    assert key == bound.fast(TensorDescriptor.from_tensor(array, (8, 64)), 5)[0]
    with pytest.raises(DescriptorError) as error:
        bound.resolve(Array(shape=(128, 60)), 5)
    assert str(error.value) == (
        "fn: argument `x`: Dimension 0 of a TensorDescriptor has a stride of 60 elements of tl.float16, 120 bytes; TMA "
        "takes multiples of 16 bytes, so pad the rows of the array or pass a copy."
    )


def test_descriptors_specialise_on_dtype_and_block() -> None:
    made = Bound()
    same = [descriptor(), descriptor(Array(address=0x20, shape=(64, 1024))), descriptor(block=[np.int64(8), 64])]
    other = [descriptor(block=(16, 64)), descriptor(Array(bfloat16, shape=(64, 64))), descriptor(block=(8, 128)),
             descriptor(Array(shape=(2, 8, 64)), (1, 8, 64))]  # fmt: skip
    assert len({made.fast(d, A, 5)[0] for d in same}) == len({made.resolve(d, A, 5).identity for d in same}) == 1
    assert len({made.fast(d, A, 5)[0] for d in [same[0], *other]}) == 5
    assert len({made.resolve(d, A, 5).identity for d in [same[0], *other]}) == 5


def test_declared_descriptors() -> None:
    wanted = Argument(ir.Descriptor((64, 64), ir.float16))
    signature = Bound(described).binder.declared_signature({})
    assert dict(signature.arguments)["x"] == wanted
    # dtype and block shape come from the argument, as the element types of arrays do
    assert arguments(descriptor(Array(bfloat16, shape=(64, 64))), 5, fn=described)["x"].type.dtype is ir.bfloat16
    assert refusal(7, 5, fn=described) == (
        "argument `x` is 7 (int), but it is declared tlx.tensor_descriptor_type(tl.float16, (64, 64))."
    )
    assert refusal(descriptor(), 5, 5, 5, 1.0, True, MODE=1, fn=annotated) == (
        "argument `x` is a TensorDescriptor, but it is declared tl.ptr(tl.float16)."
    )


@pytest.mark.parametrize(("dtype", "shape"), [(tl.float16, (64, 4)), (tl.int1, (64, 64)), (tl.float16, ()),
                                              (tl.float16, (0, 64)), (tl.float16, (2,) * 5 + (64,))])  # fmt: skip
def test_types_of_descriptors_are_checked(dtype: Any, shape: Any) -> None:
    with pytest.raises(CompileError, match="this is no block of a descriptor"):
        tlx.tensor_descriptor_type(dtype, shape)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"base": 5}, "The base of a TensorDescriptor is a int; give a tensor on the GPU, or a dtype where nothing is "
         "launched."),
        ({"base": Array(float64)}, "The base of a TensorDescriptor is an array of torch.float64; it may be one of "
         "int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32."),
        ({"base": Array(address=0x1008)}, "The base of a TensorDescriptor is at address 0x1008; TMA needs a multiple "
         "of 16 bytes, so pass a copy (.clone())."),
        ({"shape": "ab"}, "The shape of a TensorDescriptor is 'ab'; give a sequence of integers."),
        ({"block_shape": 64}, "The block_shape of a TensorDescriptor is 64; give a sequence of integers."),
        ({"block_shape": (8, 64.0)}, "The block_shape of a TensorDescriptor is (8, 64.0); give a sequence of "
         "integers."),
        ({"shape": (2,) * 6}, "A TensorDescriptor has 6 dimensions; TMA has 1 to 5."),
        ({"shape": ()}, "A TensorDescriptor has 0 dimensions; TMA has 1 to 5."),
        ({"strides": (1,)}, "A TensorDescriptor has 2 dimensions, 1 strides and 2 extents of a block; give as many of "
         "each."),
        ({"shape": (0, 64)}, "Dimension 0 of a TensorDescriptor has 0 elements; TMA takes 1 to 2**32."),
        ({"block_shape": (8, 0)}, "Dimension 1 of a TensorDescriptor's block has 0 elements; give 1 or more."),
        ({"strides": (100, 1)}, "Dimension 0 of a TensorDescriptor has a stride of 100 elements of tl.float16, 200 "
         "bytes; TMA takes multiples of 16 bytes, so pad the rows of the array or pass a copy."),
        ({"strides": (128, 2)}, "The last stride of a TensorDescriptor is 2; TMA needs contiguous rows, so it must be "
         "1: pass the array transposed, or a contiguous copy (.contiguous())."),
        ({"block_shape": (8, 4)}, "The rows of a TensorDescriptor's block have 4 elements of tl.float16, 8 bytes; TMA "
         "copies multiples of 16 bytes."),
        ({"padding": "one"}, "The padding of a TensorDescriptor is 'one'; it may be \"zero\" or \"nan\"."),
        ({"base": Array(int32), "padding": "nan"}, "The padding of a TensorDescriptor is 'nan'; it may be \"zero\" for "
         "tl.int32."),
    ],
)  # fmt: skip
def test_descriptors_are_checked(fields: dict[str, Any], text: str) -> None:
    good = {"base": A, "shape": [128, 256], "strides": [256, 1], "block_shape": [8, 64]}
    with pytest.raises(DescriptorError) as error:
        TensorDescriptor(**good | fields)
    assert str(error.value) == text
    made = TensorDescriptor(**good)  # type: ignore[arg-type]
    for name, value in fields.items():
        setattr(made, name, value)
    if "strides" not in fields and "shape" not in fields:
        Bound().fast(made, A, 5)  # finds no plan, and refuses nothing by itself
    assert refusal(made, A, 5) == f"argument `x`: {text}"


def test_descriptors_of_the_cpu_are_refused() -> None:
    assert refusal(descriptor(Array(device=-1, shape=(64, 64))), A, 5) == (
        "argument `x` is a TensorDescriptor of a CPU tensor of torch.float16, but kernels run on the GPU; make it of a "
        "CUDA tensor."
    )
    assert "is a TensorDescriptor of tl.float16 (DType), but kernels run on the GPU" in refusal(
        TensorDescriptor(tl.float16, [64, 64], [64, 1], [8, 64]), A, 5
    )
    assert "on different devices, `x` on cuda:1 and `y` on cuda:0" in refusal(
        descriptor(Array(device=1, shape=(64, 64))), A, 5
    )


# -- what is refused


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((A, A), {}, "missing argument `n`."),
        ((A,), {}, "missing arguments `y` and `n`."),
        ((A, A, 5, 1.0, 64, 9), {}, "takes 5 arguments by position (x, y, n, s, BLOCK), but 6 were given."),
        ((A, A, 5), {"BLOC": 4}, "has no parameter `BLOC`. Did you mean `BLOCK`? Its parameters are x, y, n, s, BLOCK; "
         "launch options are num_warps, num_stages, maxnreg, ctas_per_cga, launch_pdl and stream."),
        ((Array(device=-1), A, 5), {}, "argument `x` is a CPU tensor of torch.float16, but kernels run on the GPU; "
         "pass `x.cuda()`."),
        ((A, Array(device=1), 5), {}, "arguments are on different devices, `x` on cuda:0 and `y` on cuda:1; move them "
         "to one device with .to()."),
        ((A, np.zeros(3, np.float32), 5), {}, "argument `y` is a NumPy array of float32, but kernels run on the "
         "GPU; pass a CUDA tensor, as torch.from_numpy(y).cuda()."),
        ((Array(float64), A, 5), {}, "argument `x` is a tensor on cuda:0 of torch.float64; kernels take arrays of "
         "bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32."),
        ((A, A, 2**64), {}, "argument `n` is 18446744073709551616, which does not fit into 64 bits."),
        ((A, A, -(2**63) - 1), {}, "argument `n` is -9223372036854775809, which does not fit into 64 bits."),
        ((A, A, "5"), {}, "argument `n` is '5' (str); a kernel takes arrays on the GPU, a tlxc.TensorDescriptor, an "
         "int, a float, a bool, None. Annotate the parameter `n: tl.constexpr` to pass other values at compile time."),
        ((A, A, 5), {"BLOCK": [1]}, "the compile-time parameter `BLOCK` was given [1] (list), which cannot be hashed; "
         "give a number, a string, a dtype, a function, None or a tuple of these."),
        ((A, A, 5), {"num_warps": 3}, "num_warps is 3; it may be 1, 2, 4, 8, 16 or 32."),
        *(
            ((A, A, 5), {"ctas_per_cga": value}, f"ctas_per_cga is {value!r}; it may be a tuple of one to three "
             "positive integers, the CTAs of a cluster along x, y and z, 16 in all at most, or None for no clusters.")
            for value in (2, [2, 1, 1], (), (2, 1, 1, 1), (0, 1, 1), (2, True), (2.0,), (4, 4, 2), "2")
        ),
        ((A, A, 5), {"num_warps": True}, "num_warps is True; it may be 1, 2, 4, 8, 16 or 32."),
        *(
            ((A, A, 5), {"maxnreg": value}, f"maxnreg is {value!r}; it may be an integer from 24 to 255, the registers "
             "that a thread may use at most, or None for no limit.")
            for value in (23, 256, 0, -64, 64.0, True, "64", [64])
        ),
    ],
)  # fmt: skip
def test_refusals(args: Any, kwargs: Any, text: str) -> None:
    assert refusal(*args, **kwargs) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"x": 5}, "argument `x` is 5 (int), but it is declared tl.ptr(tl.float16)."),
        ({"n": A}, "argument `n` is a tensor on cuda:0 of torch.float16, but it is declared tl.int32."),
        ({"n": 2**31}, "argument `n` is 2147483648 (int), but it is declared tl.int32."),
        ({"n": 2.5}, "argument `n` is 2.5 (float), but it is declared tl.int32."),
        ({"small": -1}, "argument `small` is -1 (int), but it is declared tl.uint8."),
        ({"on": 2}, "argument `on` is 2 (int), but it is declared tl.int1."),
    ],
)
def test_declared_types_are_kept(change: dict[str, Any], text: str) -> None:
    given = {"x": A, "n": 5, "big": 5, "small": 5, "eps": 1.0, "on": True, "MODE": 1} | change
    assert refusal(**given, fn=annotated) == text


def test_a_missing_constexpr_says_how_to_pass_it() -> None:
    given = {"x": A, "n": 5, "big": 5, "small": 5, "eps": 1.0, "on": True}
    assert refusal(**given, fn=annotated) == (
        "missing argument `MODE`; compile-time parameters are passed by name, as in MODE=..., or get a default."
    )


def test_real_cpu_tensors_are_refused() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(4, dtype=torch.bfloat16)
    assert refusal(tensor, tensor, 5) == (
        "argument `x` is a CPU tensor of torch.bfloat16, but kernels run on the GPU; pass `x.cuda()`."
    )
    assert Bound().fast(tensor, tensor, 5)[0][-1] == -1


def test_names_that_would_collide() -> None:
    def collides(_k0, __d, num, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        pass

    made = Bound(collides)
    assert made.fast(A, A, 7, BLOCK=2)[1] == (0x10000, 0x10000, 7)

    def option(num_warps):  # type: ignore[no-untyped-def]
        pass

    with pytest.raises(ArgumentError, match="the parameter `num_warps` has the name of a launch option; rename it."):
        Bound(option)

    def other_option(maxnreg: tl.constexpr):  # type: ignore[no-untyped-def]
        pass

    with pytest.raises(ArgumentError, match="the parameter `maxnreg` has the name of a launch option; rename it."):
        Bound(other_option)

    def half(s: tl.float16):  # type: ignore[no-untyped-def, valid-type]
        pass

    with pytest.raises(ArgumentError, match="the number `s` is declared tl.float16; numbers are passed as tl.float32"):
        Bound(half)


def test_num_stages_is_noted() -> None:
    from tlxc.runtime import bind

    bind._note_num_stages.cache_clear()
    with pytest.warns(UserWarning, match="num_stages has no effect"):
        resolve(A, A, 5, num_stages=3)


def test_dtype_spellings() -> None:
    for name, dtype in (("int32", ir.int32), ("bool", ir.int1), ("uint16", ir.uint16)):
        assert arguments(Array(Dtype(name)), A, 5)["x"].type == ir.Pointer(dtype)
    assert repr(int32) == "torch.int32"
