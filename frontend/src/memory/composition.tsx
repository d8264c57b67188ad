/** Live memory by category and operator. */
import { color } from "../colors";
import { InlineBar, Swatch } from "../parts/basics";
import { Bytes, Count, Time } from "../parts/quantity";
import { fill, strings } from "../strings";
import type { Table } from "../table";
import { useMemo } from "preact/hooks";

const text = strings("memory");

export function Moment({ table, row }: { table: Table; row: number }) {
  const t = text();
  const value = (name: string) => table.num(name)[row];
  const op = table.str("op")[row];
  const change = value("change_bytes");
  return (
    <>
      {op && (
        <div>
          <Swatch color={color(op)} /> <b class="mono">{op}</b>
        </div>
      )}
      <dl>
        <dt>{t.moment}</dt>
        <dd>
          <Time ns={value("at_ns")} />
        </dd>
        {change !== 0 && !Number.isNaN(change) && (
          <>
            <dt>{t.change}</dt>
            <dd>
              {change > 0 ? "▲ +" : "▼ "}
              <Bytes of={change} />
            </dd>
          </>
        )}
        <dt>{t.allocated}</dt>
        <dd>
          <b>
            <Bytes of={value("allocated_bytes")} />
          </b>
        </dd>
        {value("reserved_bytes") > 0 && (
          <>
            <dt>{t.reserved_}</dt>
            <dd>
              <Bytes of={value("reserved_bytes")} />
            </dd>
          </>
        )}
        {!Number.isNaN(value("static_bytes")) && (
          <>
            <dt>{t.static_}</dt>
            <dd>
              <Bytes of={value("static_bytes")} />
            </dd>
          </>
        )}
      </dl>
    </>
  );
}

/**
 * Live blocks, summed by category if known, else by operator. With the static part they add up to the allocated memory.
 */
export function Composition({ table, fixed }: { table: Table; fixed: number }) {
  const t = text();
  const by = table.blank("category") ? "op" : "category";
  const groups = useMemo(() => {
    const sums = new Map<string, { bytes: number; blocks: number }>();
    const [names, bytes] = [table.str(by), table.num("bytes")];
    for (let row = 0; row < table.rows; row++) {
      const sum = sums.get(names[row] ?? "") ?? { bytes: 0, blocks: 0 };
      sums.set(names[row] ?? "", { bytes: sum.bytes + bytes[row], blocks: sum.blocks + 1 });
    }
    return [...sums].sort((a, b) => b[1].bytes - a[1].bytes);
  }, [table, by]);
  const top = groups.slice(0, 12);
  const rest = groups.slice(12);
  const rows = top.map(([name, sum]) => ({ name: name || t.noOp, mono: name !== "", color: color(name), ...sum }));
  if (rest.length)
    rows.push({
      name: fill(t.rest, { count: rest.length }),
      mono: false,
      color: "var(--text-3)",
      bytes: rest.reduce((all, [, sum]) => all + sum.bytes, 0),
      blocks: rest.reduce((all, [, sum]) => all + sum.blocks, 0),
    });
  if (fixed > 0) rows.push({ name: t.unexplained, mono: false, color: "var(--op-norm)", bytes: fixed, blocks: NaN });
  const high = Math.max(...rows.map((row) => row.bytes), 1);
  return (
    <>
      <p class="d3 small">{by === "op" ? t.byOperator : t.byCategory}</p>
      <div class="made-rows">
        {rows.map((row) => (
          <div key={row.name}>
            <span class={`cut ${row.mono ? "mono" : ""}`} title={row.name}>
              {row.name}
            </span>
            <InlineBar share={row.bytes / high} color={row.color} />
            <span class="r">
              <Bytes of={row.bytes} />
            </span>
            <span class="r d3 small">{Number.isNaN(row.blocks) ? "" : <Count of={row.blocks} />}</span>
          </div>
        ))}
      </div>
    </>
  );
}
