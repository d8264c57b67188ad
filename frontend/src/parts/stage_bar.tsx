/** Stages of a step in one bar. */
import * as units from "../units";
import { useWidth } from "./basics";
import { tip, untip } from "./tip";

export interface Stage {
  name: string;
  ns: number;
  color?: string;
  hatch?: boolean;
  /** Dark text for light kinds. */
  dark?: boolean;
  /** The label inside the bar; by default its name. */
  inSentence?: string;
}

/** Parts of one whole, side by side in one bar. */
/** Parts of a total, side by side; `scale` is the value of the whole width, if larger. */
export function StageBar({
  stages,
  total,
  scale = total,
  height = 28,
  label,
}: {
  stages: Stage[];
  total: number;
  scale?: number;
  height?: number;
  label: string;
}) {
  const [box, width] = useWidth<HTMLDivElement>();
  return (
    <div class="bar" ref={box} style={{ height: `${height}px` }} role="img" aria-label={label}>
      {stages
        .filter((stage) => stage.ns > 0)
        .map((stage) => {
          const [part, wide] = [stage.ns / total, stage.ns / scale];
          const time = units.text(units.time(stage.ns));
          // As much as fits: the rest is on hover and in the table.
          const rest = [
            ` ${stage.inSentence ?? stage.name} · ${units.text(units.share(part))}`,
            ` ${stage.inSentence ?? stage.name}`,
            "",
          ].find((more) => textWidth(time + more) + 24 < wide * width);
          const inside = rest !== undefined && (
            <>
              <b>{time}</b>
              {rest}
            </>
          );
          return (
            <i
              key={stage.name}
              class={stage.hatch ? "hatch" : ""}
              style={{
                width: `${wide * 100}%`,
                background: stage.hatch ? undefined : stage.color,
                lineHeight: `${height}px`,
                padding: wide < 0.04 ? "0" : undefined,
                color: stage.dark ? "var(--on-wait)" : undefined,
              }}
              onPointerMove={(event) =>
                tip(
                  event,
                  <>
                    <b>{stage.name}</b> {units.text(units.time(stage.ns))} · {units.text(units.share(part))}
                  </>,
                )
              }
              onPointerLeave={untip}
            >
              {inside && stage.hatch ? <span class="plate">{inside}</span> : inside}
            </i>
          );
        })}
    </div>
  );
}

/** Approximate width of 12 px letters; Chinese characters are square. */
export function textWidth(text: string): number {
  return [...text].reduce((sum, letter) => sum + (letter > "⺀" ? 12.5 : 6.6), 0);
}

/** A hatch for SVG: idle, or not counted. */
export function Hatch({ id }: { id: string }) {
  return (
    <pattern id={id} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
      <rect width="6" height="6" fill="var(--sunken)" />
      <line x1="0" x2="0" y1="0" y2="6" stroke="var(--kind-idle)" stroke-width="3" />
    </pattern>
  );
}
