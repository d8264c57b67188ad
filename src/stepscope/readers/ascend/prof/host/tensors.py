"""Tensors of operators: shapes, data types and formats as text, from the records of CANN and MindSpore."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from stepscope.model import schema
from stepscope.model.intervals import Ints
from stepscope.readers.ascend.prof.files import Records

TENSOR = np.dtype([("kind", "<u4"), ("format", "<u4"), ("dtype", "<u4"), ("dims", "<u4", 8)])
TENSOR_TEXTS = (
    *("shapes", "dtypes"),
    *("Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats"),
)


def tensors_of_launches(raw: Records, node: Ints) -> pl.DataFrame:
    """Per launch (row of the call, `node`): shapes, dtypes and formats as text. More than five tensors take several records."""
    if not len(raw):
        return pl.DataFrame(schema={"node": pl.Int64, **dict.fromkeys(TENSOR_TEXTS, schema.Text)})
    count = np.minimum(raw["count"], 5).astype(np.int64)
    whole = pl.DataFrame({"node": node, "op": raw["op"], "at": raw["at"]})
    # Records with the same launch, operator and time belong to one operator. Each distinct single record is formatted once.
    alone = (pl.len().over("node", "op", "at") == 1) & (pl.col("node") >= 0)
    whole = whole.with_columns(alone=alone).with_row_index("record")
    same, first = _equal_records(_bytes(raw, "tensors"), count)
    texts = pl.DataFrame(
        [tensor_texts([raw["tensors"][row][: count[row]]]) for row in first.tolist()],
        schema=dict.fromkeys(TENSOR_TEXTS, schema.Text),
        orient="row",
    ).with_row_index("same")
    single = (
        whole.with_columns(pl.Series("same", same).cast(pl.UInt32))
        .filter("alone")
        .join(texts, on="same", how="left", maintain_order="left")
    )
    # Operators with several records repeat, too: identified by the numbers of their records.
    several = whole.with_columns(pl.Series("same", same)).filter(~pl.col("alone"), pl.col("node") >= 0)
    several = several.group_by("node", "op", "at", maintain_order=True).agg(pieces=pl.col("same").cast(pl.String).str.join(" "))
    rows = []
    for pieces in several["pieces"].unique().to_list():
        members = [int(first[int(piece)]) for piece in pieces.split(" ")]
        rows.append((pieces, *tensor_texts([raw["tensors"][row][: count[row]] for row in members])))
    joined = pl.DataFrame(rows, schema={"pieces": pl.String, **dict.fromkeys(TENSOR_TEXTS, schema.Text)}, orient="row")
    several = several.join(joined, on="pieces", how="left", maintain_order="left")
    columns = ["node", *TENSOR_TEXTS]
    return pl.concat([single.select(columns), several.select(columns)])


def _equal_records(payload: Any, count: Ints) -> tuple[Ints, Ints]:
    """Groups of equal records: the group of each record, and the first record of each group. In portions, as there may be millions."""
    wide = (payload.shape[1] + 7) // 8
    weights = np.random.default_rng(0).integers(1, 2**63, wide, dtype=np.uint64) | np.uint64(1)
    digest = np.empty(len(payload), np.uint64)
    for rows, mixed in _portions(payload, wide):
        digest[rows] = (mixed * weights).sum(axis=1, dtype=np.uint64)
    digest += count.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    _, first, same = np.unique(digest, return_index=True, return_inverse=True)
    for rows, _ in _portions(payload, wide):
        if not (payload[rows] == payload[first[same[rows]]]).all():  # a hash collision of different records: never seen
            return np.arange(len(payload)), np.arange(len(payload))
    return same, first


def _bytes(raw: Records, field: str) -> Any:
    """The bytes of one field of all records, without a copy."""
    fields = raw.dtype.fields
    assert fields is not None
    dtype, place = fields[field][:2]
    whole = np.ascontiguousarray(raw).view(np.uint8).reshape(len(raw), raw.dtype.itemsize)
    return whole[:, place : place + dtype.itemsize]


def _portions(payload: Any, wide: int) -> Iterator[tuple[slice, Any]]:
    """Rows of bytes as rows of 64-bit integers, in portions."""
    for start in range(0, len(payload), 1 << 16):
        rows = slice(start, min(start + (1 << 16), len(payload)))
        padded = np.zeros((rows.stop - start, wide * 8), np.uint8)
        padded[:, : payload.shape[1]] = payload[rows]
        yield rows, padded.view(np.uint64)


def tensor_texts(parts: list[Records]) -> tuple[str, ...]:
    sides: list[tuple[list[str], list[str], list[str]]] = [([], [], []), ([], [], [])]
    for part in parts:
        for kind, form, dtype, dims in part.tolist():
            if kind < 2:
                shapes, dtypes, formats = sides[kind]
                shapes.append(",".join(str(size) for size in dims if size))
                dtypes.append(_word(dtype, DTYPES))
                formats.append(_word(form & 0xFF, FORMATS))
    shapes, dtypes, _ = sides[0]
    return (
        "[" + ",".join(f"[{shape}]" for shape in shapes) + "]",
        "[" + ",".join(f'"{dtype}"' for dtype in dtypes) + "]",
        *(";".join(words) for side in sides for words in side),
    )


def _word(code: int, words: dict[int, str]) -> str:
    return words.get(code, str(code))


# Names by their codes.
_DTYPES = """
FLOAT FLOAT16 INT8 INT32 UINT8 5 INT16 UINT16 UINT32 INT64 UINT64 DOUBLE BOOL STRING DUAL_SUB_INT8 DUAL_SUB_UINT8 COMPLEX64 COMPLEX128 QINT8
QINT16 QINT32 QUINT8 QUINT16 RESOURCE STRING_REF DUAL DT_VARIANT DT_BF16 DT_UNDEFINED DT_INT4 DT_UINT1 DT_INT2 DT_UINT2 DT_COMPLEX32
DT_HIFLOAT8 DT_FLOAT8_E5M2 DT_FLOAT8_E4M3FN DT_FLOAT8_E8M0 DT_FLOAT6_E3M2 DT_FLOAT6_E2M3 DT_FLOAT4_E2M1 DT_FLOAT4_E1M2
"""
_FORMATS = """
NCHW NHWC ND NC1HWC0 FRACTAL_Z NC1C0HWPAD NHWC1C0 FSR_NCHW FRACTAL_DECONV C1HWNC0 FRACTAL_DECONV_TRANSPOSE FRACTAL_DECONV_SP_STRIDE_TRANS
NC1HWC0_C04 FRACTAL_Z_C04 CHWN FRACTAL_DECONV_SP_STRIDE8_TRANS HWCN NC1KHKWHWC0 BN_WEIGHT FILTER_HWCK HASHTABLE_LOOKUP_LOOKUPS
HASHTABLE_LOOKUP_KEYS HASHTABLE_LOOKUP_VALUE HASHTABLE_LOOKUP_OUTPUT HASHTABLE_LOOKUP_HITS C1HWNCoC0 MD NDHWC FRACTAL_ZZ FRACTAL_NZ NCDHW
DHWCN NDC1HWC0 FRACTAL_Z_3D CN NC DHWNC FRACTAL_Z_3D_TRANSPOSE FRACTAL_ZN_LSTM FRACTAL_Z_G RESERVED ALL NULL ND_RNN_BIAS FRACTAL_ZN_RNN NYUV
NYUV_A NCL FRACTAL_Z_WINO C1HWC0 FRACTAL_NZ_C0_16 FRACTAL_NZ_C0_32 FRACTAL_NZ_C0_2 FRACTAL_NZ_C0_4 FRACTAL_NZ_C0_8 END
"""
# MindSpore's own codes start at 230 (data types) and 200 (formats).
_MINDSPORE_DTYPES = "BOOL INT INT8 INT16 INT32 INT64 UINT UINT8 UINT16 UINT32 UINT64 FLOAT FLOAT16 FLOAT32 FLOAT64 COMPLEX"
_MINDSPORE_FORMATS = """
UNKNOWN DEFAULT NC1KHKWHWC0 ND NCHW NHWC HWCN NC1HWC0 FRAC_Z C1HWNCOC0 FRAC_NZ NC1HWC0_C04 FRACTAL_Z_C04 NDHWC FRACTAL_ZN_LSTM
FRACTAL_ZN_RNN ND_RNN_BIAS
"""
DTYPES = dict(enumerate(_DTYPES.split())) | dict(enumerate(_MINDSPORE_DTYPES.split(), 230)) | {2**32 - 1: "UNDEFINED"}
FORMATS = dict(enumerate(_FORMATS.split())) | dict(enumerate(_MINDSPORE_FORMATS.split(), 200))
