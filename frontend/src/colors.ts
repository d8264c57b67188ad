/** One colour per operator, everywhere: a family gives the hue, the name a shade of it. Nothing else decides. */
import { theme } from "./state";

export const FAMILIES = ["matmul", "attention", "conv", "norm", "elem", "reduce", "cast", "optim", "index", "other"] as const;
export type Family = (typeof FAMILIES)[number];

// The first pattern that the bare name matches decides; so what is more particular stands first.
const RULES: [RegExp, Family][] = [
  [/optim|adam|sgd|momentum|lamb|lars|adagrad|rmsprop|multi_tensor|multitensor|fused_?apply|apply_?(gradient|momentum|adam)/, "optim"],
  [/attention|flash|sdpa|fmha|scaled_dot|cudnn_attn/, "attention"],
  [/(^|_)conv|conv\d|convol|winograd|implicit_gemm|fprop|dgrad|wgrad|im2col|col2im/, "conv"],
  [/norm(?!al_)|batch_?norm|layer_?norm|bn_fw|bn_bw|bninfer|welford/, "norm"],
  [/mat_?mul|(^|_)(mm|bmm|addmm|baddbmm|mv|dot|dot_general|linear|dense|einsum)($|_|\d)|gemm|gemv|cutlass|cublas|tensorop|cijk|nvjet|xmma|splitk/, "matmul"],
  [/embedding|gather|scatter|index|select|slice|one_?hot|topk|top_k|sort|unique|where|masked|nonzero|take|dynamic_(update_)?slice|roll|arange|iota/, "index"],
  [/copy|cast|convert|memcpy|memset|(^|_)to($|_)|_to_copy|clone|contiguous|transpose|permute|transdata|reshape|view|concat|(^|_)cat($|_)|split|stack|pad|tile|broadcast|expand|fill|zero|empty|ones|bitcast|identity|assign|load|squeeze/, "cast"],
  [/sum|mean|reduce|softmax|max|min|argmax|argmin|prod|cross_entropy|nll|loss|(^|_)any|(^|_)all($|_)|cumsum|pool|accuracy|bias_?add_?grad|var($|_)|std($|_)/, "reduce"],
  [/add|sub|mul|div|pow|exp|log|tanh|sigmoid|relu|gelu|silu|swish|sqrt|neg|abs|sign|clamp|clip|erf|cos|sin|dropout|elementwise|vectorized|unrolled|foreach|bernoulli|random|normal_|uniform|(^|_)(eq|ne|lt|gt|le|ge)($|_)|equal|greater|less|logical|bitwise|not|floor|ceil|round|fusion|fused|triton|bias|reciprocal|square|leaky|hard|mish|elu|threshold/, "elem"],
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

/** Lower case, without namespace and without the suffixes that only say direction or version. */
function stripped(name: string): string {
  return name
    .split("(")[0]
    .replace(/^.*(::|\/)(?=[^:/]+$)/, "")
    .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
    .toLowerCase()
    .replace(/(_?backward\d*|_?grad|_?v\d+|_d)$/, "")
    .replace(/(_?backward\d*|_?grad|_?v\d+)$/, "");
}

const SHADES = [-0.08, -0.04, 0, 0.04, 0.08];
const shades = new Map<string, string>();

/** The colour of an operator or kernel: `plain` is the family's own, else a shade of it that the name picks. */
export function color(name: string, plain = false): string {
  const kind = family(name);
  if (plain) return `var(--op-${kind})`;
  const key = `${theme()} ${name}`;
  let shade = shades.get(key);
  if (shade === undefined) {
    const by = SHADES[fnv1a(name) % SHADES.length];
    shade = by === 0 ? css(`--op-${kind}`) : `oklch(from ${css(`--op-${kind}`)} calc(l ${by > 0 ? "+" : "-"} ${Math.abs(by)}) c h)`;
    shades.set(key, shade);
  }
  return shade;
}

export type Kind = "compute" | "host" | "copy" | "communication" | "wait" | "idle";

/** What a span's kind is drawn as. */
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
      return "wait";
    default:
      return "host";
  }
}

/** A token's value now, for canvas, where var() does not reach. */
export function css(name: string): string {
  theme(); // whoever asks is asked again when the theme changes
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function fnv1a(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) {
    hash ^= byte;
    hash = Math.imul(hash, 0x01000193) >>> 0;
  }
  return hash;
}
