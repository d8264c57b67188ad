/** Operators by type. */
import { fetchTable, useTable } from "../data";
import { Spark } from "../parts/basics";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { param } from "../state";
import { strings } from "../strings";
import { Table } from "../table";
import { SelectedOperator } from "./selected";
import { selectRow, figures, Label, rowKey, shade, type ViewProps, withP95 } from "./columns";
import { useMemo } from "preact/hooks";

const text = strings("operators");

/** Rows by type; a type opens to its operators, an operator to its shapes. */
export function TypeView({
  mine,
  inFamily,
  device,
  wanted,
  tools,
  chips,
}: ViewProps & { mine: Table; inFamily: Set<string> }) {
  const t = text();
  const spread = useTable("durations", { by: "type", device });
  const steps = useTable("operator_steps", { device });
  const table = useMemo(
    () =>
      withP95(
        wanted ? mine.pick(mine.where((row) => inFamily.has(`${wanted} ${mine.str("type")[row]}`))) : mine,
        spread.data,
        ["type"],
      ),
    [mine, wanted, inFamily, spread.data],
  );
  const series = useMemo(() => {
    const groups = new Map<string, number[]>();
    const data = steps.data;
    if (data)
      for (let row = 0; row < data.rows; row++)
        if (!Number.isNaN(data.num("step")[row])) {
          const type = data.str("type")[row] ?? "";
          const values = groups.get(type) ?? [];
          values.push(data.num("self_ns")[row]);
          groups.set(type, values);
        }
    return groups;
  }, [steps.data]);
  const columns: Column[] = [
    {
      key: "type",
      label: t.type,
      as: "name",
      color: shade,
      width: "minmax(220px, 4.4fr)",
      show: (of, row) => <Label table={of} row={row} />,
    },
    ...figures(t, device),
    {
      key: "trend",
      label: t.trend,
      width: "72px",
      show: (of, row) => !of.has("name") && <Spark values={series.get(of.str("type")[row] ?? "") ?? []} zero />,
    },
  ];
  const below = async (of: Table, row: number) => {
    const type = of.str("type")[row];
    const shapes = await fetchTable("operators", { by_shape: true, device });
    const name = of.has("name") ? of.str("name")[row] : null;
    const scope = of.has("name") ? of.str("scope")[row] : null;
    const operators = name === null ? await fetchTable("operators", { device }) : null;
    const rows = operators?.where((item) => operators.str("type")[item] === type) ?? [];
    if (operators && rows.length > 1) {
      const spread = await fetchTable("durations", { by: "operator", device });
      return withP95(operators.pick(rows), spread, ["name", "type", "scope"]).with({
        level: new Array(rows.length).fill("operator"),
      });
    }
    const result = shapes.where(
      (item) =>
        shapes.str("type")[item] === type &&
        (name === null || (shapes.str("name")[item] === name && shapes.str("scope")[item] === scope)),
    );
    const spread = await fetchTable("durations", { by: "shape", device });
    return withP95(shapes.pick(result), spread, ["name", "type", "scope", "shapes", "dtypes"]).with({
      level: new Array(result.length).fill("shape"),
    });
  };
  return (
    <>
      <Grid
        id="types"
        table={table}
        columns={columns}
        search={["type"]}
        sort={device === "cpu" ? "-self_ns" : "-total_ns"}
        what={t.whatType}
        rowKey={rowKey}
        selected={param("sel")}
        onOpen={(of, row) => selectRow(of, row)}
        children={below}
        leaf={(of, row) => of.has("level") && of.str("level")[row] === "shape"}
        tools={tools}
        chips={chips}
        label={t.viewType}
      />
      <SelectedOperator table={table} device={device} />
    </>
  );
}
