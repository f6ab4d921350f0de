# SPDX-License-Identifier: Apache-2.0
"""Element types of records, and their types in numpy, torch and safetensors."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple, Tuple

from ._imports import imported
from ._library import Error, Record
from ._memory import numpy


class Kind(NamedTuple):
    """An element type.

    plain       numpy's type of the same size, if there is no better one
    ml_dtypes   name of the type in ml_dtypes, "" if numpy has it
    torch       name in torch
    name        name in safetensors, or the record's if there is none
    """
    plain: str
    ml_dtypes: str
    torch: str
    name: str


_KINDS = {
    "Bool": Kind("?", "", "bool", "BOOL"),
    # MindSpore stores each in one byte.
    "Int4": Kind("i1", "", "int8", "I8"),
    "Int8": Kind("i1", "", "int8", "I8"),
    "Int16": Kind("<i2", "", "int16", "I16"),
    "Int32": Kind("<i4", "", "int32", "I32"),
    "Int64": Kind("<i8", "", "int64", "I64"),
    "UInt8": Kind("u1", "", "uint8", "U8"),
    "UInt16": Kind("<u2", "", "uint16", "U16"),
    "UInt32": Kind("<u4", "", "uint32", "U32"),
    "UInt64": Kind("<u8", "", "uint64", "U64"),
    "Float16": Kind("<f2", "", "float16", "F16"),
    "Float32": Kind("<f4", "", "float32", "F32"),
    "Float64": Kind("<f8", "", "float64", "F64"),
    "BFloat16": Kind("<u2", "bfloat16", "bfloat16", "BF16"),
    "Complex64": Kind("<c8", "", "complex64", "C64"),
    "Complex128": Kind("<c16", "", "complex128", "Complex128"),
    "Float8E4M3FN": Kind("u1", "float8_e4m3fn", "float8_e4m3fn", "F8_E4M3"),
    "Float8E5M2": Kind("u1", "float8_e5m2", "float8_e5m2", "F8_E5M2"),
    "HiFloat8": Kind("u1", "", "uint8", "HiFloat8"),
    "Float8E8M0FNU": Kind("u1", "float8_e8m0fnu", "float8_e8m0fnu", "F8_E8M0"),
    # A byte has two numbers, and counts as one element, as in torch.
    "Float4E2M1FNx2": Kind("u1", "", "float4_e2m1fn_x2", "F4"),
}


def is_text(record: Record) -> bool:
    return record.dtype == "str"


def kind(record: Record) -> Kind:
    """The element type of a record that is not a string."""
    found = _KINDS.get(record.dtype)
    if found is None:
        raise Error(f"{record.name}: arrays of {record.dtype} are not supported")
    return found


def is_wide(record: Record) -> bool:
    """Whether the record is a BFloat16 of MindSpore up to 2.2: four bytes for each
    element, of which the upper two have the value."""
    return (record.dtype == "BFloat16"
            and record.bytes > 2 * math.prod(record.shape))


def narrow(record: Record, content: Any) -> Any:
    """The bytes of the elements, without the padding of a wide BFloat16."""
    if not is_wide(record):
        return content
    np = numpy()
    return np.ascontiguousarray(content.view("<u2")[1::2]).view(np.uint8)


# A search for a module that is not there takes longer than a small tensor.
@functools.lru_cache(maxsize=None)
def numpy_type(of: Kind) -> Any:
    if of.ml_dtypes:
        try:
            return numpy().dtype(getattr(imported("ml_dtypes"), of.ml_dtypes))
        except (ImportError, AttributeError):
            pass
    return numpy().dtype(of.plain)


def as_numpy(content: Any, shape: Tuple[int, ...], of: Kind) -> Any:
    return content.view(numpy_type(of)).reshape(shape)


def as_torch(content: Any, shape: Tuple[int, ...], of: Kind) -> Any:
    torch = imported("torch")
    dtype = getattr(torch, of.torch, None)
    if dtype is None:
        raise Error(f"torch {torch.__version__} has no {of.torch}")
    if not content.size:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(content).view(dtype).reshape(shape)
