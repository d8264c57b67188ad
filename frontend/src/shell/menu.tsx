/** The menu of pages. */
import { Icon } from "../parts/icon";
import { hasData, NOT_IN_REPORT } from "../page_links";
import { type Info, source } from "../source";
import { link } from "../state";
import { strings } from "../strings";
import pages from "pages";
import { useEffect, useRef } from "preact/hooks";

const text = strings("shell");
const titles = strings("pages");

const GROUPS = ["", "performance", "resources", "cluster", "tools"] as const;

export function Nav({ current, info: now }: { current: string; info: Info | null }) {
  const t = text();
  const element = useRef<HTMLElement>(null);
  // In a narrow window the menu is a strip: the open page is scrolled into view.
  useEffect(
    () => element.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }),
    [current, now === null],
  );
  return (
    <nav class="nav" ref={element} aria-label={t.pages}>
      {GROUPS.map((group) => {
        const inside = pages.filter(
          (page) =>
            page.group === group && (page.alone || now) && !(source().isReport && NOT_IN_REPORT.includes(page.id)),
        );
        if (!inside.length) return null;
        return [
          group && <h3 key={group}>{t[group]}</h3>,
          ...inside.map((page) => {
            const off = !page.alone && now !== null && !hasData(page, now);
            return (
              <a
                key={page.id}
                class={`${page.id === current ? "on" : ""} ${off ? "off" : ""}`}
                href={page.alone && page.id === "runs" ? "#/" : link({ page: page.id })}
                aria-current={page.id === current ? "page" : undefined}
                title={titles()[page.id]}
              >
                <Icon name={page.icon} />
                <span class="label">{titles()[page.id]}</span>
                {off && <span class="n">{t.none}</span>}
              </a>
            );
          }),
        ];
      })}
      <div class="sp" />
      <span class="foot label">{t.version}</span>
    </nav>
  );
}
