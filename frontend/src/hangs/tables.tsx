/** Tables of the ranks and of their last calls. */
import { rank, useTable } from "../data";
import { Chip } from "../parts/basics";
import type { Column } from "../parts/grid_rows";
import { TableCard } from "../parts/table_card";
import { go } from "../state";
import { fill, strings } from "../strings";
import type { Table } from "../table";

const text = strings("hangs");
const TONES: Record<string, "bad" | "warn" | undefined> = { cause: "bad", "no dump": "warn" };

export function RankRows({ ranks }: { ranks: Table }) {
  const t = text();
  const roles: Record<string, string> = { cause: t.cause, waiting: t.waiting, "no dump": t.noDump, clear: t.clear };
  const role = (table: Table, row: number) => table.str("role")[row] ?? "";
  const columns: Column[] = [
    { key: "rank", label: t.rank, as: "count", width: "64px" },
    {
      key: "role",
      label: t.role,
      width: "110px",
      show: (table, row) => <Chip tone={TONES[role(table, row)]}>{roles[role(table, row)]}</Chip>,
    },
    { key: "why", label: t.why, as: "value", width: "120px" },
    { key: "operation", label: t.operation, as: "name", width: "minmax(140px, 1.4fr)" },
    { key: "number", label: t.number, as: "count", width: "90px" },
    { key: "description", label: t.group, as: "name", width: "minmax(140px, 2fr)" },
    { key: "group", label: t.groupName, as: "name", hide: true },
    { key: "line", label: t.line, as: "name", width: "minmax(120px, 2fr)", hide: ranks.blank("line") },
    { key: "waiting", label: t.waitingRanks, as: "count", width: "110px" },
    { key: "waits_for", label: t.waitsFor, as: "name", width: "100px" },
    { key: "pending", label: t.pending, as: "count", width: "100px" },
    { key: "last_operation", label: t.lastCall, as: "name", width: "minmax(120px, 1.2fr)" },
    { key: "last_ns", label: t.lastAt, width: "100px" },
    { key: "last_line", label: t.lastLine, as: "name", hide: true },
  ];
  return (
    <TableCard
      title={t.ranks}
      note={t.ranksNote}
      of={ranks}
      id="hang-ranks"
      columns={columns}
      what={t.rowsRanks}
      sort="role"
      search={["operation", "description", "role", "line"]}
      rowKey={(table, row) => table.raw("rank", row)}
      onOpen={(table, row) => go({ params: { rank: table.raw("rank", row) } })}
      most={18}
    />
  );
}

/** What the selected rank called, the last call first. */
export function Calls() {
  const t = text();
  const asked = useTable("recorded_collectives", {}, { allSteps: true });
  const columns: Column[] = [
    { key: "record", label: t.record, as: "count", width: "90px" },
    { key: "operation", label: t.operation, as: "name", width: "minmax(140px, 1.4fr)" },
    { key: "number", label: t.number, as: "count", width: "90px" },
    { key: "description", label: t.group, as: "name", width: "minmax(140px, 2fr)" },
    { key: "peer", label: t.peer, as: "count", width: "80px" },
    { key: "state", label: t.state, as: "value", width: "100px" },
    { key: "input_shapes", label: t.shapes, as: "name", width: "minmax(120px, 1fr)" },
    { key: "input_dtypes", label: t.types, as: "name", width: "110px" },
    { key: "thread", label: t.thread, as: "name", hide: true },
    { key: "line", label: t.line, as: "name", width: "minmax(140px, 2fr)" },
  ];
  return (
    <TableCard
      title={fill(t.calls, { rank: String(rank() ?? "") })}
      note={t.callsNote}
      of={asked}
      id="hang-calls"
      columns={columns}
      what={t.rowsCalls}
      search={["operation", "description", "line", "state"]}
      sort="-record"
      most={18}
    />
  );
}
