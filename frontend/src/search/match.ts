/** Items that match a search. */

export interface Item {
  group: "pages" | "steps" | "operators" | "kernels" | "runs" | "commands";
  key: string;
  name: string;
  figure: string;
  icon?: string;
  color?: string;
  code?: boolean;
  /** Further words to match. */
  also?: string;
  act: () => void;
  /** Where it is on the timeline. */
  timeline?: () => Promise<{ t0: number; t1: number; span?: string } | null>;
}

const SHOWN = 6;

const ORDER: Item["group"][] = ["pages", "steps", "operators", "kernels", "runs", "commands"];

interface Group {
  name: Item["group"];
  items: Item[];
  left: number;
}

/** The best matches by group; without a search, the first of each. */
export function bestMatches(items: Item[], find: string): Group[] {
  const words = find.toLowerCase().split(/\s+/).filter(Boolean);
  const scored = items
    .map((item) => ({ item, score: words.length ? score(item, words) : 1 }))
    .filter((entry) => entry.score > 0);
  const groups = ORDER.map((name) => {
    const mine = scored.filter((entry) => entry.item.group === name).sort((a, b) => b.score - a.score);
    const limit = !words.length && name === "pages" ? 20 : SHOWN;
    return {
      name,
      items: mine.slice(0, limit).map((entry) => entry.item),
      left: Math.max(0, mine.length - limit),
      best: mine[0]?.score ?? 0,
    };
  }).filter((group) => group.items.length);
  // The best match is first, so that Enter opens it.
  return words.length
    ? groups.sort((a, b) => b.best - a.best || ORDER.indexOf(a.name) - ORDER.indexOf(b.name))
    : groups;
}

/**
 * Every word must match: as it is, best as a whole part; else its letters in order. Equal matches are sorted by time.
 */
function score(item: Item, words: string[]): number {
  const name = `${item.name} ${item.also ?? ""}`.toLowerCase();
  let sum = 0;
  for (const word of words) {
    const place = placeOf(name, word);
    if (place > 0) sum += name.length === word.length + 1 ? 12 : place;
    else {
      const gaps = letters(name, word);
      if (gaps < 0) return 0;
      sum += 2 / (1 + gaps);
    }
  }
  return sum;
}

const SEPARATORS = /[\s:_./<>(),]/;

/** 11 if the word is a whole part of the name, 8 if a part starts with it, 5 if it is inside one, 0 if it is absent. */
function placeOf(name: string, word: string): number {
  let best = 0;
  for (let at = name.indexOf(word); at >= 0; at = name.indexOf(word, at + 1)) {
    const starts = at === 0 || SEPARATORS.test(name[at - 1]);
    const end = at + word.length;
    best = Math.max(best, !starts ? 5 : end === name.length || SEPARATORS.test(name[end]) ? 11 : 8);
  }
  return best;
}

/** The number of letters between those of the word, in order; -1 if absent or too far apart. */
function letters(name: string, word: string): number {
  let from = name.indexOf(word[0]);
  const begin = from;
  for (const letter of word) {
    from = name.indexOf(letter, from) + 1;
    if (!from) return -1;
  }
  const gaps = from - begin - word.length;
  return word.length < 3 || gaps > 2 * word.length + 4 ? -1 : gaps;
}
