/** History of the selected queue, and the operators on both sides. */
import { useMemo } from "preact/hooks";
import type { Fetched } from "../data";
import { Await, Card, Empty, Facts, Legend } from "../parts/basics";
import { Share } from "../parts/quantity";
import { Series } from "../parts/series";
import { Table } from "../table";
import { fill, strings } from "../strings";
import * as units from "../units";

const text = strings("data");

/** History of the selected queue, and the operators on both sides. */
export function History({ table, row, asked }: { table: Table; row: number; asked: Fetched<Table> }) {
  const t = text();
  const id = table.num("op_id")[row];
  const above = table.num("op_id").indexOf(table.num("parent")[row]);
  const writer = table.str("op_type")[row] ?? "";
  const reader = above < 0 ? t.training : (table.str("op_type")[above] ?? "");
  const capacity = table.num("queue_capacity")[row];
  const side = (which: number) => {
    if (which < 0) return t.training;
    const workers = table.num("workers")[which];
    const counted = workers === 1 ? t.worker : fill(t.workersN, { count: units.count(workers).value });
    const user = table.num("user_share")[which];
    const share = units.text(units.share(user + table.num("system_share")[which]));
    const cpu = Number.isFinite(user) ? ` · ${fill(t.cpu, { share })}` : "";
    return `${table.str("op_type")[which]} · ${counted}${cpu}`;
  };
  return (
    <Card
      class="chosen"
      title={fill(t.intoQueue, { reader })}
      note={fill(t.queueNote, { writer, reader, places: Number.isFinite(capacity) ? capacity : "–" })}
      tools={<span class="d3 small">{fill(t.samples, { count: units.count(table.num("samples")[row]).value })}</span>}
    >
      <Await of={asked} rows={4}>
        {(samples) => (
          <Lines table={table} samples={samples} id={id} above={above} reader={reader} capacity={capacity} />
        )}
      </Await>
      <Facts
        of={[
          [
            t.mean,
            <>
              <Share of={table.num("queue_share")[row]} /> ({units.count(table.num("queue_depth")[row]).value})
            </>,
          ],
          [t.emptyTime, <Share of={table.num("empty_share")[row]} />],
          [t.fullTime, <Share of={table.num("full_share")[row]} />],
          [t.producer, side(row)],
          [t.consumer, side(above)],
        ]}
      />
    </Card>
  );
}

function Lines({
  table,
  samples,
  id,
  above,
  reader,
  capacity,
}: {
  table: Table;
  samples: Table;
  id: number;
  above: number;
  reader: string;
  capacity: number;
}) {
  const t = text();
  const made = useMemo(() => {
    const rows = samplesOf(samples, id);
    const x = Float64Array.from(rows, (row) => samples.num("at_ns")[row]);
    const depths = Float64Array.from(rows, (row) => samples.num("depth")[row]);
    const next = above < 0 ? [] : samplesOf(samples, table.num("op_id")[above]);
    // Both have samples at the same timestamps, or the second is dropped.
    const same = next.length === rows.length && next.length > 0;
    return { x, own: depths, next: same ? Float64Array.from(next, (row) => samples.num("depth")[row]) : null };
  }, [samples, id, above]);
  if (made.x.length < 2) return <Empty title={t.noSamples} height={100} />;
  const beyond = above < 0 ? -1 : table.num("op_id").indexOf(table.num("parent")[above]);
  const lines = [
    {
      label: fill(t.depthLine, { reader }),
      values: made.own,
      color: "--kind-compute",
      area: true,
      stepped: true as const,
    },
    ...(made.next
      ? [
          {
            label: fill(t.nextLine, { next: beyond < 0 ? t.training : (table.str("op_type")[beyond] ?? "") }),
            values: made.next,
            color: "--kind-wait",
            stepped: true as const,
          },
        ]
      : []),
  ];
  return (
    <>
      <Legend of={lines.map((line) => ({ label: line.label, color: `var(${line.color})` }))} />
      <Series
        x={made.x}
        lines={lines}
        as="count"
        height={140}
        top={Number.isFinite(capacity) ? capacity : undefined}
        label={fill(t.intoQueue, { reader })}
      />
    </>
  );
}

/**
 * The samples of one operator's queue. If it is also sampled when batches are taken, the samples of the operator count.
 */
export function samplesOf(samples: Table, id: number): number[] {
  const rows = samples.where((row) => samples.num("op_id")[row] === id);
  const ownRows = rows.filter((row) => samples.str("queue")[row]?.startsWith("operator "));
  return ownRows.length ? ownRows : rows;
}
