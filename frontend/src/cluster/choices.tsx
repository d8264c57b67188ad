/** What the page groups by and which figure it shows: both are in the address. */
import { go, param } from "../state";
import { Segmented } from "../parts/basics";
import { strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";

const text = strings("cluster");

export const DIMENSIONS = ["dp", "tp", "pp", "cp", "ep"] as const;
const GROUPINGS = ["rank", "host", ...DIMENSIONS] as const;
export type Grouping = (typeof GROUPINGS)[number];

/** Figures of the matrix, with the kind of time that their color names. */
export const FIGURES = [
  { key: "own_ns", color: "--kind-compute" },
  { key: "step_ns", color: "--kind-compute" },
  { key: "compute_ns", color: "--kind-compute" },
  { key: "input_ns", color: "--kind-wait" },
  { key: "collection_ns", color: "--kind-host" },
  { key: "host_ns", color: "--kind-host" },
  { key: "exposed_ns", color: "--kind-communication" },
  { key: "wait_ns", color: "--kind-wait" },
  { key: "transit_ns", color: "--kind-communication" },
  { key: "free_ns", color: "--kind-host" },
] as const;
export type Figure = (typeof FIGURES)[number];

/** The groupings that the places of the ranks allow. */
export function groupings(places: Table): Grouping[] {
  return GROUPINGS.filter((name) => name === "rank" || new Set(known(places, name)).size > 1);
}

function known(places: Table, name: Grouping): (string | number | null)[] {
  return name === "host" ? places.str("host").filter(Boolean) : Array.from(places.num(name)).filter(Number.isFinite);
}

export function grouping(places: Table): Grouping {
  const asked = param("by") as Grouping | undefined;
  return asked && groupings(places).includes(asked) ? asked : "rank";
}

export function GroupChoice({ places }: { places: Table }) {
  const t = text();
  const choices = groupings(places);
  if (choices.length < 2) return null;
  return (
    <Segmented
      choices={choices.map((name) => ({ id: name, label: t[`by_${name}`] }))}
      value={grouping(places)}
      onChange={(name) => go({ params: { by: name === "rank" ? null : name, sel: null } }, true)}
      label={t.groupBy}
    />
  );
}

/** The selected rank and step: "3:152"; both may be missing. */
export function selection(): { rank: number | null; step: number | null } {
  const [rank, step] = (param("sel") ?? "").split(":");
  return { rank: rank ? Number(rank) : null, step: step ? Number(step) : null };
}

export function select(rank: number | null, step: number | null): void {
  go({ params: { sel: rank === null && step === null ? null : `${rank ?? ""}:${step ?? ""}` } }, true);
}

/** The label of a row of the matrix: "rank 3", "host a", "PP 2". */
export function rowName(by: Grouping, label: string): string {
  const t = text();
  return by === "rank" ? `${t.rank} ${label}` : by === "host" ? label : `${by.toUpperCase()} ${label}`;
}

export const number = (value: number) => units.count(value).value;
