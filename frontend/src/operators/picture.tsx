/** Time by family and type as a chart. */
import { color, css, family } from "../colors";
import { Card, Segmented } from "../parts/basics";
import { Chart } from "../parts/chart";
import { ShareBars, ShareRing, shareSummary } from "../parts/shares";
import { go, param } from "../state";
import { fill, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { type Sum, familySums } from "./families";
import { useMemo } from "preact/hooks";

const text = strings("operators");

const TOP = 20;

/** Families, or the twenty types with the most time; all others are one slice. */
export function Picture({ mine, families, total }: { mine: Table; families: Sum[]; total: number }) {
  const t = text();
  const by = param("by") === "type" ? "type" : "family";
  const chart = param("chart") ?? "pie";
  const types = useMemo(
    () =>
      familySums(
        mine,
        (row) => mine.str("type")[row] ?? "",
        (key) => key,
        (key) => color(key),
      ),
    [mine, css("--op-elem")],
  );
  const shown = useMemo(() => {
    if (by === "family") return families;
    if (types.length <= TOP + 1) return types;
    const rest = types.slice(TOP);
    const add = (of: (item: Sum) => number) => rest.reduce((all, item) => all + of(item), 0);
    return [
      ...types.slice(0, TOP),
      {
        key: "",
        label: fill(t.rest, { count: rest.length }),
        value: add((item) => item.value),
        calls: add((item) => item.calls),
        share: add((item) => item.share),
        color: "var(--border-strong)",
      },
    ];
  }, [by, families, types, t]);
  const pick = (item: Sum | undefined) => {
    if (!item) return;
    if (by === "family") go({ params: { family: param("family") === item.key ? null : item.key } });
    else if (item.key) go({ params: { sel: JSON.stringify([item.key]) } });
  };
  const note =
    by === "type" && types.length > TOP + 1
      ? fill(t.topNote, { top: TOP, rest: types.length - TOP })
      : fill(t.note, { count: mine.rows });
  const title = by === "family" ? t.byFamily : t.byType;
  const tools = (
    <>
      <Segmented
        label={t.group}
        value={by}
        onChange={(id) => go({ params: { by: id === "family" ? null : id } })}
        choices={[
          { id: "family", label: t.family },
          { id: "type", label: t.type },
        ]}
      />
      <Segmented
        label={t.chart}
        value={chart}
        onChange={(id) => go({ params: { chart: id === "pie" ? null : id } })}
        choices={[
          { id: "pie", label: t.pie },
          { id: "bar", label: t.bar },
          { id: "treemap", label: t.treemap },
        ]}
      />
    </>
  );
  const slices = shown.map((item) => ({
    ...item,
    color: item.color,
    code: by === "type" && item.key !== "",
    on: by === "family" && param("family") === item.key,
  }));
  const summary = shareSummary(title, slices, total);
  return (
    <Card title={title} note={note} tools={tools}>
      {chart === "bar" ? (
        <ShareBars of={slices} total={total} summary={summary} onPick={pick} />
      ) : chart === "treemap" ? (
        <Treemap mine={mine} shown={shown} by={by} total={total} label={summary} onPick={pick} />
      ) : (
        <ShareRing of={slices} total={total} summary={summary} onPick={pick} list={by} />
      )}
    </Card>
  );
}

function Treemap({
  mine,
  shown,
  by,
  total,
  label,
  onPick,
}: {
  mine: Table;
  shown: Sum[];
  by: string;
  total: number;
  label: string;
  onPick: (entry: Sum | undefined) => void;
}) {
  const option = () => {
    const solid = (shade: string) => (shade.startsWith("var(") ? css(shade.slice(4, -1)) : shade);
    const inside = (key: string) => {
      const rows = mine.where((row) => family(mine.str("type")[row] ?? "") === key);
      return rows
        .map((row) => ({
          name: mine.str("type")[row] ?? "",
          value: mine.num("self_ns")[row],
          itemStyle: { color: solid(color(mine.str("type")[row] ?? "")) },
        }))
        .filter((entry) => entry.value > 0);
    };
    const data = shown
      .filter((entry) => entry.value > 0)
      .map((entry) =>
        by === "family"
          ? { name: entry.label, key: entry.key, itemStyle: { color: solid(entry.color) }, children: inside(entry.key) }
          : { name: entry.label, key: entry.key, value: entry.value, itemStyle: { color: solid(entry.color) } },
      );
    return {
      series: [
        {
          type: "treemap",
          data,
          left: 0,
          right: 0,
          top: 0,
          bottom: 0,
          roam: false,
          nodeClick: false,
          breadcrumb: { show: false },
          label: {
            show: true,
            color: css("--on-kind"),
            fontSize: 12,
            formatter: (item: { name: string }) => item.name.replace(/^aten::/, ""),
          },
          upperLabel: { show: by === "family", height: 20, color: css("--text-2"), fontSize: 12 },
          itemStyle: { borderWidth: 1, gapWidth: 1, borderColor: css("--surface") },
          levels:
            by === "family"
              ? [
                  {
                    itemStyle: { gapWidth: 3, borderWidth: 0, borderColor: css("--surface") },
                    upperLabel: { show: false },
                  },
                  { itemStyle: { borderColor: css("--surface"), borderWidth: 2, gapWidth: 1 } },
                ]
              : undefined,
        },
      ],
    };
  };
  return (
    <Chart
      height={260}
      label={label}
      of={[mine, shown, by]}
      option={option}
      tip={(item) =>
        item.name && (
          <>
            <b>{item.name}</b> {units.text(units.time(Number(item.value)))} ·{" "}
            {units.text(units.share(Number(item.value) / total))}
          </>
        )
      }
      onPick={(item) =>
        item.data?.key !== undefined
          ? onPick(shown.find((entry) => entry.key === item.data.key))
          : go({ params: { sel: JSON.stringify([item.name]) } })
      }
    />
  );
}
