"""Texts of rows as a Polars series, without a Python object for each: the compiled library copies them into an Arrow array."""

import ctypes
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

_SCHEMA_BYTES, _ARRAY_BYTES = 72, 80  # of the structures of the Arrow C data interface
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class _Array:
    """An array for the Arrow PyCapsule interface. Who imports it takes its memory."""

    def __init__(self) -> None:
        self.schema = ctypes.create_string_buffer(_SCHEMA_BYTES)
        self.array = ctypes.create_string_buffer(_ARRAY_BYTES)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return (
            _new_capsule(ctypes.addressof(self.schema), b"arrow_schema", None),
            _new_capsule(ctypes.addressof(self.array), b"arrow_array", None),
        )


def text_series(library: ctypes.CDLL, text: NDArray[np.uint8], rows: NDArray[np.void], field: str, empty: str = "") -> pl.Series:
    """The parts of the text at the offsets and sizes (`FIELD_at`, `FIELD_size`) of rows. An empty part becomes `empty`."""
    if not len(rows):
        return pl.Series(dtype=pl.String)
    offset: Any = rows.dtype.fields[f"{field}_at"][1]  # type: ignore[index]
    array = _Array()
    first = rows.ctypes.data + offset
    if library.stepscope_texts(
        text.ctypes.data, len(text), first, len(rows), rows.dtype.itemsize, empty.encode(), array.schema, array.array
    ):
        raise MemoryError
    return pl.Series(array)
