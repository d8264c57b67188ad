/** Queries that were run and saved. */
import { Icon } from "../parts/icon";
import { Menu } from "../parts/menu";
import { remember, remembered } from "../state";
import { strings } from "../strings";
import { useState } from "preact/hooks";

const text = strings("query");

interface SavedQuery {
  name: string;
  sql: string;
}

const HISTORY = 50;

// Queries of the history and saved queries, on this machine only.

export function history(): string[] {
  return list<string>("sql.history");
}

export function addToHistory(sql: string): void {
  remember(
    "sql.history",
    JSON.stringify([sql.trim(), ...history().filter((item) => item !== sql.trim())].slice(0, HISTORY)),
  );
}

function list<Item>(key: string): Item[] {
  try {
    const known = JSON.parse(remembered(key) ?? "[]") as Item[];
    return Array.isArray(known) ? known : [];
  } catch {
    return [];
  }
}

export function Saved({ sql, ask }: { sql: string; ask: (sql: string) => void }) {
  const t = text();
  const [kept, setKept] = useState(() => list<SavedQuery>("sql.saved"));
  const keep = (next: SavedQuery[]) => {
    remember("sql.saved", JSON.stringify(next));
    setKept(next);
  };
  return (
    <Menu button={t.saved} label={t.saved} class="sm" align="right">
      {(close) => (
        <>
          {kept.map((item) => (
            <div key={item.name} class="savedrow">
              <button
                class="item"
                title={item.sql}
                onClick={() => {
                  close();
                  ask(item.sql);
                }}
              >
                {item.name}
              </button>
              <button
                class="pick bare sm"
                aria-label={`${t.remove}: ${item.name}`}
                onClick={() => keep(kept.filter((other) => other.name !== item.name))}
              >
                <Icon name="close" size={11} />
              </button>
            </div>
          ))}
          {!kept.length && <span class="item d3">{t.noSaved}</span>}
          <form
            class="steprange"
            onSubmit={(event) => {
              event.preventDefault();
              const name = String(new FormData(event.currentTarget).get("name")).trim();
              if (!name) return;
              keep([...kept.filter((item) => item.name !== name), { name, sql: sql.trim() }]);
              close();
            }}
          >
            <input name="name" type="text" placeholder={t.name} aria-label={t.name} />
            <button class="btn sm pri">{t.save}</button>
          </form>
        </>
      )}
    </Menu>
  );
}
