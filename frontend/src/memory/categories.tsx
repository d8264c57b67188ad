/** Memory by category over time: layers of memory_by_category that add up to the allocated memory. */
import { useMemo } from "preact/hooks";
import { color } from "../colors";
import { useTable } from "../data";
import { Await, Legend, Swatch } from "../parts/basics";
import { Bytes, Time } from "../parts/quantity";
import { Series } from "../parts/series";
import { type Band, type Line, type Range } from "../parts/series_marks";
import { absoluteTime, selectRange } from "../time_range";
import { go } from "../state";
import type { Table } from "../table";
import { strings } from "../strings";

const text = strings("memoryCategories");

const COLORS: Record<string, string> = {
  static: "--op-norm",
  before: "--op-index",
  "optimizer state": "--op-optim",
  gradient: "--op-cast",
  activation: "--kind-compute",
  temporary: "--op-elem",
};

export function Categories({
  device,
  range,
  whole,
  bands,
  moment,
  pixels,
}: {
  device: string;
  range: Range | null;
  whole: Range | null;
  bands: Band[];
  moment: number;
  pixels: number;
}) {
  const fetched = useTable("memory_by_category", {
    device,
    pixels,
    start_ns: range && absoluteTime(range[0]),
    end_ns: range && absoluteTime(range[1]),
  });
  return (
    <Await of={fetched} rows={8}>
      {(table) => <Layers table={table} range={range ?? whole} bands={bands} moment={moment} />}
    </Await>
  );
}

function Layers({ table, range, bands, moment }: { table: Table; range: Range | null; bands: Band[]; moment: number }) {
  const t = text();
  const words = t as Record<string, string>;
  // Every timestamp has a row for each category, in the same order.
  const { at, layers } = useMemo(() => {
    const names = [...new Set(table.str("category"))].map((name) => name ?? "");
    const pick = (column: string, first: number) =>
      Float64Array.from(
        { length: table.rows / (names.length || 1) },
        (_, row) => table.num(column)[row * names.length + first],
      );
    return { at: pick("at_ns", 0), layers: names.map((name, place) => ({ name, values: pick("bytes", place) })) };
  }, [table]);
  const lines: Line[] = layers.map(({ name, values }) => ({
    label: words[name] ?? name,
    values,
    color: COLORS[name] ?? "--op-other",
    area: true,
    stepped: true,
  }));
  const swatch = (name: string) => (COLORS[name] ? `var(${COLORS[name]})` : color(name));
  return (
    <>
      <div class="curve-tools">
        <Legend of={layers.map(({ name }) => ({ label: words[name] ?? name, color: swatch(name) }))} />
      </div>
      <Series
        x={at}
        lines={lines}
        as="bytes"
        xAs="time"
        height={270}
        stacked
        bands={bands}
        bandLabels
        selected={moment}
        label={t.label}
        range={range}
        onRange={selectRange}
        onPick={(row) => go({ params: { at: at[row], tab: null } }, true)}
        tip={(row) => (
          <dl>
            <dt>{t.moment}</dt>
            <dd>
              <Time ns={at[row]} />
            </dd>
            {layers.map(
              ({ name, values }) =>
                values[row] > 0 && [
                  <dt key={name}>
                    <Swatch color={swatch(name)} /> {words[name] ?? name}
                  </dt>,
                  <dd key={`${name} `}>
                    <Bytes of={values[row]} />
                  </dd>,
                ],
            )}
            <dt>{t.total}</dt>
            <dd>
              <b>
                <Bytes of={layers.reduce((sum, { values }) => sum + values[row], 0)} />
              </b>
            </dd>
          </dl>
        )}
      />
      <p class="d3 small">{t.how}</p>
    </>
  );
}
