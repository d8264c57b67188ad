/** The span under the pointer. */
import { Swatch } from "../parts/basics";
import { strings } from "../strings";
import * as units from "../units";
import { causeAt } from "./gaps";
import { shown } from "./labels";
import type { Timeline } from "./model";
import type { Hit } from "./scene";

const text = strings("timeline");

export function Hover({ of, hit, at }: { of: Timeline; hit: Hit; at: number }) {
  const t = text();
  const step = of.steps.find((item) => hit.start >= item.start && hit.start < item.end);
  const selected = of.selected.peek();
  const gap = hit.kind === "free" ? causeAt(of, hit.lane, at) : null;
  return (
    <>
      <div class="tl-tipname">
        <Swatch color={hit.color} hatch={hit.kind === "free"} />
        <span class="mono">{hit.kind === "scope" ? hit.name : shown(hit.name)}</span>
      </div>
      <dl class="kv">
        {hit.count <= 1 ? (
          <>
            <dt>{t.dur}</dt>
            <dd class="b">{units.text(units.time(hit.dur))}</dd>
            {step && hit.kind !== "step" && (
              <>
                <dt>
                  {t.shareOfStep} {step.step}
                </dt>
                <dd class="b">{units.text(units.share(hit.dur / Math.max(1, step.end - step.start)))}</dd>
              </>
            )}
          </>
        ) : (
          <>
            <dt>{t.number}</dt>
            <dd>
              <b>{units.count(hit.count).value}</b> {t.began}
            </dd>
            <dt>{t.busyHere}</dt>
            <dd class="b">{units.text(units.share(hit.busy))}</dd>
          </>
        )}
        {gap && (
          <>
            <dt>{t.causedBy}</dt>
            <dd class="b">{gap}</dd>
          </>
        )}
        {hit.kind && (
          <>
            <dt>{t.kind}</dt>
            <dd>{hit.kind}</dd>
          </>
        )}
        {selected && selected.start !== hit.start && hit.count <= 1 && (
          <>
            <dt>{t.after}</dt>
            <dd>
              {hit.start < selected.start ? "−" : "+"}
              {units.text(units.time(Math.abs(hit.start - selected.start)))}
            </dd>
          </>
        )}
      </dl>
    </>
  );
}
