/** FLOPs by scope and by operator as tables. */
import { color } from "../colors";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { go, param } from "../state";
import { strings } from "../strings";
import { Table } from "../table";
import { useMemo } from "preact/hooks";

const text = strings("flops");

const FIGURES = (t: ReturnType<typeof text>): Column[] => [
  { key: "calls", label: t.count, width: "minmax(64px, .7fr)" },
  { key: "flops", label: t.flops, width: "minmax(96px, 1fr)" },
  { key: "share", label: t.share, bar: true, width: "minmax(120px, 1.5fr)" },
  { key: "time_ns", label: t.took },
  { key: "flops_per_s", label: t.rate, width: "minmax(104px, 1fr)" },
  { key: "utilization", label: t.utilization, width: "minmax(84px, 1fr)" },
];

export function ScopeTable({ data, root }: { data: Table; root: string }) {
  const t = text();
  const below = (above: string) => {
    const level = above ? above.split("/").length + 1 : 1;
    return data.pick(
      data.where(
        (row) =>
          data.num("depth")[row] === level && (above === "" || (data.str("scope")[row] ?? "").startsWith(`${above}/`)),
      ),
    );
  };
  const parents = useMemo(
    () =>
      new Set(
        data.str("scope").flatMap((scope) => (scope?.includes("/") ? [scope.slice(0, scope.lastIndexOf("/"))] : [])),
      ),
    [data],
  );
  const searched = (param("scopes.find") ?? "") !== "";
  const table = useMemo(
    () => (searched ? data.pick(data.where((row) => data.num("depth")[row] > 0)) : below(root)),
    [data, root, searched],
  );
  const columns: Column[] = [
    {
      key: "scope",
      label: t.scope,
      as: "name",
      width: "minmax(240px, 3fr)",
      show: (of, row) => (
        <span class="name mono" title={of.str("scope")[row] ?? ""}>
          <span class={`cut ${searched ? "tail" : ""}`}>
            <bdi>{searched ? of.str("scope")[row] : (of.str("scope")[row] ?? "").split("/").at(-1)}</bdi>
          </span>
        </span>
      ),
    },
    ...FIGURES(t),
    { key: "how", label: t.how, as: "value", hide: true },
    { key: "unknown_calls", label: t.unknownColumn, hide: true },
  ];
  return (
    <Grid
      id="scopes"
      table={table}
      columns={columns}
      search={["scope"]}
      sort="-flops"
      what={t.whatScopes}
      rowKey={(of, row) => of.str("scope")[row] ?? ""}
      children={(of, row) => below(of.str("scope")[row] ?? "")}
      leaf={(of, row) => !parents.has(of.str("scope")[row] ?? "")}
      label={t.byScope}
    />
  );
}

export function Operators({ data }: { data: Table }) {
  const t = text();
  const shade = (of: Table, row: number) => color(of.str("name")[row] ?? "", true);
  const columns: Column[] = [
    { key: "name", label: t.name, as: "name", color: shade, width: "minmax(220px, 3fr)" },
    { key: "device", label: t.device, as: "text", hide: true },
    ...FIGURES(t).map((column) => (column.bar ? { ...column, color: shade } : column)),
    { key: "precision", label: t.precision, as: "text", width: "minmax(72px, .8fr)" },
    { key: "how", label: t.how, as: "value", width: "minmax(96px, 1fr)" },
    { key: "unknown_calls", label: t.unknownColumn, hide: true },
    { key: "peak_source", label: t.source, as: "value", hide: true },
  ];
  return (
    <section class="card opcard">
      <Grid
        tools={<h2 class="gridtitle">{t.opsTitle}</h2>}
        id="ops"
        table={data}
        columns={columns}
        search={["name"]}
        sort="-flops"
        what={t.whatOps}
        rowKey={(of, row) => of.str("name")[row] ?? ""}
        onOpen={(of, row) =>
          go({ page: "operators", params: { tab: "cpu", sel: JSON.stringify([of.str("name")[row]]) } })
        }
        label={t.opsTitle}
      />
    </section>
  );
}
