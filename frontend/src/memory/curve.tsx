/** Memory over time. */
import { Legend } from "../parts/basics";
import { Series } from "../parts/series";
import type { Band, Line, Range } from "../parts/series_marks";
import { ZoomBar } from "../parts/zoom_bar";
import { selectRange } from "../time_range";
import { go, param } from "../state";
import { strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { Moment } from "./composition";
import { useMemo } from "preact/hooks";

const text = strings("memory");

export const PIXELS = 1500;

interface CurveProps {
  shown: Table;
  whole: Table;
  order: boolean;
  range: Range | null;
  bands: Band[];
  trace: Table | null;
  capacity: number;
  moment: number;
}

export function Curve({ shown, whole, order, range, bands, trace, capacity, moment }: CurveProps) {
  const t = text();
  const axis = order ? "event" : "at_ns";
  const scaled = param("limit") === "1";
  const at = shown.num("at_ns");
  // In order of execution, a timestamp is the position of the last event up to it.
  const place = (ns: number) => {
    if (!order) return ns;
    const [times, places] = [whole.num("at_ns"), whole.num("event")];
    let [low, high] = [0, whole.rows];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] <= ns) low = middle + 1;
      else high = middle;
    }
    return low ? places[low - 1] : (places[0] ?? 0) - 1;
  };
  const back = (chosen: Range | null): Range | null => {
    if (!order || !chosen) return chosen;
    const [times, places] = [whole.num("at_ns"), whole.num("event")];
    const inside = whole.where((row) => places[row] >= chosen[0] && places[row] <= chosen[1]);
    return inside.length > 1 ? [times[inside[0]], times[inside[inside.length - 1]]] : null;
  };
  const lines = useMemo(() => {
    const list: Line[] = [
      { label: t.allocated, values: shown.num("allocated_bytes"), color: "--kind-compute", area: true, stepped: true },
    ];
    const reserved = shown.num("reserved_bytes");
    if (reserved.some((value) => value > 0))
      list.push({ label: t.reserved_, values: reserved, color: "--text-2", stepped: true, dashed: true });
    if (!shown.blank("static_bytes"))
      list.push({ label: t.static_, values: shown.num("static_bytes"), color: "--op-norm", stepped: true });
    return list;
  }, [shown, t]);
  const placedBands = useMemo(
    () => bands.map((band) => ({ ...band, from: place(band.from), to: place(band.to) })),
    [bands, order, whole],
  );
  const rules = useMemo(() => {
    if (!trace || trace.rows > 60) return [];
    const [fp, bp] = [trace.num("fp_start_ns"), trace.num("bp_end_ns")];
    const all = Array.from({ length: trace.rows }, (_, row) => [
      { at: place(fp[row]), label: t.forward, dashed: true },
      { at: place(bp[row]), label: t.backward, dashed: true },
    ]).flat();
    return all.filter((rule) => Number.isFinite(rule.at)).sort((a, b) => a.at - b.at);
  }, [trace, order, whole, t]);
  const window: Range | null = range && [place(range[0]), place(range[1])];
  const levels = useMemo(
    () =>
      Number.isFinite(capacity) ? [{ at: capacity, label: `${t.limit} ${units.text(units.bytes(capacity))}` }] : [],
    [capacity, t],
  );
  const wholeX = whole.num(axis);
  return (
    <>
      <div class="curve-tools">
        <Legend of={lines.map((line) => ({ label: line.label, color: `var(${line.color})` }))} />
        <span class="sp" />
        {Number.isFinite(capacity) && (
          <label class="small d2">
            <input
              type="checkbox"
              checked={scaled}
              onChange={() => go({ params: { limit: scaled ? null : 1 } }, true)}
            />{" "}
            {t.scale} ({units.text(units.bytes(capacity))})
          </label>
        )}
      </div>
      <Series
        x={shown.num(axis)}
        lines={lines}
        as="bytes"
        xAs={order ? "count" : "time"}
        height={270}
        bands={placedBands}
        bandLabels
        rules={rules}
        levels={levels}
        top={scaled ? capacity * 1.04 : undefined}
        selected={place(moment)}
        range={window ?? (wholeX.length ? [wholeX[0], wholeX[wholeX.length - 1]] : null)}
        onRange={(chosen) => selectRange(back(chosen))}
        onPick={(row) => go({ params: { at: at[row], tab: null } }, true)}
        label={order ? t.curveOrder : t.curve}
        tip={(row) => <Moment table={shown} row={row} />}
      />
      <ZoomBar
        x={wholeX}
        values={whole.num("allocated_bytes")}
        color="var(--kind-compute)"
        range={window}
        onRange={(chosen) => selectRange(back(chosen))}
      />
    </>
  );
}
