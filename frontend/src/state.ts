/** State of the window: the place in its address, theme and language. */
import { effect, signal } from "@preact/signals";
import { isPlace, linkFrom, parse, type Change, type Place } from "./place";

export const place = signal<Place>(parse(location.hash));
window.addEventListener("hashchange", () => {
  if (isPlace(location.hash)) place.value = parse(location.hash);
  else {
    // The id of an element, such as #main of the skip link: the place and the address stay.
    const element = document.getElementById(location.hash.slice(1));
    history.replaceState(null, "", link({}));
    element?.focus();
  }
});

/** The address after a change of the present place. */
export function link(change: Change): string {
  return linkFrom(place.value, change);
}

/** Go to an address. `replace` adds no history entry: for continuous changes, such as a filter while typing. */
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

// A report opened from disk may have no storage.
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
    /* no storage */
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
const chosenLanguage = signal(
  (remembered("language") ?? (navigator.language.startsWith("zh") ? "zh" : "en")) as Language,
);

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
