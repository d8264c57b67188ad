// page: {"order": 0, "group": "", "icon": "runs", "alone": true}
import "./runs.css";
import { dropResults } from "../data";
import { Card, CopyButton, Loading, Trouble, Verdict } from "../parts/basics";
import { type Figures, keyOf, figuresByRun, figuresVersion, waiting } from "../runs/figures";
import { List, runTable } from "../runs/list";
import { Upload } from "../runs/upload";
import { type Run, source } from "../source";
import { fill, Sentence, strings } from "../strings";
import * as units from "../units";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";

const text = strings("runs");

export default function Runs() {
  const t = text();
  const [list, setList] = useState<Run[] | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const load = () =>
    source()
      .runs()
      .then((runs) => {
        dropResults(""); // the menu of runs fetches again
        setList(runs);
        setError(null);
      }, setError);
  useEffect(() => {
    void load();
    const close = source().listen("api/events", (event) => event === "runs" && void load());
    return () => {
      waiting.length = 0; // requests that have not started are dropped with the page
      for (const [key, value] of figuresByRun) if (value === "asked") figuresByRun.delete(key);
      close();
    };
  }, []);
  figuresVersion.value; // subscribes to new figures
  const table = useMemo(() => (list ? runTable(list) : null), [list, figuresVersion.value]);
  if (!list || !table) return error ? <Trouble error={error} /> : <Loading rows={12} />;
  const live = list.filter((run) => run.state === "live").length;
  const read = list
    .map((run) => figuresByRun.get(keyOf(run)))
    .filter((item): item is Figures => item !== undefined && item !== "asked" && "info" in item);
  const losing = read.filter((item) => item.verdict.some((row) => row.severity === "high")).length;
  const wrong = list.filter((run) => run.state === "unreadable").length;
  return (
    <div class="runs grid">
      <Verdict
        facts={[
          t.fact_drop,
          list.length > 1 && t.fact_tick,
          wrong > 0 && fill(t.unreadable, { count: wrong }),
          list.length > 30 && t.lazy,
        ]}
      >
        <Sentence
          template={list.length === 0 ? t.none : list.length === 1 ? t.one : t.some}
          count={<b>{units.count(list.length).value}</b>}
        />
        {live > 0 && (
          <>
            {" "}
            <Sentence template={live === 1 ? t.live : t.lives} count={<b>{live}</b>} />
          </>
        )}
        {losing > 0 && (
          <>
            {" "}
            <Sentence template={losing === 1 ? t.losing : t.losings} count={<b>{losing}</b>} />
          </>
        )}
      </Verdict>
      {error && <Trouble error={t.lost} />}
      <Upload>
        {(button) =>
          list.length ? <List list={list} table={table} button={button} /> : <HowToRecord button={button} />
        }
      </Upload>
    </div>
  );
}

function HowToRecord({ button }: { button: ComponentChildren }) {
  const t = text();
  const line = (command: string) => (
    <div class="codeline">
      <pre class="code">{command}</pre>
      <CopyButton value={command} />
    </div>
  );
  return (
    <Card title={t.recordTitle} tools={button}>
      <div class="runs-how">
        <ol>
          <li>
            {t.how1}
            {line("stepscope run train.py")}
          </li>
          <li>
            {t.how2}
            {line("stepscope run --steps 10:20 --memory --shapes train.py")}
          </li>
          <li>
            {t.how3}
            {line("stepscope view data")}
          </li>
          <li>{t.how4}</li>
        </ol>
      </div>
    </Card>
  );
}
