/**
 * The color of an operator: its family gives the hue, its name the shade. Independent of the page: workers draw, too.
 */

import rules from "../../src/stepscope/model/devices/families.json";

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

// As in stepscope.model.devices.families: the first pattern that matches the bare name decides.
const RULES = rules.map(([family, pattern]) => [new RegExp(pattern), family as Family] as const);
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
  const byName = family(name);
  return byName === "other" && type ? family(type) : byName;
}

// Words in C++ kernel names that describe how they run, not what they compute.
const WRAPPING_WORDS = [
  "void|at|native|cuda|detail|std|array|char|float|double|bool|int|long|unsigned|lambda|anonymous",
  "namespace|gpu_kernel_impl(_nocast)?|vectorized|unrolled|(Load|Store)With(out)?Cast",
  "TensorIterator(Base)?|TrivialOffsetCalculator|OffsetCalculator|BFloat16|Half|c10|const|true|false",
  "policies|func_wrapper_t",
];
const WRAPPING = new RegExp(`^(${WRAPPING_WORDS.join("|")})$`);

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
