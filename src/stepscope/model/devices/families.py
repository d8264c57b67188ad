"""What an operator or kernel computes, by its name: matmul, conv, norm, ...

The rules are a file, so that the colors of the pages (frontend/src/hues.ts) follow the same ones: the first pattern that matches the
bare name decides, so the more specific ones come first. An XLA custom fusion or call is most often a product of a library, but may be
anything: other. An input fusion is fused into a reduction. A pointwise kernel of Triton may be named after the product whose result it
changes.
"""

import functools
import json
import re
from pathlib import Path

OTHER = "other"
# The arithmetic that a model needs: other families prepare, move or adjust its data.
PRODUCTS = ("matmul", "conv", "attention")
_SEVERAL = re.compile(r"fusion|custom.?call", re.IGNORECASE)  # types that do not show what was fused
# Words in C++ kernel names that describe how they run, not what they compute.
_WRAPPING = re.compile(
    r"(void|at|native|cuda|detail|std|array|char|float|double|bool|int|long|unsigned|lambda|anonymous|namespace"
    r"|gpu_kernel_impl(_nocast)?|vectorized|unrolled|(Load|Store)With(out)?Cast|TensorIterator(Base)?|TrivialOffsetCalculator"
    r"|OffsetCalculator|BFloat16|Half|c10|const|true|false|policies|func_wrapper_t)"
)
_DIRECTED = re.compile(r"(_?backward\d*|_grad|_v\d+|_d|_+\d+)\Z", re.ASCII)
_TEMPLATE_NAMES, _NAMES = 6, re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NAME_SPACE = re.compile(r"\b(\w+)::(?=\w)", re.ASCII)


def operator_family(op_type: str | None, name: str | None) -> str:
    """The family of an operator: that of its type, or of its name if the type only shows that several were fused."""
    known = family(op_type or "")
    named = OTHER if name is None or name == op_type else family(name)
    return named if named != OTHER and (known == OTHER or _SEVERAL.search(op_type or "")) else known


@functools.lru_cache(maxsize=1 << 16)
def family(name: str) -> str:
    """The family of an operator type or kernel name; `other` for an unknown one."""
    bare = bare_name(name)
    return next((family for family, pattern in _rules() if pattern.search(bare)), OTHER)


@functools.cache
def _rules() -> list[tuple[str, re.Pattern[str]]]:
    rules = json.loads((Path(__file__).parent / "families.json").read_text(encoding="utf-8"))
    return [(name, re.compile(pattern, re.ASCII)) for name, pattern in rules]


@functools.lru_cache(maxsize=1 << 16)
def bare_name(name: str) -> str:
    """Lower case, without namespace and without suffixes for direction or version."""
    text = name
    if re.search("[<(]", text) and re.search("::|^void |<", text):
        text = "_".join(functor_words(text)[:_TEMPLATE_NAMES])
    elif re.match(r"aclnn\w+_\w+_\w+", text, re.ASCII):
        text = text.split("_")[2]  # the interface, the implementation, and the operator
    elif not re.search("c10d|nccl", text):
        text = re.sub(r"^.*(::|/)(?=[^:/]+\Z)", "", text, count=1)
    text = re.sub("([a-z0-9])([A-Z])", r"\1_\2", text)
    text = re.sub("[^A-Za-z0-9_]+", "_", text).lower()
    if "bias_add_grad" in text:
        return "bias_add_grad"  # adds up, where the forward operator adds
    short = re.sub(r"_?(forward|backward)(_?cuda)?_?kernel.*\Z", "", text, count=1)
    return _DIRECTED.sub("", _DIRECTED.sub("", short, count=1), count=1) or text


def functor_words(name: str) -> list[str]:
    """The words of a C++ kernel: its name and its functors, without parameters and without words that show how it runs."""
    words = _NAME_SPACE.sub(_library, name.replace("(anonymous namespace)::", ""))
    words = re.sub(r"[>\w]\((?!.*(\{lambda|<)).*\Z", lambda match: match[0][0], words, count=1, flags=re.ASCII)
    return [word for word in _NAMES.findall(words) if not _WRAPPING.fullmatch(word)]


def _library(match: re.Match[str]) -> str:
    """A namespace that shows what its kernels compute stays."""
    space = match[1]
    return f"{space} " if re.search("nccl|cublas|cutlass|fmha|flash", space) and "cudnn" not in space else ""
