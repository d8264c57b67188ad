/** Sentences of findings in the language of the page: loaded where findings are shown. */
import { signal } from "@preact/signals";
import type { Catalog } from "../messages";
import { language, type Language } from "../state";
import { messages } from "../strings";

const catalogs = signal<Partial<Record<Language, Catalog>>>({});
const loading = new Set<Language>();

/** The sentences; null until they are loaded. */
export function adviceTexts(): Catalog | null {
  const of = language();
  const known = catalogs.value[of];
  if (known) return known;
  if (!loading.has(of)) {
    loading.add(of);
    void (of === "zh" ? import("advice-messages:zh") : import("advice-messages:en")).then(
      (module) => (catalogs.value = { ...catalogs.value, [of]: { ...messages(), ...module.default } }),
    );
  }
  return null;
}
