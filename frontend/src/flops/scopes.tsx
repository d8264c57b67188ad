/** FLOPs by scope. */
import { css } from "../colors";
import { Card, Empty, Segmented } from "../parts/basics";
import { Chart } from "../parts/chart";
import { tip, untip } from "../parts/tip";
import { go, link, param } from "../state";
import { fill, Sentence, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { ScopeTable } from "./tables";
import { useMemo } from "preact/hooks";

const text = strings("flops");

/** Layer 2 before layer 10. */
const natural = new Intl.Collator("en", { numeric: true }).compare;

interface Node {
  scope: string;
  label: string;
  flops: number;
  row: number;
  below: Node[];
  /** Number of small parts in this node. */
  others: number;
}

/** The parts below a scope, largest first; small parts are combined, never dropped. */
function nodesBelow(data: Table, root: string, levels: number, widest: number): Node | null {
  const scope = data.str("scope"),
    depth = data.num("depth"),
    flops = data.num("flops");
  const children = new Map<string, number[]>();
  let start = -1;
  for (let row = 0; row < data.rows; row++) {
    const name = scope[row] ?? "";
    if (name === root) start = row;
    if (depth[row] === 0 || !(flops[row] > 0)) continue;
    const above = name.includes("/") ? name.slice(0, name.lastIndexOf("/")) : "";
    const list = children.get(above);
    if (list) list.push(row);
    else children.set(above, [row]);
  }
  if (start < 0) return null;
  const make = (row: number, level: number): Node => {
    const name = scope[row] ?? "";
    const rows =
      level < levels
        ? (children.get(name) ?? [])
            .slice()
            .sort((a, b) => flops[b] - flops[a] || natural(scope[a] ?? "", scope[b] ?? ""))
        : [];
    const shown = rows.length > widest ? rows.slice(0, widest - 1) : rows;
    const rest = rows.slice(shown.length);
    const below = shown.map((item) => make(item, level + 1));
    if (rest.length)
      below.push({
        scope: `${name}/\u0000`,
        label: fill(text().others, { count: rest.length }),
        flops: rest.reduce((all, item) => all + flops[item], 0),
        row: -1,
        below: [],
        others: rest.length,
      });
    return {
      scope: name,
      label: name ? name.slice(name.lastIndexOf("/") + 1) : text().model,
      flops: flops[row],
      row,
      below,
      others: 0,
    };
  };
  return make(start, 0);
}

export function Scopes({ data }: { data: Table }) {
  const t = text();
  const usual = matchMedia("(max-width: 760px)").matches ? "icicle" : "sankey"; // which need room for their labels
  const view = param("view") ?? usual;
  const root = param("root") ?? "";
  const deepest = data.num("depth").reduce((most, item) => Math.max(most, item), 0);
  const current = root ? root.split("/").length : 0;
  const depth = Math.max(1, Math.min(Number(param("depth")) || 3, Math.max(1, deepest - current)));
  const node =
    useMemo(() => nodesBelow(data, root, depth, 14), [data, root, depth, t]) ?? nodesBelow(data, "", depth, 14);
  const reroot = (scope: string) => {
    if (!scope.includes("\u0000")) go({ params: { root: scope || null } });
  };
  if (deepest === 0 || !node)
    return (
      <Card title={t.byScope}>
        <Empty title={t.noScopes}>
          <Sentence template={t.noScopesHow} flag={<span class="mono">stepscope run</span>} />
        </Empty>
      </Card>
    );
  const path = root ? root.split("/") : [];
  const tools = (
    <>
      {view !== "table" && (
        <label class="levels small d2">
          {t.depth}{" "}
          <input
            type="range"
            min={1}
            max={Math.max(1, deepest - current)}
            value={depth}
            onInput={(event) => go({ params: { depth: event.currentTarget.value } }, true)}
          />{" "}
          <b>{depth}</b>
        </label>
      )}
      <Segmented
        label={t.view}
        value={view}
        onChange={(id) => go({ params: { view: id === usual ? null : id } })}
        choices={[
          { id: "sankey", label: t.sankey },
          { id: "icicle", label: t.icicle },
          { id: "table", label: t.table },
        ]}
      />
    </>
  );
  const crumbs = (
    <nav class="crumbs" aria-label={t.root}>
      {["", ...path].map((_, at) => {
        const scope = path.slice(0, at).join("/");
        const label = at === 0 ? t.model : path[at - 1];
        return (
          <span key={at}>
            {at > 0 && <span class="d3"> / </span>}
            {scope === root ? <b>{label}</b> : <a href={link({ params: { root: scope || null } })}>{label}</a>}
          </span>
        );
      })}
    </nav>
  );
  const summary = `${t.byScope}: ${node.below
    .slice(0, 5)
    .map((item) => `${item.label} ${units.text(units.share(item.flops / node.flops))}`)
    .join(", ")}`;
  return (
    <Card title={t.byScope} note={crumbs} tools={tools} flush={view === "table"}>
      {view === "table" ? (
        <ScopeTable data={data} root={root} />
      ) : view === "icicle" ? (
        <Icicle node={node} depth={depth} data={data} label={summary} onPick={reroot} />
      ) : (
        <Sankey node={node} data={data} label={summary} onPick={reroot} />
      )}
    </Card>
  );
}

function about(data: Table, node: { row: number; label: string; flops: number; scope: string }) {
  const t = text();
  const used = node.row < 0 ? NaN : data.num("utilization")[node.row];
  return (
    <>
      <b>{node.row < 0 ? node.label : node.scope || t.model}</b> {units.text(units.flops(node.flops))}
      {node.row >= 0 && (
        <>
          {" "}
          · {units.text(units.share(data.num("share")[node.row]))} ·{" "}
          {units.text(units.time(data.num("time_ns")[node.row]))}
        </>
      )}
      {Number.isFinite(used) && (
        <>
          {" "}
          · {t.utilization} {units.text(units.share(used))}
        </>
      )}
    </>
  );
}

/** The better a part uses the chip, the stronger its color. */
function fullness(data: Table, row: number): number {
  const used = row < 0 ? NaN : data.num("utilization")[row];
  return Number.isFinite(used) ? 0.25 + 0.75 * Math.min(1, Math.max(0, used)) : 0.6;
}

function Sankey({
  node,
  data,
  label,
  onPick,
}: {
  node: Node;
  data: Table;
  label: string;
  onPick: (scope: string) => void;
}) {
  const flat: Node[] = [];
  const links: { source: string; target: string; value: number }[] = [];
  const walk = (entry: Node) => {
    flat.push(entry);
    for (const below of entry.below) {
      links.push({ source: entry.scope, target: below.scope, value: below.flops });
      walk(below);
    }
  };
  walk(node);
  const leaves = (entry: Node): number =>
    entry.below.length ? entry.below.reduce((sum, below) => sum + leaves(below), 0) : 1;
  const height = Math.max(180, Math.min(720, leaves(node) * 26 + 20));
  const known = new Map(flat.map((entry) => [entry.scope, entry]));
  return (
    <Chart
      height={height}
      label={label}
      of={[node, data]}
      option={() => ({
        series: [
          {
            type: "sankey",
            left: 4,
            right: 150,
            top: 8,
            bottom: 8,
            nodeWidth: 12,
            nodeGap: 12,
            draggable: false,
            nodeAlign: "left",
            layoutIterations: 0,
            emphasis: { focus: "adjacency" },
            data: flat.map((entry) => ({
              name: entry.scope,
              itemStyle: {
                color: entry.row < 0 ? css("--border-strong") : css("--kind-compute"),
                opacity: entry.row < 0 ? 1 : fullness(data, entry.row),
                borderWidth: 0,
              },
            })),
            links,
            lineStyle: { color: css("--kind-compute"), opacity: 0.14, curveness: 0.5 },
            label: {
              color: css("--text"),
              fontSize: 12,
              formatter: (item: { name: string }) => {
                const entry = known.get(item.name)!;
                return `${entry.label}  {d|${units.text(units.share(entry.flops / node.flops))}}`;
              },
              rich: { d: { color: css("--text-3"), fontSize: 11 } },
            },
          },
        ],
      })}
      tip={(item) => {
        const entry = known.get(item.dataType === "edge" ? item.data.target : item.name);
        return entry && about(data, entry);
      }}
      onPick={(item) => onPick(item.dataType === "edge" ? item.data.target : item.name)}
    />
  );
}

function Icicle({
  node,
  depth,
  data,
  label,
  onPick,
}: {
  node: Node;
  depth: number;
  data: Table;
  label: string;
  onPick: (scope: string) => void;
}) {
  const cells: { node: Node; level: number; from: number; width: number }[] = [];
  const walk = (item: Node, level: number, from: number, width: number) => {
    cells.push({ node: item, level, from, width });
    let at = from;
    for (const below of item.below) {
      const part = (below.flops / item.flops) * width;
      if (part > 0.0005) walk(below, level + 1, at, part);
      at += part;
    }
  };
  walk(node, 0, 0, 1);
  return (
    <div class="icicle" style={{ height: `${(depth + 1) * 30}px` }} role="group" aria-label={label}>
      {cells.map(({ node: one, level, from, width }) => (
        <button
          key={`${level} ${one.scope}`}
          style={{
            left: `${from * 100}%`,
            width: `${width * 100}%`,
            top: `${level * 30}px`,
            background:
              one.row < 0
                ? "var(--border-strong)"
                : `color-mix(in srgb, var(--kind-compute) ${fullness(data, one.row) * 100}%, var(--surface))`,
          }}
          class={`${fullness(data, one.row) > 0.75 && one.row >= 0 ? "deep" : ""} ${width > 0.03 ? "" : "thin"}`}
          title={one.row < 0 ? one.label : one.scope || text().model}
          aria-label={`${one.label} ${units.text(units.share(one.flops / node.flops))}`}
          onClick={() => {
            untip();
            onPick(one.scope);
          }}
          onPointerMove={(event) => tip(event, about(data, one))}
          onPointerLeave={untip}
        >
          {width > 0.03 && <span class="cut">{one.label}</span>}
        </button>
      ))}
    </div>
  );
}
