"""The family of an operator or kernel by its name: matmul, attention, conv, ... The pages have the same rules (frontend/src/hues.ts)."""

import functools
import re

FAMILIES = ("matmul", "attention", "conv", "norm", "elem", "reduce", "cast", "optim", "index", "communication", "other")

# The first pattern that matches the bare name decides, so the more specific ones come first.
RULES = (
    (r"^custom_(fusion|call)$", "other"),
    (r"^input_fusion$", "reduce"),
    (r"^triton_poi", "elem"),
    (
        r"nccl|hccl|rccl|oneccl|hcom|c10d|(^|_)(gloo|rdma|communication|collective)|all_?(reduce|gather|to_?all)|all2_?all|reduce_?scatter|record_param_comms|send_?recv|reduce_(async|inline)",
        "communication",
    ),
    (
        r"optim(?!al|ized)|adam|(^|_)(sgd|lars|lamb|ftrl)($|_)|momentum(?!s)|adagrad|adadelta|rmsprop|apply_(gradient|momentum|adam)",
        "optim",
    ),
    (r"attention|flash|sdpa|fmha|scaled_dot|cudnn_attn|convert_dq", "attention"),
    (r"(^|_)(\dd_?)?conv(\d|_|$|olution)|convol|\ddconv|winograd|implicit_gemm|fprop|dgrad|wgrad|im2col|col2im|scudnn|depthwise", "conv"),
    (r"norm(?!al(?!i))|(^|_)bn(_|infer|$)|welford|gamma_beta|rowwise_moments", "norm"),
    (r"embedding", "index"),
    (r"cross_entropy|nll_?loss|loss|soft_?max|pool(?!ed)|device_scan|scan_tile|bias_add_grad", "reduce"),
    (
        r"mat_?mul|(^|_)(mm|bmm|addmm|baddbmm|addmv|mv|dot|tensordot|dot_general|linear|einsum)($|_|\d)|(?<!scalar)(^|_)dense$|gemm|gemv|cutlass|cublas|tensorop|cijk|nvjet|split_?k|epilogue",
        "matmul",
    ),
    (r"drop_?out|random|clamp|masked_(fill|scale)|(^|_)where($|_)|hard_?tanh|relu|re_lu|nan_to_num", "elem"),
    (
        r"gather|scatter|index|indices|select|(^|_)slice|one_?hot|top_?k|sort|unique|nonzero|(^|_)take($|_)|(^|_)roll($|_)|arange|iota|lookup|segment|searchsorted|bucketize",
        "index",
    ),
    (
        r"copy|cast($|_)|convert|memcpy|mem_?set|(^|_)to($|_)|clone|contiguous|transpose|permute|trans_?data|tensor_move|nchw_to|nhwc_to|reshape|view|concat|(^|_)cat($|_|_array)|(^|_)split|(^|_)stack|(^|_)pad|padding|(^|_)tile($|_)|broadcast|expand|repeat|(^|_)fill|zero|empty|(^|_)ones|bitcast|identity|assign$|squeeze|flatten|as_strided|alias|detach|narrow|resize|resolve_conj|lift_fresh|set_?$|type_as|(^|_)t$|quantiz|float_to|to_float|atomic_addr_clean|local_scalar_dense|(^|_)item$|scalar_tensor",
        "cast",
    ),
    (
        r"sum|mean|reduce|reduction|(^|_)(arg)?(max|min)|amax|amin|prod(?!uct)|(^|_)(any|all)($|_)|cum(sum|prod)|(^|_)scan|device_scan|accuracy|(^|_)(var|std)($|_)|^triton_(red|per)|moments",
        "reduce",
    ),
    (
        r"add|sub|mul|div|pow|exp|log|tanh|sigmoid|gelu|silu|swish|sqrt|neg|abs|sign|clip|erf|cos|sin|elementwise|foreach|bernoulli|rand|normal|uniform|(^|_)(eq|ne|lt|gt|le|ge|not|lerp|scal)($|_)|equal|greater|less|compare|logical|bitwise|floor|ceil|round|fusion|fused|triton|bias|reciprocal|square|leaky|mish|elu|threshold|accumulate_grad|gen_(bit_)?mask|pointwise|multi_tensor",
        "elem",
    ),
)
_PATTERNS = tuple((re.compile(pattern), family) for pattern, family in RULES)
# Words in C++ kernel names that describe how they run, not what they compute.
_WRAPPING = re.compile(
    r"(void|at|native|cuda|detail|std|array|char|float|double|bool|int|long|unsigned|lambda|anonymous|namespace"
    r"|gpu_kernel_impl(_nocast)?|vectorized|unrolled|(Load|Store)With(out)?Cast|TensorIterator(Base)?|TrivialOffsetCalculator"
    r"|OffsetCalculator|BFloat16|Half|c10|const|true|false|policies|func_wrapper_t)"
)
_DIRECTED = re.compile(r"(_?backward\d*|_grad|_v\d+|_d|_+\d+)$", re.ASCII)
_WORDS = 6


@functools.lru_cache(1 << 16)
def family(name: str) -> str:
    """The family of an operator type or kernel name; `other` if no rule applies."""
    bare = bare_name(name)
    return next((family for pattern, family in _PATTERNS if pattern.search(bare)), "other")


@functools.lru_cache(1 << 16)
def bare_name(name: str) -> str:
    """Lower case, without namespace and without suffixes for direction or version."""
    text = name
    if re.search(r"[<(]", text) and re.search(r"::|^void |<", text):
        text = "_".join(functor_words(text)[:_WORDS])
    elif re.match(r"aclnn\w+_\w+_\w+", text, re.ASCII):
        text = text.split("_")[2]  # the interface, the implementation, and the operator
    elif not re.search(r"c10d|nccl", text):
        text = re.sub(r"^.*(::|/)(?=[^:/]+$)", "", text)
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
    text = re.sub(r"[^A-Za-z0-9_]+", "_", text).lower()
    if "bias_add_grad" in text:
        return "bias_add_grad"  # adds up, where the forward operator adds
    short = re.sub(r"_?(forward|backward)(_?cuda)?_?kernel.*$", "", text)
    return _DIRECTED.sub("", _DIRECTED.sub("", short, 1), 1) or text


def functor_words(name: str) -> list[str]:
    """The words of a C++ kernel: its name and its functors, without parameters and without words that say how it runs."""

    def namespace(match: re.Match[str]) -> str:
        space = match[1]
        return f"{space} " if re.search(r"nccl|cublas|cutlass|fmha|flash", space) and "cudnn" not in space else ""

    words = re.sub(r"\b(\w+)::(?=\w)", namespace, name.replace("(anonymous namespace)::", ""), flags=re.ASCII)
    words = re.sub(r"[>\w]\((?!.*(\{lambda|<)).*$", lambda match: match[0][0], words, count=1, flags=re.ASCII)
    return [word for word in re.findall(r"[A-Za-z_]\w*", words, re.ASCII) if not _WRAPPING.fullmatch(word)]
