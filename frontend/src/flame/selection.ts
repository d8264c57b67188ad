/** The selected frame in the address, by its path: the same in every run. */
import { useMemo, useRef } from "preact/hooks";
import { copyText } from "../parts/basics";
import { go, param } from "../state";
import { timelineOf } from "./details";
import { type Frames, type Matches, pathKeys, stackText } from "./tree";

export interface Selection {
  row: number;
  select: (row: number) => void;
  /** Select the next or the previous match. */
  next: (by: number) => void;
}

export function useSelection(frames: Frames | null, result: Matches | null): Selection {
  const keys = useMemo(() => (frames ? pathKeys(frames) : []), [frames]);
  const at = param("at");
  const row = at === undefined ? -1 : keys.indexOf(at);
  const select = (to: number) => go({ params: { at: to < 0 ? null : keys[to] } });
  const last = useRef(-1);
  return {
    row,
    select,
    next: (by) => {
      const rows = result ? Array.from(result.is.keys()).filter((item) => result.is[item]) : [];
      if (!rows.length) return;
      const current = rows.indexOf(row >= 0 ? row : last.current);
      last.current = rows[(current + by + rows.length + (current < 0 && by < 0 ? 1 : 0)) % rows.length];
      select(last.current);
    },
  };
}

/** Keys of a frame; whether the key was one of them. */
export function frameKeys(key: string, frames: Frames, row: number): boolean {
  if (key === "f") {
    document.dispatchEvent(new Event("flame-find"));
    return true;
  }
  if (row < 0) return false;
  if (key === "c") void copyText(stackText(frames, row));
  else if (key === "x" && frames.name[row] !== null) go({ params: { fn: frames.name[row], at: null } });
  else if (key === "t") {
    const place = timelineOf(frames, row);
    if (place) go(place);
  } else return false;
  return true;
}
