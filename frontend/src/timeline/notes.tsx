/** Notes and downloads. */
import { info } from "../data";
import { Icon } from "../parts/icon";
import { Menu } from "../parts/menu";
import { source } from "../source";
import { fill, strings } from "../strings";
import * as units from "../units";
import { setMarks } from "./navigation";
import type { Timeline } from "./model";
import { exported, InPerfetto } from "./perfetto";
import { save } from "./image";

const text = strings("timeline");

export function Notes({ of }: { of: Timeline }) {
  const t = text();
  const marks = of.marks.value;
  if (!marks.length) return null;
  return (
    <Menu
      label={t.notes}
      class="sm"
      align="right"
      arrow={false}
      button={
        <>
          {t.notes} {marks.length}
        </>
      }
    >
      {(close) => (
        <div class="tl-list">
          {marks.map((mark) => (
            <div key={`${mark.t0} ${mark.t1}`} class="item tl-note">
              <button
                class="btn sm"
                onClick={() => {
                  of.sight.focus({ start: mark.t0, dur: mark.t1 - mark.t0 });
                  close();
                }}
              >
                {units.text(units.time(mark.t1 - mark.t0))}
              </button>
              <input
                type="text"
                aria-label={t.note}
                placeholder={t.note}
                value={mark.text}
                onChange={(event) =>
                  setMarks(
                    of,
                    marks.map((item) => (item === mark ? { ...mark, text: event.currentTarget.value } : item)),
                  )
                }
              />
              <button
                class="tl-turn"
                aria-label={t.remove}
                title={t.remove}
                onClick={() =>
                  setMarks(
                    of,
                    marks.filter((item) => item !== mark),
                  )
                }
              >
                <Icon name="close" size={11} />
              </button>
            </div>
          ))}
        </div>
      )}
    </Menu>
  );
}

export function Downloads({ of }: { of: Timeline }) {
  const t = text();
  const base = `api/runs/${encodeURIComponent(of.run)}`;
  const { t0, t1 } = of.sight.seen.value;
  const area = of.area.value;
  return (
    <Menu
      label={t.download}
      class="sm"
      align="right"
      arrow={false}
      button={
        <>
          <Icon name="export" size={13} />
          {t.download}
        </>
      }
    >
      {(close) => (
        <>
          {!source().isReport && (
            <>
              <a class="item" href={`${base}/${exported(of, t0, t1)}`} download onClick={close}>
                {t.chromeView}
              </a>
              {area && (
                <a class="item" href={`${base}/${exported(of, area.t0, area.t1)}`} download onClick={close}>
                  {t.chromeArea}
                </a>
              )}
              <a class="item" href={`${base}/${exported(of, null, null)}`} download onClick={close}>
                {t.chromeAll}
              </a>
              {of.scopes.value > 0 && of.header.lanes.some((lane) => lane.kind === "scope") && (
                <span class="item d3 small">{fill(t.withScopes, { count: of.scopes.value })}</span>
              )}
              <InPerfetto of={of} close={close} />
            </>
          )}
          <button
            class="item"
            onClick={() => {
              void save(of, `${info.value?.name ?? "timeline"}.png`);
              close();
            }}
          >
            {t.png}
          </button>
        </>
      )}
    </Menu>
  );
}
