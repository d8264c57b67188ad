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
  const most = Math.max(1, ...of.map((item) => item.value));
  return (
    <div class="opbars" role="img" aria-label={summary}>
      {of.map((item) => (
        <button
          key={item.key}
          class={`opbar ${wide ? "wide" : ""}`}
          onClick={() => onPick(item)}
          title={item.name ?? item.label}
        >
          <span class={`cut ${item.code ? "mono" : ""}`}>{item.label}</span>
          <span class="track">
            <i style={{ width: `${(item.value / most) * 100}%`, background: item.color }} />
          </span>
          <Figures of={item} total={total} />
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
        slices={of.map((item) => ({ name: item.label, value: item.value, color: item.color }))}
        total={written.value}
        unit={written.unit}
        label={summary}
        onPick={(label) => {
          const slice = of.find((item) => item.label === label);
          if (slice) onPick(slice);
        }}
      />
      <div class={`oplist ${list}`}>
        {of.map((item) => (
          <button
            key={item.key}
            class={`one ${item.on ? "on" : ""}`}
            onClick={() => onPick(item)}
            title={item.name ?? item.label}
          >
            <Swatch color={item.color} />
            <span class={`cut ${item.code ? "mono" : ""}`}>{item.label}</span>
            <Figures of={item} total={total} />
          </button>
        ))}
      </div>
    </div>
  );
}

/** The largest shares in words. */
export function shareSummary(title: string, of: Slice[], total: number): string {
  const texts = of
    .slice(0, 5)
    .map((item) => `${item.label} ${units.text(units.share(total ? item.value / total : NaN))}`);
  return `${title}: ${texts.join(", ")}`;
}
