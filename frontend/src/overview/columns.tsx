/** Device activity over time as stacked columns. */
import { useWidth } from "../parts/basics";
import type { Table } from "../table";

const PARTS = [
  ["computing_share", "--kind-compute"],
  ["exposed_share", "--kind-communication"],
  ["copy_share", "--kind-copy"],
] as const;

/** Stacked columns of busy shares, one path per kind. */
export function columns(
  data: Table,
  rows: number[],
  x: (ns: number) => number,
  top: number,
  height: number,
): { color: string; path: string }[] {
  const under = new Float64Array(rows.length);
  const [at, wide] = [data.num("at_ns"), data.num("bucket_ns")];
  return PARTS.map(([name, token]) => {
    const share = data.num(name);
    let path = "";
    rows.forEach((row, index) => {
      const part = share[row];
      if (!(part > 0)) return;
      const left = x(at[row]);
      const right = x(at[row] + wide[row]);
      const high = part * height;
      const base = top + height - under[index] * height;
      path += `M${left.toFixed(2)} ${base.toFixed(2)}h${(right - left).toFixed(2)}v${(-high).toFixed(2)}h${(left - right).toFixed(2)}z`;
      under[index] += part;
    });
    return { color: `var(${token})`, path };
  });
}

export function Columns({
  data,
  rows,
  height,
  from,
  to,
  label,
}: {
  data: Table;
  rows: number[];
  height: number;
  from: number;
  to: number;
  label: string;
}) {
  const [box, width] = useWidth<HTMLDivElement>();
  const x = (ns: number) => Math.min(1, (ns - from) / (to - from)) * width;
  return (
    <div ref={box} class="ov-order hatch" style={{ height: `${height}px` }}>
      {width > 0 && (
        <svg width={width} height={height} role="img" aria-label={label}>
          {columns(data, rows, x, 0, height).map(({ color, path }) => (
            <path key={color} d={path} fill={color} shape-rendering="crispEdges" />
          ))}
        </svg>
      )}
    </div>
  );
}
