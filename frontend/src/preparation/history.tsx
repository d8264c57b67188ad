/** How the chosen queue filled and emptied, and what stands on both sides of it. */
import { useMemo } from "preact/hooks";
import type { Asked } from "../data";
import { Await, Card, Empty, Facts, Legend, Share } from "../parts/basics";
import { Series } from "../parts/series";
import { Table } from "../table";
import { fill } from "../text";
import * as units from "../units";
import { text } from "./words";

/** How the chosen queue filled and emptied, and what stands on both sides of it. */
export function History({ table, row, asked }: { table: Table; row: number; asked: Asked<Table> }) {
  const t = text();
  const id = table.num("op_id")[row];
  const above = table.num("op_id").indexOf(table.num("parent")[row]);
  const writer = table.str("op_type")[row] ?? "";
  const reader = above < 0 ? t.training : (table.str("op_type")[above] ?? "");
  const capacity = table.num("queue_capacity")[row];
  const side = (which: number) => which < 0 ? t.training : `${table.str("op_type")[which]} · ${table.num("workers")[which] === 1 ? t.worker : fill(t.workersN, { count: units.count(table.num("workers")[which]).value })}${Number.isFinite(table.num("user_share")[which]) ? ` · ${fill(t.cpu, { share: units.text(units.share(table.num("user_share")[which] + table.num("system_share")[which])) })}` : ""}`;
  return (
    <Card class="chosen" title={fill(t.intoQueue, { reader })} note={fill(t.queueNote, { writer, reader, places: Number.isFinite(capacity) ? capacity : "–" })} tools={<span class="d3 small">{fill(t.samples, { count: units.count(table.num("samples")[row]).value })}</span>}>
      <Await of={asked} rows={4}>
        {(samples) => <Lines table={table} samples={samples} id={id} above={above} reader={reader} capacity={capacity} />}
      </Await>
      <Facts
        of={[
          [t.mean, <><Share of={table.num("queue_share")[row]} /> ({units.count(table.num("queue_depth")[row]).value})</>],
          [t.emptyTime, <Share of={table.num("empty_share")[row]} />],
          [t.fullTime, <Share of={table.num("full_share")[row]} />],
          [t.producer, side(row)],
          [t.consumer, side(above)],
        ]}
      />
    </Card>
  );
}

function Lines({ table, samples, id, above, reader, capacity }: { table: Table; samples: Table; id: number; above: number; reader: string; capacity: number }) {
  const t = text();
  const made = useMemo(() => {
    const rows = samplesOf(samples, id);
    const x = Float64Array.from(rows, (row) => samples.num("at_ns")[row]);
    const own = Float64Array.from(rows, (row) => samples.num("depth")[row]);
    const next = above < 0 ? [] : samplesOf(samples, table.num("op_id")[above]);
    // Both are samples of the same moments, or the second is left out.
    const same = next.length === rows.length && next.length > 0;
    return { x, own, next: same ? Float64Array.from(next, (row) => samples.num("depth")[row]) : null };
  }, [samples, id, above]);
  if (made.x.length < 2) return <Empty title={t.noSamples} height={100} />;
  const beyond = above < 0 ? -1 : table.num("op_id").indexOf(table.num("parent")[above]);
  const lines = [
    { label: fill(t.depthLine, { reader }), values: made.own, color: "--kind-compute", area: true, stepped: true as const },
    ...(made.next ? [{ label: fill(t.nextLine, { next: beyond < 0 ? t.training : (table.str("op_type")[beyond] ?? "") }), values: made.next, color: "--kind-wait", stepped: true as const }] : []),
  ];
  return (
    <>
      <Legend of={lines.map((line) => ({ label: line.label, color: `var(${line.color})` }))} />
      <Series x={made.x} lines={lines} as="count" height={140} top={Number.isFinite(capacity) ? capacity : undefined} label={fill(t.intoQueue, { reader })} />
    </>
  );
}

/** The samples of one operator's queue. Where it is also sampled as batches are taken, the operator's own samples count. */
export function samplesOf(samples: Table, id: number): number[] {
  const rows = samples.where((row) => samples.num("op_id")[row] === id);
  const own = rows.filter((row) => samples.str("queue")[row]?.startsWith("operator "));
  return own.length ? own : rows;
}
