/** Where the reader is: run, page, rank, steps and selection all live in the address, so that a link reproduces the view. */
import { effect, signal } from "@preact/signals";

export interface Place {
  /** The run as the server knows it: its id in the list and, where other steps are chosen, the choice. */
  run: string | null;
  page: string;
  params: Record<string, string>;
}

/** Kept when the page changes; everything else belongs to one page. */
const CONTEXT = ["rank", "steps", "warmup", "step_name"];

export const place = signal<Place>(parse(location.hash));
window.addEventListener("hashchange", () => {
  if (isPlace(location.hash)) place.value = parse(location.hash);
  else {
    // The name of an element, such as #main of the skip link: the reader stays where they are, and so does the address.
    const element = document.getElementById(location.hash.slice(1));
    history.replaceState(null, "", link({}));
    element?.focus();
  }
});

/** A place begins with #/; what follows # alone is the name of an element of the page, and never a run. */
export function isPlace(hash: string): boolean {
  return hash === "" || hash === "#" || hash.startsWith("#/");
}

export function parse(hash: string): Place {
  const [path, query] = isPlace(hash) ? hash.replace(/^#\/?/, "").split("?", 2) : [""];
  const [run, page] = path.split("/").map(decode);
  const params = Object.fromEntries(new URLSearchParams(query));
  return { run: run ? withSteps(run, params.step_name) : null, page: page || (run ? "overview" : "runs"), params };
}

/** The choice follows the id in base64url, which needs no escapes in a path. */
function withSteps(run: string, choice: string | undefined): string {
  if (!choice) return run;
  const bytes = new TextEncoder().encode(choice);
  return `${run}~${btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

/** The id in the list, whatever steps are chosen. */
export function listed(run: string): string {
  return run.split("~", 1)[0];
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a hash typed by hand
  }
}

export interface Change {
  run?: string | null;
  page?: string;
  params?: Record<string, string | number | null | undefined>;
}

/** The address after a change: another run or page drops what belonged to the old page; null removes a parameter. */
export function link(change: Change): string {
  const now = place.value;
  const here = now.run === null ? null : listed(now.run);
  const run = change.run === undefined ? here : change.run === null ? null : listed(change.run);
  const page = change.page ?? (change.run !== undefined && run !== here && run ? "overview" : now.page);
  const moved = page !== now.page || run !== here;
  const kept = Object.entries(now.params).filter(([name]) => !moved || (run === here && CONTEXT.includes(name)));
  const params = new URLSearchParams(kept);
  for (const [name, value] of Object.entries(change.params ?? {})) {
    if (value === null || value === undefined || value === "") params.delete(name);
    else params.set(name, String(value));
  }
  params.sort();
  const query = params.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
  const path = run === null ? (page === "runs" ? "" : `/${page}`) : `${encodeURIComponent(run)}/${page}`;
  return `#/${path}${query ? `?${query}` : ""}`;
}

/** Go there. `replace` leaves no entry in the browser's history: for what changes continuously (a filter as it is typed). */
export function go(change: Change, replace = false): void {
  const to = link(change);
  if (to === location.hash) return;
  if (replace) {
    history.replaceState(null, "", to);
    place.value = parse(to);
  } else {
    location.hash = to;
  }
}

/** One parameter of the address. */
export function param(name: string): string | undefined {
  return place.value.params[name];
}

// A report opened from disk may not be allowed to remember anything.
function remembered(key: string): string | null {
  try {
    return localStorage.getItem(`stepscope.${key}`);
  } catch {
    return null;
  }
}

function remember(key: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(`stepscope.${key}`);
    else localStorage.setItem(`stepscope.${key}`, value);
  } catch {
    /* see above */
  }
}

export type Theme = "light" | "dark";
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const systemTheme = signal<Theme>(systemDark.matches ? "dark" : "light");
systemDark.addEventListener("change", () => (systemTheme.value = systemDark.matches ? "dark" : "light"));
const chosenTheme = signal(remembered("theme") as Theme | null);

export function theme(): Theme {
  return chosenTheme.value ?? systemTheme.value;
}

export function setTheme(value: Theme): void {
  chosenTheme.value = value === systemTheme.value ? null : value;
  remember("theme", chosenTheme.value);
}

export type Language = "en" | "zh";
const chosenLanguage = signal((remembered("language") ?? (navigator.language.startsWith("zh") ? "zh" : "en")) as Language);

export function language(): Language {
  return chosenLanguage.value;
}

export function setLanguage(value: Language): void {
  chosenLanguage.value = value;
  remember("language", value);
}

export { remembered, remember };

effect(() => {
  document.documentElement.dataset.theme = theme();
  document.documentElement.lang = language() === "zh" ? "zh-CN" : "en";
});
