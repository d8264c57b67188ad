"""Names that are equal in two runs: of kernels without what the compiler, the library and the chip add, of operators across frameworks."""

import functools
import re

import polars as pl

from stepscope.model.devices.families import bare_name, family, functor_words

# Libraries encode tile sizes, data types and the chip into the names of these kernels: only what they compute can be compared.
_GEMM = re.compile(r"gemm|gemv|gemvx|cutlass|cijk|nvjet|xmma|tensorop|splitk|hgemm|sgemm", re.IGNORECASE)
_ATTENTION = re.compile(r"flash|fmha|attn|attention", re.IGNORECASE)
_BACKWARD = re.compile(r"bwd|backward|dgrad|convert_dq|dot_do_o", re.IGNORECASE)
_COPY = re.compile(r"^(Memcpy|Memset)\b\s*(\w+)?")
_DIRECTIONS = {"HtoD": "host to device", "DtoH": "device to host", "DtoD": "device to device", "PtoP": "peer to peer"}
# Sizes and hashes that compilers append: triton_poi_fused_add_3, fusion.17, sm90_..., 64x128x32, _0d1d2d3, hashes of 8 or more digits.
_NOISE = re.compile(
    r"(?:^|_)(?:sm\d{2,3}|gfx\w{3,4}|ampere|hopper|volta|turing)(?=_|$)|_?\d+x\d+(?:x\d+)*|_(?:0d|1d)[\dd]+|[._]\d+$|_?[0-9a-f]{8,}"
)
_WORDS = 4
# Names of one operator in several frameworks, after `bare_name`.
_SAME = {
    "mm": "matmul",
    "addmm": "matmul",
    "bmm": "matmul",
    "baddbmm": "matmul",
    "mat_mul": "matmul",
    "batch_mat_mul": "matmul",
    "matmul_v2": "matmul",
    "dot_general": "matmul",
    "dot": "matmul",
    "linear": "matmul",
    "dense": "matmul",
    "convolution": "conv",
    "conv2d": "conv",
    "conv_2d": "conv",
    "cudnn_convolution": "conv",
    "miopen_convolution": "conv",
    "mkldnn_convolution": "conv",
    "conv_general_dilated": "conv",
    "softmax": "softmax",
    "_softmax": "softmax",
    "native_layer_norm": "layer_norm",
    "layer_norm": "layer_norm",
    "native_batch_norm": "batch_norm",
    "cudnn_batch_norm": "batch_norm",
    "miopen_batch_norm": "batch_norm",
    "batch_norm": "batch_norm",
}
# One operator of PyTorch has another name on each vendor's device.
_VENDOR = re.compile(r"(^|::)(cudnn|miopen|mkldnn|npu)_")


@functools.lru_cache(1 << 16)
def kernel(name: str) -> str:
    """What a kernel computes, without template arguments, tile sizes, hashes and numbers."""
    if copy := _COPY.match(name):
        way = _DIRECTIONS.get(copy[2] or "", "")
        return f"{copy[1].lower()} {way}".strip()
    direction = " backward" if _BACKWARD.search(name) else ""
    kind = family(name)
    if kind == "communication":
        return _communication(name)
    if kind == "attention" or (_ATTENTION.search(name) and not _GEMM.search(name)):
        return f"attention{direction}"
    if kind == "conv":
        return f"conv{direction}"
    if _GEMM.search(name):
        return "gemm"
    if re.search(r"::|^void |<", name):
        words = [word for word in functor_words(re.sub(r"<[^<>]*\(unsigned [^<>]*>", "", name)) if len(word) > 1]
        return "_".join(dict.fromkeys(words[:_WORDS])) or name
    return _NOISE.sub("", name) or name


def _communication(name: str) -> str:
    words = re.search(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|send_?recv|reduce|barrier", name, re.IGNORECASE)
    return "communication" if words is None else re.sub(r"_", "", words[0]).lower()


@functools.lru_cache(1 << 16)
def operator(name: str) -> str:
    """The name of an operator in every framework: aten::addmm, MatMul and dot_general are matmul; _backward stays."""
    bare = bare_name(name)
    back = " backward" if re.search(r"backward|Grad\b|_grad", name) else ""
    return _SAME.get(bare, _NOISE.sub("", bare) or bare) + back


@functools.lru_cache(1 << 16)
def same_vendor(name: str) -> str:
    """The name of an operator without the library of a vendor."""
    return _VENDOR.sub(r"\1", name)


def mapped(column: pl.Series, rule: "functools._lru_cache_wrapper[str]") -> pl.Series:
    """The column with a rule applied; there are few names and many rows."""
    names = column.unique().drop_nulls().to_list()
    return column.replace_strict(names, [rule(name) for name in names], default=None, return_dtype=pl.String) if names else column
