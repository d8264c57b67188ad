/** Transfers between ranks in a step. */
import { Card } from "../parts/basics";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { link } from "../state";
import { strings } from "../strings";
import { Table } from "../table";
import { useMemo } from "preact/hooks";

const text = strings("steps");

/** One transfer between ranks, relative to the start of its step. */
export interface Transfer {
  stream: string;
  name: string;
  start: number;
  dur: number;
  hidden: number;
  exposed: number;
  bytes: number;
  at: number;
}

export function meanTransfers(table: Table | null): Transfer[] {
  if (!table) return [];
  const [start, dur, hidden, exposed, bytes] = ["offset_ns", "dur_ns", "overlapped_ns", "exposed_ns", "bytes"].map(
    (name) => table.num(name),
  );
  return table.str("name").map((name, row) => ({
    stream: table.str("stream")[row] ?? "",
    name: name ?? "",
    start: start[row],
    dur: dur[row],
    hidden: hidden[row],
    exposed: exposed[row],
    bytes: bytes[row],
    at: NaN,
  }));
}

export function stepTransfers(table: Table | null, trace: Table, at: number): Transfer[] {
  if (!table) return [];
  const [step, begin] = [trace.num("step")[at], trace.num("start_ns")[at]];
  const [start, dur, hidden, bytes] = ["start_ns", "dur_ns", "overlapped_ns", "bytes"].map((name) => table.num(name));
  return table
    .where((row) => table.num("step")[row] === step)
    .map((row) => ({
      stream: table.str("stream")[row] ?? "",
      name: table.str("name")[row] ?? "",
      start: start[row] - begin,
      dur: dur[row],
      hidden: hidden[row],
      exposed: dur[row] - hidden[row],
      bytes: bytes[row],
      at: start[row],
    }));
}

/** Exposed communication of the step: simultaneous transfers count once. */
export function exposedTime(overlap: Table | null, step: number): number {
  const row = overlap ? overlap.num("step").indexOf(step) : -1;
  return row < 0 ? 0 : overlap!.num("exposed_ns")[row];
}

export function TransferTable({ transfers, note }: { transfers: Transfer[]; note: string }) {
  const t = text();
  const table = useMemo(() => {
    const column = (of: (item: Transfer) => number) => Float64Array.from(transfers, of);
    return transfersTable(transfers, column);
  }, [transfers]);
  const columns: Column[] = [
    { key: "stream", label: t.stream, as: "name", width: "minmax(120px, 1.4fr)" },
    { key: "name", label: t.name, as: "name" },
    { key: "offset_ns", label: t.starts },
    { key: "dur_ns", label: t.takes },
    { key: "bytes", label: t.bytes },
    { key: "overlapped_share", label: t.hidden },
    { key: "exposed_ns", label: t.exposedHead, bar: true, color: () => "var(--kind-communication)" },
    {
      key: "timeline",
      label: "",
      width: "112px",
      show: (data, row) =>
        !Number.isFinite(data.num("at")[row]) ? (
          <a href={link({ page: "communication", params: { "ops.find": data.str("name")[row] } })}>
            {t.toCommunication}
          </a>
        ) : (
          <a
            href={link({
              page: "timeline",
              params: {
                t0: Math.round(data.num("at")[row]),
                t1: Math.round(data.num("at")[row] + data.num("dur_ns")[row]),
              },
            })}
          >
            {t.timeline}
          </a>
        ),
    },
  ];
  return (
    <Card title={t.transfers} note={note} flush>
      <Grid
        id="transfers"
        table={table}
        columns={columns}
        what={t.whatTransfers}
        search={["name", "stream"]}
        sort="-dur_ns"
        label={t.transfers}
        height={`${Math.min(10, transfers.length + 1) * 28 + 4}px`}
      />
    </Card>
  );
}

function transfersTable(transfers: Transfer[], column: (of: (item: Transfer) => number) => Float64Array) {
  return Table.of({
    stream: transfers.map((item) => item.stream),
    name: transfers.map((item) => item.name),
    offset_ns: column((item) => item.start),
    dur_ns: column((item) => item.dur),
    bytes: column((item) => item.bytes),
    overlapped_share: column((item) => item.hidden / item.dur),
    exposed_ns: column((item) => item.exposed),
    at: column((item) => item.at),
  });
}
