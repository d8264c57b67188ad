// page: {"order": 40, "group": "performance", "icon": "operators", "en": "Operators", "zh": "算子", "needs": ["op", "kernel", "copy"]}
import { useTable } from "../data";
import { color } from "../colors";
import { Await, Card, Verdict } from "../parts/basics";
import { Grid, type Column } from "../parts/grid";
import { texts } from "../text";

const text = texts({ en: { title: "Operators", name: "Operator", calls: "Calls", total: "Total", share: "Share" }, zh: { title: "算子", name: "算子", calls: "次数", total: "总时间", share: "占比" } });

export default function Operators() {
  const t = text();
  const table = useTable("operator_types");
  const columns: Column[] = [
    { key: "type", label: t.name, as: "name", color: (table, row) => color(table.str("type")[row] ?? "", true) },
    { key: "device", label: "Device" },
    { key: "calls", label: t.calls },
    { key: "self_ns", label: t.total },
    { key: "share", label: t.share, bar: true, color: (table, row) => color(table.str("type")[row] ?? "", true) },
    { key: "avg_ns", label: "Mean" },
  ];
  return (
    <>
      <Verdict>{t.title}</Verdict>
      <Card title={t.title} flush>
        <Await of={table}>{(data) => <Grid id="types" table={data} columns={columns} search={["type"]} sort="-self_ns" label={t.title} />}</Await>
      </Card>
    </>
  );
}
