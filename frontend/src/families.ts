/** Names of operator families, in lists and in sentences. */
import { family, type Family } from "./colors";
import { strings } from "./strings";

export const familyNames = strings("families");

/** The family of an operator: that of its type, or of its name if the type only shows that several were fused. */
export function familyOf(type: string | null, name: string | null): Family {
  const known = family(type ?? "");
  const named = name === null || name === type ? "other" : family(name);
  return named !== "other" && (known === "other" || /fusion|custom.?call/i.test(type ?? "")) ? named : known;
}
