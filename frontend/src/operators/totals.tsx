/** Totals by name, of a recording without operators. */
import { approve } from "../approval";
import { color } from "../colors";
import { useTable } from "../data";
import { Await, Empty } from "../parts/basics";
import type { Column } from "../parts/grid_rows";
import { TableCard } from "../parts/table_card";
import { source } from "../source";
import { go } from "../state";
import { fill, Sentence, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { useVerdict, VerdictOf } from "../verdict";

const text = strings("operators");

/** Totals of all spans by name, for a recording whose spans are no operators. */
export function Totals() {
  const t = text();
  const totals = useTable("totals");
  const verdict = useVerdict("operators");
  const how = <Sentence template={t.noneHow} flag={<span class="mono">stepscope run</span>} />;
  if (!totals.data?.rows)
    return (
      <>
        <VerdictOf of={verdict.data} />
        <Await of={totals}>{() => <Empty title={t.none}>{how}</Empty>}</Await>
      </>
    );
  const table = totals.data;
  const columns: Column[] = [
    {
      key: "name",
      label: t.byName,
      as: "name",
      color: (of, row) => color(of.str("name")[row] ?? ""),
      width: "minmax(220px, 4fr)",
    },
    { key: "kind", label: t.kind, as: "text", width: "minmax(80px, 1fr)" },
    { key: "category", label: t.category, as: "text", width: "minmax(80px, 1fr)" },
    { key: "calls", label: t.count },
    { key: "total_ns", label: t.total, bar: true, color: () => "var(--kind-host)" },
    { key: "self_ns", label: t.self },
    { key: "avg_ns", label: t.mean },
    { key: "min_ns", label: t.min },
    { key: "max_ns", label: t.max },
  ];
  const spansOf = (of: Table, row: number) =>
    `select name, start_ns, dur_ns, self_ns, step, span, args from spans where kind = '${of.str("kind")[row]}' and name = '${(of.str("name")[row] ?? "").replaceAll("'", "''")}' order by start_ns`;
  return (
    <>
      <VerdictOf
        of={verdict.data}
        facts={[
          fill(t.spans, { count: units.count(table.num("calls").reduce((all, item) => all + item, 0)).value }),
          how,
        ]}
      />
      <TableCard
        title={t.totalsTitle}
        note={t.totalsNote}
        of={table}
        id="totals"
        columns={columns}
        search={["name", "kind", "category"]}
        sort="-total_ns"
        what={t.whatNames}
        onOpen={
          source().isReport
            ? undefined
            : (of, row) => {
                approve(spansOf(of, row));
                go({ page: "query", params: { sql: spansOf(of, row) } });
              }
        }
      />
    </>
  );
}
