/** Ranks compared, layer by layer. */
import { info } from "../data";
import { Card, Legend } from "../parts/basics";
import { Time } from "../parts/quantity";
import type { Part } from "../parts/step_axis";
import { StepBars } from "../parts/step_bars";
import { tip, untip } from "../parts/tip";
import { go, link } from "../state";
import { fill, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { selectedCell } from "./cells";
import { missingRanks } from "./headline";
import { useMemo, useState } from "preact/hooks";

const text = strings("communication");

const LAYERS = [
  { key: "computing_ns", word: "computing", color: "var(--kind-compute)" },
  { key: "device_exposed_ns", word: "exposedWord", color: "var(--kind-communication)" },
  { key: "copy_ns", word: "copy", color: "var(--kind-copy)" },
  {
    key: "host_exposed_ns",
    word: "hostWord",
    color: "color-mix(in srgb, var(--kind-communication) 45%, var(--surface))",
  },
  { key: "free_ns", word: "free", color: "" },
] as const;

/** A layer of a row. While the host communicates the device is idle: that is a layer of its own. */
function layerOf(table: Table, key: (typeof LAYERS)[number]["key"], row: number): number {
  return key === "free_ns" ? table.num("free_ns")[row] - table.num("host_exposed_ns")[row] : table.num(key)[row];
}

const MISSING = 32;

// rows for ranks that are not recorded; the facts list more of them

/** The average or the selected step of each rank, on one scale. */
export function Bars({
  cells,
  means,
  step,
  on,
}: {
  cells: Table;
  means: Table;
  step: number | null;
  on: number | null;
}) {
  const t = text();
  const table = step === null ? means : cells;
  const rows = new Map<number, number>();
  for (let row = 0; row < table.rows; row++)
    if (step === null || table.num("step")[row] === step) rows.set(table.num("rank")[row], row);
  const lost = missingRanks();
  const ranks = [...new Set([...info.value!.ranks, ...(lost.length <= MISSING ? lost : [])])].sort((a, b) => a - b);
  const longest = Math.max(
    1,
    ...[...rows.values()].flatMap((row) => [table.num("total_ns")[row], table.num("device_ns")[row] || 0]),
  );
  return (
    <Card
      title={t.bars}
      note={step === null ? t.barsMean : fill(t.barsStep, { step })}
      tools={<Legend of={LAYERS.map((layer) => ({ label: t[layer.word], color: layer.color, hatch: !layer.color }))} />}
    >
      <div class="ranks" role="list" aria-label={t.bars}>
        {ranks.map((rank) => {
          const row = rows.get(rank);
          if (row === undefined) {
            return [
              <span key={`${rank} w`} class="who gone">
                {t.rank} {rank}
              </span>,
              <span key={`${rank} t`} class="track">
                <i class="hatch gone">{lost.includes(rank) ? t.gone : t.goneStep}</i>
              </span>,
              <span key={`${rank} n`} class="took">
                –
              </span>,
            ];
          }
          const total = table.num("total_ns")[row];
          const say = (event: PointerEvent) =>
            tip(
              event,
              <>
                <b>
                  {t.rank} {rank}
                </b>
                <dl>
                  {LAYERS.map((layer) => [
                    <dt key={layer.key}>{t[layer.word]}</dt>,
                    <dd key={`${layer.key}v`}>
                      <Time ns={layerOf(table, layer.key, row)} />
                    </dd>,
                  ])}
                  <dt>{t.wait}</dt>
                  <dd>
                    <Time ns={table.num("wait_ns")[row]} />
                  </dd>
                </dl>
              </>,
            );
          const divided = Number.isFinite(table.num("computing_ns")[row]);
          return [
            <button
              key={`${rank} w`}
              class={`who ${rank === on ? "on" : ""}`}
              onClick={() => go({ page: "steps", params: { rank, sel: step } })}
            >
              {t.rank} {rank}
            </button>,
            <span
              key={`${rank} t`}
              class="track"
              role="listitem"
              aria-label={`${t.rank} ${rank} ${units.text(units.time(total))}`}
              onPointerMove={say}
              onPointerLeave={untip}
            >
              {divided ? (
                LAYERS.map((layer) => {
                  const part = layerOf(table, layer.key, row);
                  return (
                    part > 0 && (
                      <i
                        key={layer.key}
                        class={layer.color ? "" : "hatch"}
                        style={{ width: `${(part / longest) * 100}%`, background: layer.color || undefined }}
                      />
                    )
                  );
                })
              ) : (
                <i style={{ width: `${(total / longest) * 100}%`, background: "var(--op-other)" }} />
              )}
            </span>,
            <span key={`${rank} n`} class={`took ${rank === on ? "on" : ""}`}>
              <Time ns={total} />
            </span>,
          ];
        })}
      </div>
    </Card>
  );
}

/** One rank: compute and exposed communication of every step. */
export function Alone({ cells }: { cells: Table }) {
  const t = text();
  const [hovered, setHovered] = useState<number | null>(null);
  const steps = cells.num("step");
  const sel = selectedCell().step;
  const at = sel === null ? -1 : steps.indexOf(sel);
  const parts = useMemo<Part[]>(
    () =>
      LAYERS.map((layer) => ({
        label: t[layer.word],
        color: layer.color || "var(--kind-idle)",
        values: Float64Array.from(cells.num("step"), (_, row) => layerOf(cells, layer.key, row)),
      })),
    [cells, t],
  );
  return (
    <Card
      title={t.everyStep}
      note={t.everyNote}
      tools={
        <>
          {at >= 0 && (
            <a class="btn sm" href={link({ page: "steps", params: { sel: steps[at] } })}>
              {fill(t.toStep, { rank: cells.num("rank")[at] })}
            </a>
          )}
          <Legend of={parts.map((part) => ({ label: part.label, color: part.color }))} />
        </>
      }
      flush
    >
      <StepBars
        steps={steps}
        parts={parts}
        total={cells.num("total_ns")}
        selected={at < 0 ? null : at}
        hovered={hovered}
        onHover={setHovered}
        onPick={(place) => go({ params: { sel: place === null ? null : `:${steps[place]}` } })}
        say={(place) => (
          <>
            <b>
              {t.step} {units.count(steps[place]).value}
            </b>
            <dl>
              {LAYERS.map((layer) => [
                <dt key={layer.key}>{t[layer.word]}</dt>,
                <dd key={`${layer.key}v`}>
                  <Time ns={layerOf(cells, layer.key, place)} />
                </dd>,
              ])}
            </dl>
          </>
        )}
        height={150}
        label={t.everyStep}
      />
    </Card>
  );
}
