/** Numbers with their unit, and the exact value on hover. */
import { strings } from "../strings";
import * as units from "../units";

const text = strings("basics");

interface QuantityProps {
  value: number;
  as: units.Quantity;
  unit?: units.TimeUnit;
  why?: string;
  /**
   * The name of a figure that several pages show, as the column of its analysis: tests compare them. It is that of the
   * chosen rank; that of another one has `@RANK`, that of the whole run `@all`.
   */
  figure?: string;
}

/** A number with its unit; the exact value on hover. */
export function Quantity({ value, as, unit, why, figure }: QuantityProps) {
  const written = units.write(value, as, unit);
  const missing = !Number.isFinite(value);
  return (
    <span class="q" title={missing ? (why ?? text().missing) : units.exact(value, as)} {...named(figure, value)}>
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

/** The attributes of a number that tests compare with the same figure on other pages. */
export function named(figure: string | undefined, value: number) {
  return figure === undefined ? {} : { "data-figure": figure, "data-value": `${value}` };
}

type Of<Name extends string> = { [Key in Name]: number } & { why?: string; figure?: string };

export const Time = ({ ns, ...more }: Of<"ns"> & { unit?: units.TimeUnit }) => (
  <Quantity value={ns} as="time" {...more} />
);

export const Bytes = ({ of, ...more }: Of<"of">) => <Quantity value={of} as="bytes" {...more} />;

export const Share = ({ of, ...more }: Of<"of">) => <Quantity value={of} as="share" {...more} />;

export const Count = ({ of, ...more }: Of<"of">) => <Quantity value={of} as="count" {...more} />;
