/** Operators by name and by scope. */
import { useTable } from "../data";
import { Await, Empty, Swatch } from "../parts/basics";
import { Grid } from "../parts/grid";
import { MOST } from "../parts/grid_pages";
import type { Column } from "../parts/grid_rows";
import { shapeText } from "../parts/shapes";
import { param } from "../state";
import { Sentence, strings } from "../strings";
import { Table } from "../table";
import { SelectedOperator } from "./selected";
import { selectRow, figures, filterFamily, rowKey, shade, type ViewProps, withP95 } from "./columns";
import { useMemo } from "preact/hooks";

const text = strings("operators");

export function AllView({ device, wanted, tools, chips }: ViewProps) {
  const t = text();
  const from = { name: "operators" as const, params: { device, limit: MOST } };
  const fetched = useTable(from.name, from.params);
  const spread = useTable("durations", { by: "operator", device, limit: MOST });
  const table = useMemo(
    () => fetched.data && withP95(filterFamily(fetched.data, wanted), spread.data, ["name", "type", "scope"]),
    [fetched.data, wanted, spread.data],
  );
  const same = useMemo(
    () => !table || table.str("name").every((name, row) => name === table.str("type")[row]),
    [table],
  );
  const scoped = !!table && !table.blank("scope");
  const columns: Column[] = [
    { key: "name", label: t.name, as: "name", color: shade, width: "minmax(200px, 2.6fr)" },
    { key: "type", label: t.type, as: "name", width: "minmax(120px, 1.4fr)", hide: same },
    {
      key: "scope",
      label: t.scope,
      as: "name",
      width: "minmax(140px, 2.4fr)",
      hide: !scoped,
      show: (of, row) => (
        <span class="name mono" title={of.str("scope")[row] ?? ""}>
          <span class="cut tail">
            <bdi>{of.str("scope")[row] ?? "–"}</bdi>
          </span>
        </span>
      ),
    },
    ...figures(t, device),
    { key: "device_ns", label: t.deviceTime, hide: device !== "cpu" },
    { key: "flops", label: t.flops, hide: true },
    {
      key: "shapes",
      label: t.shapes,
      hide: true,
      as: "name",
      show: (of, row) => (
        <span class="name mono" title={of.str("shapes")[row] ?? ""}>
          <span class="cut">{of.str("shapes")[row] ? shapeText(of.str("shapes")[row]!) : "–"}</span>
        </span>
      ),
    },
    { key: "shape_count", label: t.shapeCount, hide: true },
  ];
  return (
    <Await of={fetched} rows={12}>
      {() =>
        table && (
          <>
            <Grid
              id="all"
              from={from}
              table={table}
              columns={columns}
              search={["name", "type", "scope", "shapes"]}
              sort={device === "cpu" ? "-self_ns" : "-total_ns"}
              what={t.find}
              rowKey={rowKey}
              selected={param("sel")}
              onOpen={selectRow}
              tools={tools}
              chips={chips}
              label={t.viewAll}
            />
            <SelectedOperator table={table} device={device} />
          </>
        )
      }
    </Await>
  );
}

/** The tree of scopes: each row is the sum of the operators in and below it. */
export function ScopeView({ device, wanted, tools, chips }: ViewProps) {
  const t = text();
  const fetched = useTable("operators", { device });
  const nodes = useMemo(() => fetched.data && tree(filterFamily(fetched.data, wanted)), [fetched.data, wanted]);
  const searched = (param("scopes.find") ?? "") !== "" || (param("scopes.where") ?? "") !== "";
  const columns: Column[] = [
    {
      key: "label",
      label: t.scope,
      as: "name",
      width: "minmax(260px, 3.6fr)",
      show: (of, row) => (
        <span class="name mono" title={of.str("scope")[row] ?? ""}>
          {of.str("type")[row] && <Swatch color={shade(of, row)} />}
          <span class={`cut ${searched ? "tail" : ""}`}>
            <bdi>{searched ? (of.str("scope")[row] ?? of.str("label")[row]) : of.str("label")[row]}</bdi>
          </span>
        </span>
      ),
    },
    { key: "calls", label: t.count, width: "minmax(64px, .7fr)" },
    ...(device === "cpu" ? [{ key: "self_ns", label: t.self }] : [{ key: "total_ns", label: t.total }]),
    {
      key: "share",
      label: t.share,
      bar: true,
      color: (of, row) => (of.str("type")[row] ? shade(of, row) : "var(--kind-compute)"),
      width: "minmax(120px, 1.5fr)",
    },
    { key: "avg_ns", label: t.mean },
  ];
  return (
    <Await of={fetched} rows={12}>
      {() =>
        nodes &&
        (nodes.scoped ? (
          <>
            <Grid
              id="scopes"
              table={searched ? nodes.flat() : nodes.root}
              columns={columns}
              search={["scope", "label"]}
              sort={device === "cpu" ? "-self_ns" : "-total_ns"}
              what={t.whatScope}
              rowKey={(of, row) => (of.str("type")[row] ? rowKey(of, row) : (of.str("scope")[row] ?? ""))}
              selected={param("sel")}
              children={(of, row) => nodes.below(of.str("scope")[row] ?? "")}
              leaf={(of, row) => of.str("type")[row] !== null}
              onOpen={(of, row) => of.str("type")[row] !== null && selectRow(of, row)}
              tools={tools}
              chips={chips}
              label={t.viewScope}
            />
            <SelectedOperator table={fetched.data!} device={device} />
          </>
        ) : (
          <>
            <div class="gridtools">
              {tools}
              {chips}
            </div>
            <Empty title={t.noScopes}>
              <Sentence template={t.noScopesHow} flag={<span class="mono">stepscope run</span>} />
            </Empty>
          </>
        ))
      }
    </Await>
  );
}

function tree(table: Table): { scoped: boolean; root: Table; flat: () => Table; below: (scope: string) => Table } {
  const scope = table.str("scope");
  const inside = new Map<string, Map<string, number[]>>(); // below a scope: each next part, and the rows in it
  const direct = new Map<string, number[]>();
  const put = (map: Map<string, number[]>, key: string, row: number) =>
    void (map.get(key)?.push(row) ?? map.set(key, [row]));
  for (let row = 0; row < table.rows; row++) {
    const parts = scope[row]?.split("/") ?? [];
    put(direct, parts.join("/"), row);
    for (let level = 0; level < parts.length; level++) {
      const above = parts.slice(0, level).join("/");
      if (!inside.has(above)) inside.set(above, new Map());
      put(inside.get(above)!, parts[level], row);
    }
  }
  const add = (rows: number[], name: string) => rows.reduce((all, row) => all + table.num(name)[row], 0);
  const below = (above: string): Table => made(above, [...(inside.get(above) ?? [])], direct.get(above) ?? []);
  // All scopes at once, for the search.
  let all: Table | null = null;
  const flat = () =>
    (all ??= made(
      "",
      [...inside].flatMap(([above, parts]) =>
        [...parts].map(([part, rows]): [string, number[]] => [above ? `${above}/${part}` : part, rows]),
      ),
      [],
    ));
  const made = (above: string, parts: [string, number[]][], direct: number[]): Table => {
    const rows = (of: (rows: number[]) => number, item: (row: number) => number) => [
      ...parts.map(([, found]) => of(found)),
      ...direct.map(item),
    ];
    const sum = (name: string) =>
      rows(
        (result) => add(result, name),
        (row) => table.num(name)[row],
      );
    const words = (of: (part: string) => string | null, column: string) => [
      ...parts.map(([part]) => of(part)),
      ...direct.map((row) => table.str(column)[row]),
    ];
    return Table.of({
      label: words((part) => part, "name"),
      scope: words((part) => (above ? `${above}/${part}` : part), "scope"),
      name: words(() => null, "name"),
      type: words(() => null, "type"),
      calls: sum("calls"),
      total_ns: sum("total_ns"),
      self_ns: sum("self_ns"),
      share: sum("share"),
      avg_ns: rows(
        (result) => add(result, "total_ns") / add(result, "calls"),
        (row) => table.num("avg_ns")[row],
      ),
    });
  };
  return { scoped: inside.size > 0, root: below(""), flat, below };
}
