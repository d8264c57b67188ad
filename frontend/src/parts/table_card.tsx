/** A card that is a table. */
import type { Fetched } from "../data";
import type { Table } from "../table";
import { Await, Card } from "./basics";
import { Grid } from "./grid";
import type { GridProps } from "./grid_pages";
import type { ComponentChildren } from "preact";

interface TableCardProps extends Omit<GridProps, "table" | "label" | "height"> {
  title: string;
  note?: ComponentChildren;
  of: Table | Fetched<Table>;
  /** Rows that are visible without scrolling, with the head. */
  most?: number;
}

export function TableCard({ title, note, of, most, ...grid }: TableCardProps) {
  const rows = (table: Table) => (
    <Grid
      {...grid}
      table={table}
      label={title}
      height={most === undefined ? undefined : `${Math.min(most, table.rows + 1) * 28 + 4}px`}
    />
  );
  return (
    <Card title={title} note={note} flush>
      {"waiting" in of ? <Await of={of}>{rows}</Await> : rows(of)}
    </Card>
  );
}
