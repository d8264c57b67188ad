// page: {"order": 140, "group": "tools", "icon": "query", "ofSummary": true}
import "./query.css";
import { approve, isApproved } from "../approval";
import { info, shownSteps, useFetched } from "../data";
import examples from "../examples.json";
import { Card, CopyButton, copyText, Empty, Loading, Verdict } from "../parts/basics";
import { Menu } from "../parts/menu";
import { Count } from "../parts/quantity";
import { history, addToHistory, Saved } from "../query/history";
import { Result } from "../query/result";
import { type Listed, Schema } from "../query/schema";
import { type Params, source } from "../source";
import { go, link, param, place } from "../state";
import { fill, Sentence, strings, type Strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { useEffect, useRef, useState } from "preact/hooks";

const text = strings("query");
const titles = strings("examples");

export default function Query() {
  const t = text();
  const linkedSql = param("sql") ?? "";
  const requested = isApproved(linkedSql) ? linkedSql : "";
  const [sql, setSql] = useState(linkedSql || examples[0].sql);
  const box = useRef<HTMLTextAreaElement>(null);
  const part: Params = {
    rank: param("rank") === undefined ? null : Number(param("rank")),
    steps: shownSteps() ?? null,
  };
  const run = place.value.run!;
  const began = useRef(0);
  const [took, setTook] = useState(NaN);
  const answer = useFetched<Table>(
    requested ? `${run}\nquery\n${JSON.stringify([requested, part])}` : null,
    async () => {
      began.current = performance.now();
      const result = await source().query(run, requested, part);
      setTook((performance.now() - began.current) * 1e6);
      return result;
    },
  );
  const analyses = useFetched<Listed[]>(
    source().isReport ? null : "\nanalyses",
    async () => ((await (await fetch("api/analyses")).json()) as { analyses: Listed[] }).analyses,
  );
  useEffect(() => void (linkedSql && setSql(linkedSql)), [linkedSql]);
  const ask = (question: string, more: Record<string, string | null> = {}) => {
    if (!question.trim()) return;
    setSql(question);
    addToHistory(question);
    approve(question.trim());
    // The query of a link runs with the chart of the link.
    if (question.trim() !== linkedSql || requested)
      go({
        params: {
          sql: question.trim(),
          chart: null,
          x: null,
          y: null,
          "answer.sort": null,
          "answer.find": null,
          ...more,
        },
      });
  };
  const insert = (word: string) => {
    const area = box.current!;
    const [from, to] = [area.selectionStart, area.selectionEnd];
    const next = sql.slice(0, from) + word + sql.slice(to);
    setSql(next);
    requestAnimationFrame(() => {
      area.focus();
      area.setSelectionRange(from + word.length, from + word.length);
    });
  };
  if (source().isReport) {
    return (
      <>
        <Verdict>{t.still}</Verdict>
        <Card title={t.question}>
          <Empty title={t.still}>
            <Sentence
              template={t.stillHow}
              view={<code class="mono">stepscope view</code>}
              query={<code class="mono">stepscope query</code>}
            />
          </Empty>
        </Card>
      </>
    );
  }
  const facts = [
    part.rank !== null && fill(t.rank, { rank: Number(part.rank) }),
    part.steps !== null && fill(t.steps, { steps: String(part.steps).replace(":", "–") }),
  ].filter(Boolean);
  return (
    <>
      <Verdict
        facts={[
          facts.length ? facts.join(" · ") : t.whole,
          answer.data &&
            !answer.waiting &&
            Number.isFinite(took) &&
            fill(t.took, { time: units.text(units.time(took)) }),
          <Terminal sql={linkedSql} path={info.value!.path} />,
        ]}
      >
        <Headline
          asked={requested}
          linked={linkedSql !== "" && !requested}
          answer={answer}
          analyses={analyses.data?.length ?? NaN}
        />
      </Verdict>
      <div class="ask">
        <Schema analyses={analyses.data ?? []} insert={insert} />
        <div class="stack">
          <Card
            title={t.question}
            note={t.keys}
            tools={
              <>
                <Menu button={t.examples} label={t.examples} class="sm" align="right">
                  {(close) =>
                    examples.map((item) => (
                      <button
                        key={item.sql}
                        class="item"
                        onClick={() => {
                          close();
                          ask(item.sql, { chart: item.chart ?? null, x: item.x ?? null, y: item.y ?? null });
                        }}
                      >
                        {titles()[item.title as keyof Strings["examples"]]}
                      </button>
                    ))
                  }
                </Menu>
                <Menu button={t.history} label={t.history} class="sm" align="right">
                  {(close) =>
                    history().length ? (
                      history().map((item) => (
                        <button
                          key={item}
                          class="item mono"
                          title={item}
                          onClick={() => {
                            close();
                            ask(item);
                          }}
                        >
                          <span class="cut">{item.replace(/\s+/g, " ")}</span>
                        </button>
                      ))
                    ) : (
                      <span class="item d3">{t.noHistory}</span>
                    )
                  }
                </Menu>
                <Saved sql={sql} ask={ask} />
                <CopyButton
                  value={() => location.href.split("#")[0] + link({ params: { sql: sql.trim() } })}
                  label={t.link}
                />
                <button class="btn sm pri" onClick={() => ask(sql)}>
                  {answer.waiting && requested ? t.running : t.run}
                </button>
              </>
            }
          >
            <textarea
              ref={box}
              class="sql mono"
              value={sql}
              spellcheck={false}
              aria-label={t.editor}
              rows={Math.max(5, Math.min(18, sql.split("\n").length + 1))}
              onInput={(event) => setSql(event.currentTarget.value)}
              onKeyDown={(event) => {
                if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
                  event.preventDefault();
                  ask(event.currentTarget.value);
                }
              }}
            />
            {answer.error && (
              <div class="trouble" role="alert">
                <b>SQL</b>
                <span class="mono">{answer.error.message}</span>
              </div>
            )}
          </Card>
          {linkedSql !== "" && !requested ? (
            <Card title={t.result}>
              <Empty title={t.linked}>{t.linkedNote}</Empty>
            </Card>
          ) : requested === "" ? (
            <Card title={t.begin} flush>
              <div class="begin">
                {examples.map((item) => (
                  <button
                    key={item.sql}
                    class="item"
                    onClick={() => ask(item.sql, { chart: item.chart ?? null, x: item.x ?? null, y: item.y ?? null })}
                  >
                    <b>{titles()[item.title as keyof Strings["examples"]]}</b>
                    <span class="mono d3 cut" title={item.sql}>
                      {item.sql.replace(/\s+/g, " ")}
                    </span>
                  </button>
                ))}
              </div>
            </Card>
          ) : answer.data ? (
            <div class={answer.waiting ? "stale" : "fresh"}>
              <Result table={answer.data} />
            </div>
          ) : (
            !answer.error && (
              <Card title={t.result}>
                <Loading what={t.wait} />
              </Card>
            )
          )}
        </div>
      </div>
    </>
  );
}

function Headline({
  asked,
  linked,
  answer,
  analyses,
}: {
  asked: string;
  linked: boolean;
  answer: { data: Table | null; error: Error | null };
  analyses: number;
}) {
  const t = text();
  if (linked) return <>{t.linked}</>;
  if (asked && answer.error) return <>{t.wrong}</>;
  if (asked && answer.data?.rows === 0) return <>{t.nothing}</>;
  if (asked && answer.data)
    return (
      <Sentence
        template={t.answered}
        rows={
          <b>
            <Count of={answer.data.rows} />
          </b>
        }
        columns={<b>{answer.data.names.length}</b>}
      />
    );
  return (
    <Sentence
      template={t.ask}
      tables={<b>{Object.keys(info.value!.tables).length}</b>}
      analyses={<b>{Number.isNaN(analyses) ? "–" : analyses}</b>}
    />
  );
}

function Terminal({ sql, path }: { sql: string; path: string }) {
  const quote = (word: string) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);
  const command = `stepscope query ${quote(path)} ${quote(sql.replace(/\s+/g, " ") || "select ...")}`;
  return (
    <Sentence
      template={text().also}
      command={
        <button class="aslink mono" title={command} onClick={() => void copyText(command)}>
          stepscope query
        </button>
      }
    />
  );
}
