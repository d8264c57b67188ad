/** Functions of the graph by self time: each opens its callers and callees. */
import { useMemo } from "preact/hooks";
import { PageLink } from "../page_links";
import { Card } from "../parts/basics";
import { Grid } from "../parts/grid";
import { source } from "../source";
import { go } from "../state";
import { strings } from "../strings";
import { Table } from "../table";
import type { Choices } from "./choices";
import type { Figures } from "./details";
import { tintOf } from "./tints";
import type { Frames } from "./tree";

const text = strings("flame");

export function Functions({ of, frames, figures }: { of: Choices; frames: Frames; figures: Figures }) {
  const t = text();
  const table = useMemo(() => totals(frames, figures), [frames, figures.steps, figures.whole]);
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

/** Frames by name: a frame inside another of its name is a part of that one. Merged frames have no name. */
function totals(frames: Frames, { steps, whole }: Figures): Table {
  const index = new Map<string, number>();
  const rows: { name: string; kind: string; calls: number; self: number; total: number }[] = [];
  for (let row = 0; row < frames.count; row++) {
    const name = frames.name[row];
    if (name === null) continue;
    const key = `${frames.kind[row]}\n${name}`;
    let at = index.get(key);
    if (at === undefined) {
      index.set(key, (at = rows.length));
      rows.push({ name, kind: frames.kind[row], calls: 0, self: 0, total: 0 });
    }
    rows[at].calls += frames.calls[row];
    rows[at].self += frames.self[row];
    let above = frames.parent[row];
    while (above >= 0 && (frames.name[above] !== name || frames.kind[above] !== frames.kind[row]))
      above = frames.parent[above];
    if (above < 0) rows[at].total += frames.total[row];
  }
  const per = steps || 1;
  return Table.of({
    name: rows.map((row) => row.name),
    kind: rows.map((row) => row.kind),
    calls: rows.map((row) => Number((row.calls / per).toPrecision(12))),
    self_ns: rows.map((row) => Math.round(row.self / per)),
    self_share: rows.map((row) => row.self / whole),
    total_ns: rows.map((row) => Math.round(row.total / per)),
    share: rows.map((row) => row.total / whole),
  });
}
