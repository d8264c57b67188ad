/** Shapes and types of inputs in short. */

/** [[8, 1024, 3072], []] is 8, 1024, 3072 and a scalar: [8, 1024, 3072] × scalar. */
export function shapeText(json: string): string {
  const inputs = parseList(json);
  if (!inputs) return json;
  const known = inputs.filter((item, at) => (Array.isArray(item) ? item.length > 0 : true) || at < 2);
  const words = known.map((item) =>
    Array.isArray(item)
      ? item.length
        ? `[${item.map((part) => (Array.isArray(part) ? `[${part.join(", ")}]` : String(part))).join(", ")}]`
        : "scalar"
      : String(item),
  );
  const texts: string[] = [];
  for (let at = 0; at < words.length; at++) {
    let times = 1;
    while (words[at + times] === words[at] && words[at] !== "scalar") times += 1;
    texts.push(times > 1 ? `${words[at]} × ${times}` : words[at]);
    at += times - 1;
  }
  return texts.join(" · ");
}

const SHORT: Record<string, string> = {
  float: "f32",
  double: "f64",
  "c10::BFloat16": "bf16",
  "c10::Half": "f16",
  "long int": "i64",
  long: "i64",
  int: "i32",
  bool: "bool",
  "unsigned char": "u8",
  "signed char": "i8",
  Scalar: "scalar",
  float32: "f32",
  float16: "f16",
  bfloat16: "bf16",
  float64: "f64",
  int32: "i32",
  int64: "i64",
};

export function typeText(json: string): string {
  const types = parseList(json);
  if (!types) return json;
  return types
    .filter((item) => typeof item === "string" && item && item !== "Scalar" && item !== "ScalarList")
    .map((item) => SHORT[String(item)] ?? String(item))
    .join(" × ");
}

function parseList(json: string): unknown[] | null {
  try {
    const result: unknown = JSON.parse(json);
    return Array.isArray(result) ? result : null;
  } catch {
    return null;
  }
}

/** The name of a kernel without namespaces and parameters. */
export function shortName(name: string): string {
  if (!/^void |::.*[<(]|\w\(.*\)$/.test(name)) return name;
  const bare = name
    .replace(/^void /, "")
    .replace(/\(anonymous namespace\)::/g, "")
    .replace(/\b(at|native|std|cuda|detail|c10|cub|internal)::/g, "");
  let depth = 0;
  for (let at = 0; at < bare.length; at++) {
    if (bare[at] === "<") depth += 1;
    else if (bare[at] === ">") depth -= 1;
    else if (bare[at] === "(" && depth === 0 && at > 0 && bare[at - 1] !== " ") return bare.slice(0, at);
  }
  return bare;
}
