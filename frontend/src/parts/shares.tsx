/** Shares of a total as bars, or as a ring with a list. */
import { Swatch } from "./basics";
import { Share, Time } from "./quantity";
import { Ring } from "./ring";
import * as units from "../units";

export interface Slice {
  key: string;
  label: string;
  /** A shortened name of code has its whole name on hover. */
  name?: string;
  value: number;
  color: string;
  /** The label is a name in code. */
  code: boolean;
  on?: boolean;
}

interface SharesProps<Part extends Slice> {
  of: Part[];
  total: number;
  /** What a screen reader reads. */
  summary: string;
  onPick: (slice: Part) => void;
}

function Figures({ of, total }: { of: Slice; total: number }) {
  return (
    <>
      <span class="r">
        <Time ns={of.value} />
      </span>
      <span class="r d2">
        <Share of={total ? of.value / total : NaN} />
      </span>
    </>
  );
}

/** `wide`: long names. */
export function ShareBars<Part extends Slice>({
  of,
  total,
  summary,
  onPick,
  wide,
}: SharesProps<Part> & { wide?: boolean }) {
  const most = Math.max(1, ...of.map((one) => one.value));
  return (
    <div class="opbars" role="img" aria-label={summary}>
      {of.map((one) => (
        <button
          key={one.key}
          class={`opbar ${wide ? "wide" : ""}`}
          onClick={() => onPick(one)}
          title={one.name ?? one.label}
        >
          <span class={`cut ${one.code ? "mono" : ""}`}>{one.label}</span>
          <span class="track">
            <i style={{ width: `${(one.value / most) * 100}%`, background: one.color }} />
          </span>
          <Figures of={one} total={total} />
        </button>
      ))}
    </div>
  );
}

export function ShareRing<Part extends Slice>({
  of,
  total,
  summary,
  onPick,
  list,
}: SharesProps<Part> & { list: string }) {
  const written = units.time(total);
  return (
    <div class="oppie">
      <Ring
        slices={of.map((one) => ({ name: one.label, value: one.value, color: one.color }))}
        total={written.value}
        unit={written.unit}
        label={summary}
        onPick={(label) => {
          const slice = of.find((one) => one.label === label);
          if (slice) onPick(slice);
        }}
      />
      <div class={`oplist ${list}`}>
        {of.map((one) => (
          <button
            key={one.key}
            class={`one ${one.on ? "on" : ""}`}
            onClick={() => onPick(one)}
            title={one.name ?? one.label}
          >
            <Swatch color={one.color} />
            <span class={`cut ${one.code ? "mono" : ""}`}>{one.label}</span>
            <Figures of={one} total={total} />
          </button>
        ))}
      </div>
    </div>
  );
}

/** The largest shares in words. */
export function shareSummary(title: string, of: Slice[], total: number): string {
  const texts = of.slice(0, 5).map((one) => `${one.label} ${units.text(units.share(total ? one.value / total : NaN))}`);
  return `${title}: ${texts.join(", ")}`;
}
