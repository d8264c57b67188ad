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
  const found = new Map<string, Sum>();
  const time = table.num("self_ns"),
    calls = table.num("calls"),
    share = table.num("share");
  for (let row = 0; row < table.rows; row++) {
    const name = key(row);
    let one = found.get(name);
    if (!one)
      found.set(
        name,
        (one = {
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
    one.value += time[row];
    one.calls += calls[row];
    one.share += share[row];
  }
  return [...found.values()].sort((a, b) => b.value - a.value);
}
