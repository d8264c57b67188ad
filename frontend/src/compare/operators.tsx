/** Operators, families, kernels, shapes, phases or modules of both sides: new, gone and changed ones. */
import type { ComponentChildren } from "preact";
import { token, type Family } from "../colors";
import type { Fetched } from "../data";
import { familyNames } from "../families";
import { Await, Card, Chip, Empty, Segmented } from "../parts/basics";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { go, param } from "../state";
import { messages, strings } from "../strings";
import { Table } from "../table";
import { Delta } from "./waterfall";

const text = strings("compare");

export const KEYS = ["operator", "family", "kernel", "shape", "phase", "module"] as const;
export type Key = (typeof KEYS)[number];
const STATES: Record<string, "stateNew" | "stateGone" | "stateChanged" | "stateNoise" | "stateMissing"> = {
  new: "stateNew",
  gone: "stateGone",
  changed: "stateChanged",
  "within noise": "stateNoise",
  "not recorded": "stateMissing",
};
const TONES: Record<string, "acc" | "warn" | "line"> = { new: "acc", gone: "acc", changed: "warn" };

export function chosenKey(): Key {
  return KEYS.find((key) => key === param("by")) ?? "operator";
}

export function Operators({ of, by }: { of: Fetched<Table>; by: Key }) {
  const t = text();
  return (
    <Card
      title={t.operators}
      note={by === "module" ? t.modulesNote : t.operatorsNote}
      tools={
        <Segmented
          label={t.by}
          value={by}
          choices={KEYS.map((id) => ({ id, label: t[id] }))}
          onChange={(id) => go({ params: { by: id } }, true)}
        />
      }
      flush
    >
      <Await of={of} rows={8}>
        {(table) =>
          table.rows ? (
            <Grid
              id="changes"
              table={named(table, by, t.none)}
              columns={columns(by)}
              search={["name", "operator"]}
              sort={by === "module" ? undefined : "-size_ns"}
              what={t.rowsWhat}
              label={t.operators}
            />
          ) : (
            <Empty title={t.noOperators}>{by === "module" || by === "shape" ? t.noOperatorsHow : undefined}</Empty>
          )
        }
      </Await>
    </Card>
  );
}

/** The table with names for rows without one, and the size of the change to sort by. */
function named(table: Table, by: Key, none: string): Table {
  const operator = table.str("operator");
  const name = table
    .str("name")
    .map((own) => (by === "family" && own ? familyNames()[own as Family] : own))
    .map((own, row) => own ?? (by === "kernel" || by === "shape" ? (operator[row] ?? none) : none));
  return table.with({ name, size_ns: table.num("change_ns").map(Math.abs) });
}

function columns(by: Key): Column[] {
  const t = text();
  const state = (table: Table, row: number): ComponentChildren => {
    const value = table.str("state")[row];
    if (!value) return <span class="d3">{t.stateUnknown}</span>;
    const label = t[STATES[value]];
    return value in TONES ? <Chip tone={TONES[value]}>{label}</Chip> : <span class="d3">{label}</span>;
  };
  const module = (table: Table, row: number): ComponentChildren => {
    const [path, depth] = [table.str("name")[row] ?? "", table.num("depth")[row]];
    return (
      <span class="mono" style={{ paddingLeft: `${(Math.max(1, depth) - 1) * 14}px` }} title={path}>
        {path.slice(path.lastIndexOf("/") + 1)}
      </span>
    );
  };
  const part = (table: Table, row: number): ComponentChildren => {
    const name = table.str("part")[row] ?? "";
    return <span class="d3">{messages()[`word:${name}`] ?? name}</span>;
  };
  const swatch = (table: Table, row: number) => `var(${token((table.str("family")[row] ?? "other") as Family)})`;
  return [
    by === "module"
      ? { key: "name", label: t.module, show: module, width: "minmax(220px, 3fr)" }
      : { key: "name", label: t[by], as: "name", ...(by !== "phase" && { color: swatch }) },
    ...(by === "kernel" || by === "shape" ? [{ key: "operator", label: t.operator, as: "name" } as Column] : []),
    ...(by === "phase" || by === "module"
      ? []
      : [{ key: "part", label: t.part, show: part, width: "minmax(90px, 1fr)" }]),
    { key: "a_ns", label: t.perStepA, why: t.notRecorded },
    { key: "b_ns", label: t.perStepB, why: t.notRecorded },
    {
      key: "change_ns",
      label: t.change,
      show: (table, row) => (
        <Delta
          by={table.num("change_ns")[row]}
          of={table.num("a_ns")[row]}
          good={(table.str("state")[row] ?? "") in TONES ? -1 : 0}
        />
      ),
      width: "minmax(140px, 1.4fr)",
    },
    { key: "share", label: t.ofDifference, as: "share" },
    { key: "a_calls", label: t.callsA, as: "count" },
    { key: "b_calls", label: t.callsB, as: "count" },
    { key: "calls_ns", label: t.byCalls, help: t.byCallsHelp, hide: true },
    { key: "a_total_ns", label: t.totalA, hide: true },
    { key: "b_total_ns", label: t.totalB, hide: true },
    { key: "error_ns", label: t.errorOf, hide: true },
    { key: "state", label: t.state, show: state, width: "minmax(110px, 1fr)" },
  ];
}
