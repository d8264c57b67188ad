/** Roofline. */
import { color, css } from "../colors";
import { useTable } from "../data";
import { Await, Card, Chip, Empty, Segmented, Swatch } from "../parts/basics";
import { Chart } from "../parts/chart";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { shapeText, typeText } from "../parts/shapes";
import { go, param } from "../state";
import { fill, Sentence, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { useMemo } from "preact/hooks";

const text = strings("flops");

export function Roofline() {
  const t = text();
  const fetched = useTable("roofline");
  const rows = param("roof") === "table";
  return (
    <Card
      title={t.roofline}
      note={t.roofNote}
      flush={rows}
      tools={
        <Segmented
          label={t.view}
          value={rows ? "table" : "chart"}
          onChange={(id) => go({ params: { roof: id === "table" ? "table" : null } })}
          choices={[
            { id: "chart", label: t.roofline },
            { id: "table", label: t.asTable },
          ]}
        />
      }
    >
      <Await of={fetched} rows={8}>
        {(data) =>
          !data.rows ? (
            <Empty title={t.noBytes}>
              <Sentence template={t.noBytesHow} flag={<span class="mono">--shapes</span>} />
            </Empty>
          ) : rows ? (
            <RoofRows data={data} />
          ) : (
            <Roof data={data} />
          )
        }
      </Await>
    </Card>
  );
}

function RoofRows({ data }: { data: Table }) {
  const t = text();
  const shade = (of: Table, row: number) => color(of.str("name")[row] ?? "", true);
  const columns: Column[] = [
    { key: "name", label: t.name, as: "name", color: shade, width: "minmax(200px, 2fr)" },
    {
      key: "shapes",
      label: t.inputs,
      as: "name",
      width: "minmax(200px, 2.4fr)",
      show: (of, row) => (
        <span class="name mono" title={of.str("shapes")[row] ?? ""}>
          <span class="cut">{shapeText(of.str("shapes")[row] ?? "[]")}</span>
        </span>
      ),
    },
    {
      key: "dtypes",
      label: t.precision,
      as: "name",
      width: "minmax(80px, 1fr)",
      hide: true,
      show: (of, row) => typeText(of.str("dtypes")[row] ?? "[]"),
    },
    { key: "calls", label: t.count, width: "minmax(60px, .7fr)" },
    { key: "flops", label: t.flops, width: "minmax(96px, 1fr)" },
    { key: "bytes", label: t.bytes },
    { key: "time_ns", label: t.took },
    { key: "intensity", label: t.intensity, width: "minmax(96px, 1fr)" },
    { key: "flops_per_s", label: t.rate, width: "minmax(100px, 1fr)" },
    { key: "reached_share", label: t.reached },
    { key: "bound", label: t.bound, as: "value" },
  ];
  return (
    <Grid id="roofrows" table={data} columns={columns} search={["name", "shapes"]} sort="-flops" label={t.roofline} />
  );
}

function Roof({ data }: { data: Table }) {
  const t = text();
  const x = data.num("intensity"),
    y = data.num("flops_per_s"),
    time = data.num("time_ns");
  const peak = data.num("peak_flops_per_s"),
    width = data.num("peak_bytes_per_s");
  const longest = time.reduce((most, entry) => Math.max(most, entry), 0);
  const roofs = useMemo(() => {
    const groups = new Map<number, { peak: number; width: number; label: string }>();
    for (let row = 0; row < data.rows; row++)
      if (Number.isFinite(peak[row]) && Number.isFinite(width[row]))
        groups.set(peak[row], { peak: peak[row], width: width[row], label: data.str("precision")[row] ?? "" });
    return [...groups.values()].sort((a, b) => b.peak - a.peak);
  }, [data]);
  // Start at a power of ten, so that at least two labels are drawn.
  const tenth = (value: number) => 10 ** Math.floor(Math.log10(value)) / 1.3;
  const low = tenth(Math.min(...x, ...roofs.map((roof) => roof.peak / roof.width / 5))),
    high = Math.max(...x, ...roofs.map((roof) => (roof.peak / roof.width) * 5)) * 2;
  const bottom = tenth(Math.min(...y)),
    top = Math.max(...y, ...roofs.map((roof) => roof.peak)) * 2;
  const names = [...new Set(data.str("name"))];
  const recorded = data.str("how").every((entry) => entry === "recorded");
  const axis = {
    axisLine: { lineStyle: { color: css("--border-strong") } },
    axisTick: { show: false },
    minorSplitLine: { show: false },
    nameTextStyle: { color: css("--text-3"), fontSize: 11 },
  };
  const words = { showMinLabel: false, showMaxLabel: false, color: css("--text-3"), fontSize: 11 };
  return (
    <>
      <div class="roofwords">
        <span class="legend">
          {names.slice(0, 8).map((name) => (
            <span key={name}>
              <Swatch color={color(name ?? "")} />
              <span class="mono cut" title={name ?? ""}>
                {name}
              </span>
            </span>
          ))}
        </span>
        <span class="sp" />
        <span class="d3 small">{recorded ? t.roofRecorded : t.roofShapes}</span>
        {!roofs.length && <Chip tone="warn">{fill(t.noRoof, { why: t.chipUnknown })}</Chip>}
      </div>
      <Chart
        height={340}
        label={`${t.roofline}: ${data.rows}`}
        of={[data, roofs]}
        option={() => ({
          grid: { left: 84, right: 24, top: 16, bottom: 40 },
          xAxis: {
            ...axis,
            type: "log",
            min: low,
            max: high,
            name: t.intensity,
            nameLocation: "middle",
            nameGap: 26,
            splitLine: { show: false },
            axisLabel: { ...words, formatter: (value: number) => units.count(value).value },
          },
          yAxis: {
            ...axis,
            axisLine: { show: false },
            type: "log",
            min: bottom,
            max: top,
            splitLine: { lineStyle: { color: css("--grid") } },
            axisLabel: { ...words, formatter: (value: number) => units.text(units.flopsRate(value)) },
          },
          series: [
            ...roofs.map((roof) => ({
              type: "line",
              silent: true,
              symbol: "none",
              lineStyle: { color: css("--text-3"), width: 1.5 },
              z: 1,
              data: [
                [Math.max(low, bottom / roof.width), Math.max(low, bottom / roof.width) * roof.width],
                [roof.peak / roof.width, roof.peak],
                [high, roof.peak],
              ],
              endLabel: {
                show: true,
                color: css("--text-2"),
                fontSize: 11,
                align: "right",
                verticalAlign: "bottom",
                offset: [-4, -4],
                formatter: `${roof.label} ${units.text(units.flopsRate(roof.peak))} · ${fill(t.bandwidth, { rate: units.text(units.rate(roof.width)) })}`,
              },
            })),
            {
              type: "scatter",
              z: 2,
              data: Array.from({ length: data.rows }, (_, row) => ({
                value: [x[row], y[row]],
                row,
                symbolSize: 6 + 16 * Math.sqrt(time[row] / (longest || 1)),
                itemStyle: {
                  color: color(data.str("name")[row] ?? ""),
                  opacity: 0.8,
                  borderColor: css("--surface"),
                  borderWidth: 1,
                },
              })),
            },
          ],
        })}
        tip={(item) => {
          const row = item.data?.row;
          if (row === undefined) return null;
          const bound = data.str("bound")[row];
          return (
            <>
              <b>{data.str("name")[row]}</b> <span class="mono">{shapeText(data.str("shapes")[row] ?? "[]")}</span>
              <br />
              {units.text(units.flopsRate(y[row]))} · {units.count(x[row]).value} {t.intensity} ·{" "}
              {units.text(units.time(time[row]))}
              {bound && (
                <>
                  <br />
                  {bound === "memory" ? t.memory : t.compute} · {t.reached}{" "}
                  {units.text(units.share(data.num("reached_share")[row]))}
                </>
              )}
            </>
          );
        }}
        onPick={(item) =>
          item.data?.row !== undefined &&
          go({ page: "operators", params: { tab: "cpu", sel: JSON.stringify([data.str("name")[item.data.row]]) } })
        }
      />
    </>
  );
}
