/** What the memory is used for, over time: the analysis memory_by_category as layers that add up to what is allocated. */
import { useMemo } from "preact/hooks";
import { color } from "../colors";
import { useTable } from "../data";
import { Await, Bytes, Legend, Swatch, Time } from "../parts/basics";
import { Series, type Band, type Line, type Range } from "../parts/series";
import { absolute, choose } from "../range";
import { go } from "../state";
import type { Table } from "../table";
import { texts } from "../text";

const text = texts({
  en: {
    static: "static", before: "from before", "optimizer state": "optimizer state", gradient: "gradients", activation: "activations", temporary: "temporary", total: "Allocated", moment: "Moment", label: "Memory by category",
    how: "told from the life of each block, unless the recording says it: activations came before a backward pass and are there when it begins, gradients came in one and outlive it, states came in the optimizer and outlive the step; static was there before and after",
  },
  zh: {
    static: "静态", before: "记录之前的", "optimizer state": "优化器状态", gradient: "梯度", activation: "激活", temporary: "临时", total: "已分配", moment: "时刻", label: "各类别的内存",
    how: "除非记录注明，否则由每个块的生命周期得出：激活在反向之前出现且反向开始时仍在，梯度在反向中出现且反向结束后仍在，优化器状态在优化器中出现且迭代结束后仍在；静态的在记录前后都在",
  },
});

const COLORS: Record<string, string> = {
  static: "--op-norm", before: "--op-index", "optimizer state": "--op-optim", gradient: "--op-cast", activation: "--kind-compute", temporary: "--op-elem",
};

export function Categories({ device, range, whole, bands, moment, pixels }: { device: string; range: Range | null; whole: Range | null; bands: Band[]; moment: number; pixels: number }) {
  const asked = useTable("memory_by_category", { device, pixels, start_ns: range && absolute(range[0]), end_ns: range && absolute(range[1]) });
  return <Await of={asked} rows={8}>{(table) => <Layers table={table} range={range ?? whole} bands={bands} moment={moment} />}</Await>;
}

function Layers({ table, range, bands, moment }: { table: Table; range: Range | null; bands: Band[]; moment: number }) {
  const t = text();
  const words = t as Record<string, string>;
  // Every moment has a row for each category, in the same order.
  const { at, layers } = useMemo(() => {
    const names = [...new Set(table.str("category"))].map((name) => name ?? "");
    const pick = (column: string, first: number) => Float64Array.from({ length: table.rows / (names.length || 1) }, (_, row) => table.num(column)[row * names.length + first]);
    return { at: pick("at_ns", 0), layers: names.map((name, place) => ({ name, values: pick("bytes", place) })) };
  }, [table]);
  const lines: Line[] = layers.map(({ name, values }) => ({ label: words[name] ?? name, values, color: COLORS[name] ?? "--op-other", area: true, stepped: true }));
  const swatch = (name: string) => (COLORS[name] ? `var(${COLORS[name]})` : color(name));
  return (
    <>
      <div class="curve-tools"><Legend of={layers.map(({ name }) => ({ label: words[name] ?? name, color: swatch(name) }))} /></div>
      <Series
        x={at} lines={lines} as="bytes" xAs="time" height={270} stacked bands={bands} bandLabels selected={moment} label={t.label}
        range={range} onRange={choose} onPick={(row) => go({ params: { at: at[row], tab: null } }, true)}
        tip={(row) => (
          <dl>
            <dt>{t.moment}</dt><dd><Time ns={at[row]} /></dd>
            {layers.map(({ name, values }) => values[row] > 0 && [<dt key={name}><Swatch color={swatch(name)} /> {words[name] ?? name}</dt>, <dd key={`${name} `}><Bytes of={values[row]} /></dd>])}
            <dt>{t.total}</dt><dd><b><Bytes of={layers.reduce((sum, { values }) => sum + values[row], 0)} /></b></dd>
          </dl>
        )}
      />
      <p class="d3 small">{t.how}</p>
    </>
  );
}
