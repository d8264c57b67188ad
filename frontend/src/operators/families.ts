/** Time by family. */
import { Table } from "../table";

export interface Sum {
  key: string;
  label: string;
  value: number;
  calls: number;
  share: number;
  color: string;
}

export function familySums(
  table: Table,
  key: (row: number) => string,
  label: (key: string) => string,
  shade: (key: string) => string,
): Sum[] {
  const groups = new Map<string, Sum>();
  const time = table.num("self_ns"),
    calls = table.num("calls"),
    share = table.num("share");
  for (let row = 0; row < table.rows; row++) {
    const name = key(row);
    let item = groups.get(name);
    if (!item)
      groups.set(
        name,
        (item = {
          key: name,
          label: label(name),
          value: 0,
          calls: 0,
          share: 0,
          get color() {
            return shade(name);
          },
        }),
      );
    item.value += time[row];
    item.calls += calls[row];
    item.share += share[row];
  }
  return [...groups.values()].sort((a, b) => b.value - a.value);
}
