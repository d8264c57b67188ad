/** Functions of the graph by self time: each opens its callers and callees. */
import { useMemo } from "preact/hooks";
import { useTable } from "../data";
import { PageLink } from "../page_links";
import { Card } from "../parts/basics";
import { Grid } from "../parts/grid";
import { source } from "../source";
import { go } from "../state";
import { strings } from "../strings";
import { Table } from "../table";
import { treeParams, type Choices } from "./choices";
import type { Figures } from "./details";
import { tintOf } from "./tints";

const text = strings("flame");

export function Functions({ of, all, figures }: { of: Choices; all: Table; figures: Figures }) {
  const t = text();
  const table = useMemo(() => perStep(all, figures), [all, figures.steps]);
  const color = (row: number) => tintOf(table.str("kind")[row] ?? "", table.str("name")[row]).fill;
  return (
    <Card
      title={t.functions}
      note={t.functionsNote}
      flush
      tools={
        of.by === "host" && (
          <>
            <PageLink to={{ page: "functions", params: { view: "paths" } }}>{t.paths}</PageLink>
            <PageLink to={{ page: "functions" }}>{t.allFunctions}</PageLink>
          </>
        )
      }
    >
      <Grid
        id="frames"
        table={table}
        columns={[
          { key: "name", label: t.name, as: "name", width: "minmax(220px, 4fr)" },
          { key: "kind", label: t.kind, as: "text", width: "minmax(76px, .8fr)" },
          { key: "calls", label: figures.steps ? t.callsPerStep : t.calls },
          { key: "self_ns", label: t.self },
          {
            key: "self_share",
            label: t.selfShare,
            as: "share",
            bar: true,
            color: (_: Table, row: number) => color(row),
            width: "minmax(120px, 1.4fr)",
          },
          { key: "total_ns", label: t.totalTime },
          { key: "share", label: t.share },
        ]}
        search={["name", "kind"]}
        sort="-self_ns"
        what={t.what}
        label={t.functions}
        height={table.rows > 14 ? "440px" : undefined}
        onOpen={source().isReport ? undefined : (of, row) => void go({ params: { fn: of.str("name")[row], at: null } })}
      />
    </Card>
  );
}

/** The functions of the whole tree, without the limits of what is drawn; null until they are there. */
export function useFunctions(of: Choices, per: { steps?: string }): Table | null {
  return useTable("flame_functions", { ...treeParams(of), ...per }).data ?? null;
}

/** The functions of the rank, per step. */
function perStep(all: Table, { steps }: Figures): Table {
  const per = steps || 1;
  const names = [...Array(all.rows).keys()];
  const numbers = (name: string) => Array.from(all.num(name));
  return Table.of({
    name: names.map((row) => all.str("name")[row]),
    kind: names.map((row) => all.str("kind")[row]),
    calls: numbers("calls").map((value) => Number((value / per).toPrecision(12))),
    self_ns: numbers("self_ns").map((value) => Math.round(value / per)),
    self_share: numbers("self_share"),
    total_ns: numbers("total_ns").map((value) => Math.round(value / per)),
    share: numbers("share"),
  });
}
