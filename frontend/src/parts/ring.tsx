/** A ring of shares. */
import * as units from "../units";
import { tip, untip } from "./tip";

export interface Slice {
  name: string;
  value: number;
  color: string;
}

/** A ring, largest first from twelve o'clock, the total in the middle. */
export function Ring({
  slices,
  total,
  unit,
  size = 120,
  onPick,
  label,
}: {
  slices: Slice[];
  total: string;
  unit: string;
  size?: number;
  onPick?: (name: string) => void;
  label: string;
}) {
  const sum = slices.reduce((all, slice) => all + slice.value, 0) || 1;
  let from = 0;
  const point = (share: number, radius: number) => {
    const angle = share * 2 * Math.PI - Math.PI / 2;
    return `${(60 + radius * Math.cos(angle)).toFixed(2)} ${(60 + radius * Math.sin(angle)).toFixed(2)}`;
  };
  return (
    <svg width={size} height={size} viewBox="0 0 120 120" role="img" aria-label={label}>
      {slices.map((slice) => {
        const start = from / sum;
        from += slice.value;
        const end = Math.min(from / sum, start + 0.9999); // a full circle is no arc
        const large = end - start > 0.5 ? 1 : 0;
        const path = `M${point(start, 58)}A58 58 0 ${large} 1 ${point(end, 58)}L${point(end, 38)}A38 38 0 ${large} 0 ${point(start, 38)}Z`;
        const written = units.text(units.share(slice.value / sum));
        return (
          <path
            key={slice.name}
            d={path}
            fill={slice.color}
            stroke="var(--surface)"
            stroke-width="1.5"
            class={onPick ? "click" : ""}
            onClick={onPick && (() => onPick(slice.name))}
            onPointerMove={(event) =>
              tip(
                event,
                <b>
                  {slice.name} · {written}
                </b>,
              )
            }
            onPointerLeave={untip}
          />
        );
      })}
      <text x="60" y="58" text-anchor="middle" font-size="17" font-weight="600" fill="var(--text)" letter-spacing="-.3">
        {total}
      </text>
      <text x="60" y="74" text-anchor="middle" font-size="11" fill="var(--text-3)">
        {unit}
      </text>
    </svg>
  );
}
