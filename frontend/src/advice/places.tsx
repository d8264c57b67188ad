/** Places of a finding on the timeline. */
import { info } from "../data";
import { hasPage } from "../page_links";
import type { Change } from "../place";
import { link } from "../state";
import { fill, strings } from "../strings";
import * as units from "../units";
import { Fold } from "./fold";
import type { Spot } from "./rows";

const text = strings("advice");

/** The view of the timeline around a place. */
export function placeOf(spot: Spot): Change & { page: string } {
  const rank = (info.value?.ranks.length ?? 1) > 1 ? spot.rank : null;
  if (spot.start === null || spot.end === null) return { page: "timeline", params: { span: spot.span, rank } };
  const origin = BigInt(info.value!.origin_ns);
  const [from, to] = [Number(BigInt(spot.start) - origin), Number(BigInt(spot.end) - origin)];
  const around = Math.max((to - from) * 0.5, 1000);
  return {
    page: "timeline",
    params: {
      t0: Math.max(0, Math.floor(from - around)),
      t1: Math.ceil(to + around),
      area: `${from}:${to}`,
      rank,
    },
  };
}

export function Places({ of }: { of: Spot[] }) {
  const t = text();
  if (!of.length || !hasPage("timeline")) return null;
  return (
    <span class="adv-places">
      <a href={link(placeOf(of[0]))}>{t.timelineLongest}</a>
      {of.length > 1 && (
        <Fold title={fill(t.morePlaces, { count: of.length - 1 })}>
          {() => (
            <ol>
              {of.slice(1).map((spot, at) => (
                <li key={at}>
                  <a href={link(placeOf(spot))}>
                    {spot.step === null ? t.outsideSteps : fill(t.step, { step: spot.step })}
                    {spot.start !== null &&
                      ` · ${units.text(units.time(Number(BigInt(spot.end!) - BigInt(spot.start))))}`}
                  </a>
                </li>
              ))}
            </ol>
          )}
        </Fold>
      )}
    </span>
  );
}
