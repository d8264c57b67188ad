/**
 * The color of an operator: its family gives the hue, its name the shade. Independent of the page: workers draw, too.
 */

export const FAMILIES = [
  "matmul",
  "attention",
  "conv",
  "norm",
  "elem",
  "reduce",
  "cast",
  "optim",
  "index",
  "communication",
  "other",
] as const;
export type Family = (typeof FAMILIES)[number];

// The first pattern that matches the bare name decides, so the more specific ones come first.
const RULES: [RegExp, Family][] = [
  [/^custom_(fusion|call)$/, "other"], // XLA: a kernel of a library or of its own, most often a product
  [/^input_fusion$/, "reduce"], // XLA: what is fused into a reduction
  [/^triton_poi/, "elem"], // it may be named after the product whose result it changes
  [
    /nccl|hccl|rccl|oneccl|hcom|c10d|(^|_)(gloo|rdma|communication|collective)|all_?(reduce|gather|to_?all)|all2_?all|reduce_?scatter|record_param_comms|send_?recv|reduce_(async|inline)/,
    "communication",
  ],
  [
    /optim(?!al|ized)|adam|(^|_)(sgd|lars|lamb|ftrl)($|_)|momentum(?!s)|adagrad|adadelta|rmsprop|apply_(gradient|momentum|adam)/,
    "optim",
  ],
  [/attention|flash|sdpa|fmha|scaled_dot|cudnn_attn|convert_dq/, "attention"],
  [
    /(^|_)(\dd_?)?conv(\d|_|$|olution)|convol|\ddconv|winograd|implicit_gemm|fprop|dgrad|wgrad|im2col|col2im|scudnn|depthwise/,
    "conv",
  ],
  [/norm(?!al(?!i))|(^|_)bn(_|infer|$)|welford|gamma_beta|rowwise_moments/, "norm"],
  [/embedding/, "index"],
  [/cross_entropy|nll_?loss|loss|soft_?max|pool(?!ed)|device_scan|scan_tile|bias_add_grad/, "reduce"],
  [
    /mat_?mul|(^|_)(mm|bmm|addmm|baddbmm|addmv|mv|dot|tensordot|dot_general|linear|einsum)($|_|\d)|(?<!scalar)(^|_)dense$|gemm|gemv|cutlass|cublas|tensorop|cijk|nvjet|split_?k|epilogue/,
    "matmul",
  ],
  [/drop_?out|random|clamp|masked_(fill|scale)|(^|_)where($|_)|hard_?tanh|relu|re_lu|nan_to_num/, "elem"],
  [
    /gather|scatter|index|indices|select|(^|_)slice|one_?hot|top_?k|sort|unique|nonzero|(^|_)take($|_)|(^|_)roll($|_)|arange|iota|lookup|segment|searchsorted|bucketize/,
    "index",
  ],
  [
    /copy|cast($|_)|convert|memcpy|mem_?set|(^|_)to($|_)|clone|contiguous|transpose|permute|trans_?data|tensor_move|nchw_to|nhwc_to|reshape|view|concat|(^|_)cat($|_|_array)|(^|_)split|(^|_)stack|(^|_)pad|padding|(^|_)tile($|_)|broadcast|expand|repeat|(^|_)fill|zero|empty|(^|_)ones|bitcast|identity|assign$|squeeze|flatten|as_strided|alias|detach|narrow|resize|resolve_conj|lift_fresh|set_?$|type_as|(^|_)t$|quantiz|float_to|to_float|atomic_addr_clean|local_scalar_dense|(^|_)item$|scalar_tensor/,
    "cast",
  ],
  [
    /sum|mean|reduce|reduction|(^|_)(arg)?(max|min)|amax|amin|prod(?!uct)|(^|_)(any|all)($|_)|cum(sum|prod)|(^|_)scan|device_scan|accuracy|(^|_)(var|std)($|_)|^triton_(red|per)|moments/,
    "reduce",
  ],
  [
    /add|sub|mul|div|pow|exp|log|tanh|sigmoid|gelu|silu|swish|sqrt|neg|abs|sign|clip|erf|cos|sin|elementwise|foreach|bernoulli|rand|normal|uniform|(^|_)(eq|ne|lt|gt|le|ge|not|lerp|scal)($|_)|equal|greater|less|compare|logical|bitwise|floor|ceil|round|fusion|fused|triton|bias|reciprocal|square|leaky|mish|elu|threshold|accumulate_grad|gen_(bit_)?mask|pointwise|multi_tensor/,
    "elem",
  ],
];
const families = new Map<string, Family>();

/** The family of an operator type or kernel name. */
export function family(name: string): Family {
  let known = families.get(name);
  if (known === undefined) {
    const bare = stripped(name);
    known = RULES.find(([pattern]) => pattern.test(bare))?.[1] ?? "other";
    families.set(name, known);
  }
  return known;
}

/** The family of a span: that of its name, or of its type if the name matches none. */
export function spanFamily(name: string, type: string | null): Family {
  const own = family(name);
  return own === "other" && type ? family(type) : own;
}

// Words in C++ kernel names that describe how they run, not what they compute.
const WRAPPING =
  /^(void|at|native|cuda|detail|std|array|char|float|double|bool|int|long|unsigned|lambda|anonymous|namespace|gpu_kernel_impl(_nocast)?|vectorized|unrolled|(Load|Store)With(out)?Cast|TensorIterator(Base)?|TrivialOffsetCalculator|OffsetCalculator|BFloat16|Half|c10|const|true|false|policies|func_wrapper_t)$/;

/** Lower case, without namespace and without suffixes for direction or version. */
function stripped(name: string): string {
  let text = name;
  if (/[<(]/.test(text) && /::|^void |</.test(text)) {
    // A C++ kernel: its name and its functors, without parameters.
    const words = text
      .replace(/\(anonymous namespace\)::/g, "")
      .replace(/\b(\w+)::(?=\w)/g, (_, space: string) =>
        /nccl|cublas|cutlass|fmha|flash/.test(space) && !/cudnn/.test(space) ? `${space} ` : "",
      );
    text = (words.replace(/[>\w]\((?!.*(\{lambda|<)).*$/, (all) => all[0]).match(/[A-Za-z_]\w*/g) ?? [])
      .filter((word) => !WRAPPING.test(word))
      .slice(0, 6)
      .join("_");
  } else if (/^aclnn\w+_\w+_\w+/.test(text)) {
    text = text.split("_")[2]; // the interface, the implementation, and the operator
  } else if (!/c10d|nccl/.test(text)) {
    text = text.replace(/^.*(::|\/)(?=[^:/]+$)/, "");
  }
  text = text
    .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
    .replace(/[^A-Za-z0-9_]+/g, "_")
    .toLowerCase();
  if (/bias_add_grad/.test(text)) return "bias_add_grad"; // adds up, where the forward operator adds
  const directed = /(_?backward\d*|_grad|_v\d+|_d|_+\d+)$/;
  return (
    text
      .replace(/_?(forward|backward)(_?cuda)?_?kernel.*$/, "")
      .replace(directed, "")
      .replace(directed, "") || text
  );
}

/** The color of a family. Communication has the color of its kind; all others are shades of compute. */
export function token(family: Family): string {
  return family === "communication" ? "--kind-communication" : `--op-${family}`;
}

const SHADES = [-0.08, -0.04, 0, 0.04, 0.08];

/** The shade of the family color for a name. */
export function shade(name: string, of: string): string {
  const by = SHADES[fnv1a(name) % SHADES.length];
  return by === 0 ? of : `oklch(from ${of} calc(l ${by > 0 ? "+" : "-"} ${Math.abs(by)}) c h)`;
}

export type Kind = "compute" | "host" | "copy" | "communication" | "wait" | "idle";

/** The kind that a span is drawn as. */
export function kindOf(kind: string): Kind {
  switch (kind) {
    case "kernel":
      return "compute";
    case "copy":
    case "set":
      return "copy";
    case "communication":
      return "communication";
    case "data":
    case "sync":
    case "wait":
      return "wait";
    default:
      return "host";
  }
}

/** Whether a span of this kind has the color of its family; else it has that of its kind, such as all host calls. */
export function hasFamily(kind: string): boolean {
  return kind !== "api" && kind !== "python" && ["host", "compute"].includes(kindOf(kind));
}

const encoder = new TextEncoder();

function fnv1a(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of encoder.encode(text)) hash = Math.imul(hash ^ byte, 0x01000193);
  return hash >>> 0;
}
