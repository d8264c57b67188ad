/** What families of operators are called: in a list, and in a sentence. */
import { family, type Family } from "./colors";
import { texts } from "./text";

export const familyNames = texts<Record<Family, string>>({
  en: { matmul: "Matrix multiply", attention: "Attention", conv: "Convolution", norm: "Normalisation", elem: "Element-wise", reduce: "Reductions", cast: "Copy and cast", optim: "Optimizer", index: "Indexing", communication: "Communication", other: "Other" },
  zh: { matmul: "矩阵乘", attention: "注意力", conv: "卷积", norm: "归一化", elem: "逐元素运算", reduce: "归约", cast: "拷贝与转换", optim: "优化器", index: "索引", communication: "通信", other: "其他" },
});
/** The same, in the middle of a sentence or at its beginning. */
export const spoken = texts<Record<Family, string>>({
  en: { matmul: "matrix multiplies", attention: "attention", conv: "convolutions", norm: "normalisation", elem: "element-wise work", reduce: "reductions", cast: "copying and casting", optim: "the optimizer", index: "indexing", communication: "communication", other: "other work" },
  zh: { matmul: "矩阵乘", attention: "注意力", conv: "卷积", norm: "归一化", elem: "逐元素运算", reduce: "归约", cast: "拷贝与转换", optim: "优化器", index: "索引", communication: "通信", other: "其他" },
});

/** Families that are plural in a sentence. */
export const PLURAL: Family[] = ["matmul", "conv", "reduce"];

/** The family of an operator: that of its type, or of its name where the type says only that several were fused. */
export function familyOf(type: string | null, name: string | null): Family {
  const known = family(type ?? "");
  const named = name === null || name === type ? "other" : family(name);
  return named !== "other" && (known === "other" || /fusion|custom.?call/i.test(type ?? "")) ? named : known;
}
