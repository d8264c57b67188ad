/** Numbers with their unit, and the exact value on hover. */
import { strings } from "../strings";
import * as units from "../units";

const text = strings("basics");

/** A number with its unit; the exact value on hover. */
export function Quantity({
  value,
  as,
  unit,
  why,
}: {
  value: number;
  as: units.Quantity;
  unit?: units.TimeUnit;
  why?: string;
}) {
  const written = units.write(value, as, unit);
  const missing = !Number.isFinite(value);
  return (
    <span class="q" title={missing ? (why ?? text().missing) : units.exact(value, as)}>
      {written.value}
      {missing && <span class="sr">{why ?? text().missing}</span>}
      {written.unit && (
        <span class="u">
          {units.THIN}
          {written.unit}
        </span>
      )}
    </span>
  );
}

type Of<Name extends string> = { [Key in Name]: number } & { why?: string };

export const Time = ({ ns, unit, why }: Of<"ns"> & { unit?: units.TimeUnit }) => (
  <Quantity value={ns} as="time" unit={unit} why={why} />
);

export const Bytes = ({ of, why }: Of<"of">) => <Quantity value={of} as="bytes" why={why} />;

export const Share = ({ of, why }: Of<"of">) => <Quantity value={of} as="share" why={why} />;

export const Count = ({ of, why }: Of<"of">) => <Quantity value={of} as="count" why={why} />;
