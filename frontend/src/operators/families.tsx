/** Time by family and type, and the headline. */
import { type Family } from "../colors";
import { PLURAL, familyNamesInSentence } from "../families";
import { Share } from "../parts/quantity";
import { Sentence, strings } from "../strings";
import { Table } from "../table";

const text = strings("operators");

const MATH: Family[] = ["matmul", "conv", "attention"];

export interface Sum {
  key: string;
  label: string;
  value: number;
  calls: number;
  share: number;
  color: string;
}

export function familySums(
  table: Table,
  key: (row: number) => string,
  label: (key: string) => string,
  shade: (key: string) => string,
): Sum[] {
  const found = new Map<string, Sum>();
  const time = table.num("self_ns"),
    calls = table.num("calls"),
    share = table.num("share");
  for (let row = 0; row < table.rows; row++) {
    const name = key(row);
    let one = found.get(name);
    if (!one)
      found.set(
        name,
        (one = {
          key: name,
          label: label(name),
          value: 0,
          calls: 0,
          share: 0,
          get color() {
            return shade(name);
          },
        }),
      );
    one.value += time[row];
    one.calls += calls[row];
    one.share += share[row];
  }
  return [...found.values()].sort((a, b) => b.value - a.value);
}

export function Headline({ families, total, host }: { families: Sum[]; total: number; host: boolean }) {
  const t = text();
  const words = familyNamesInSentence();
  const time = host ? t.onHost : t.onDevice;
  const [top, next] = families;
  const bold = (part: Sum) => (
    <b>
      <Share of={total ? part.value / total : NaN} />
    </b>
  );
  const many = PLURAL.includes(top.key as Family);
  const name = words[top.key as Family];
  if (!next) return <Sentence template={many ? t.aloneMany : t.alone} family={name} time={time} />;
  const math = families.find((one) => MATH.includes(one.key as Family));
  if (!math)
    return (
      <Sentence
        template={many ? t.noMathMany : t.noMath}
        family={name}
        share={bold(top)}
        time={time}
        next={words[next.key as Family]}
        small={bold(next)}
      />
    );
  if (math === top)
    return (
      <Sentence
        template={many ? t.usefulMany : t.useful}
        math={name}
        share={bold(top)}
        time={time}
        family={words[next.key as Family]}
        small={bold(next)}
      />
    );
  return (
    <Sentence
      template={many ? t.uselessMany : t.useless}
      family={name}
      share={bold(top)}
      time={time}
      math={words[math.key as Family]}
      small={bold(math)}
    />
  );
}
