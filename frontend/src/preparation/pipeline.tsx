/** The input pipeline: operators and queues, advice, and a table of operators. */
import { info, useTable } from "../data";
import { Card, Empty, Legend } from "../parts/basics";
import { type Column } from "../parts/grid_rows";
import { TableCard } from "../parts/table_card";
import { PageLink } from "../page_links";
import { go, param } from "../state";
import { Table } from "../table";
import { History } from "./history";
import { Picture } from "./picture";
import { VerdictChip } from "./verdict_chip";
import { messages, strings } from "../strings";

const text = strings("data");

function NoPipeline() {
  const t = text();
  const framework = info.value?.framework;
  return (
    <Card title={t.pipeTitle}>
      <Empty title={t.noPipe} height={110}>
        {framework === "mindspore" ? t.hostHowMindspore : framework === "pytorch" ? t.hostHowPytorch : t.hostHow}
      </Empty>
    </Card>
  );
}

/** Operators and queues as a picture, the history of the selected queue, and a table of operators. */
export function Pipeline({ table }: { table: Table }) {
  const t = text();
  const samples = useTable("queue_samples", {}, { skip: table.rows === 0 });
  if (table.rows === 0) return <NoPipeline />;
  const ids = table.num("op_id");
  const queued = table.where((row) => Number.isFinite(table.num("queue_share")[row]));
  const bottleneck = table.str("verdict").indexOf("bottleneck");
  // By default: the queue before the bottleneck, else the queue that the training reads.
  const before =
    bottleneck < 0 ? -1 : (queued.find((row) => table.num("parent")[row] === ids[bottleneck]) ?? bottleneck);
  const wanted = param("sel");
  const chosen = wanted === undefined ? (before >= 0 ? before : (queued[0] ?? -1)) : ids.indexOf(Number(wanted));
  const detail = param("view") === "pipeline";
  return (
    <>
      <Card
        title={t.pipeTitle}
        note={t.pipeNote}
        tools={
          <Legend
            of={[
              { label: t.filled, color: "var(--kind-compute)" },
              { label: t.free, color: "var(--grid)" },
            ]}
          />
        }
      >
        <Picture table={table} samples={samples.data} chosen={chosen} />
      </Card>
      <div class="two">
        {chosen >= 0 && <History table={table} row={chosen} asked={samples} />}
        <Todo table={table} />
      </div>
      {detail && <Operators table={table} chosen={chosen} />}
    </>
  );
}

/** The hint of an operator in the language of the page. */
function hintText(table: Table, row: number): string {
  return messages()[table.str("hint_code")[row] ?? ""] ?? "";
}

/** Hints of the analysis by operator. */
function Todo({ table }: { table: Table }) {
  const t = text();
  const rows = table.where((row) => !!table.str("hint")[row]);
  return (
    <Card
      title={t.todo}
      tools={
        <PageLink class="small" to={{ page: "cpu" }}>
          {t.toCpu}
        </PageLink>
      }
    >
      <div class="todo">
        {rows.map((row) => (
          <div key={row} class={table.str("verdict")[row] === "bottleneck" ? "" : "soft"}>
            <b>
              {table.str("op_type")[row]} <VerdictChip of={table.str("verdict")[row]} />
            </b>
            <span class="d2">{hintText(table, row)}</span>
          </div>
        ))}
        {!rows.length && <p class="d2">{t.todoNone}</p>}
        <p class="d3 small">{t.rulesPipe}</p>
      </div>
    </Card>
  );
}

function Operators({ table, chosen }: { table: Table; chosen: number }) {
  const t = text();
  const columns: Column[] = [
    { key: "op_id", label: t.id, as: "count", width: "56px" },
    { key: "op_type", label: t.op, as: "name" },
    { key: "workers", label: t.workersHead },
    { key: "queue_share", label: t.use, bar: true },
    { key: "queue_capacity", label: t.capacity },
    { key: "empty_share", label: t.emptyTime },
    { key: "full_share", label: t.fullTime },
    { key: "user_share", label: t.user, bar: true, color: () => "var(--kind-host)" },
    { key: "system_share", label: t.system },
    { key: "batch_ns", label: t.batch },
    {
      key: "verdict",
      label: t.verdict,
      as: "text",
      show: (data, row) => <VerdictChip of={data.str("verdict")[row]} />,
    },
    { key: "hint", label: t.hint, as: "text", width: "minmax(120px, 2fr)", show: hintText },
  ];
  return (
    <TableCard
      title={t.opsTitle}
      of={table}
      id="ops"
      columns={columns}
      what={t.operators}
      rowKey={(data, row) => data.raw("op_id", row)}
      selected={chosen < 0 ? null : table.raw("op_id", chosen)}
      onOpen={(data, row) => go({ params: { sel: data.raw("op_id", row) } }, true)}
      most={12}
    />
  );
}
