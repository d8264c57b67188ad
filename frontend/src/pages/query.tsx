// page: {"order": 140, "group": "tools", "icon": "query", "en": "Query", "zh": "查询"}
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import examples from "../examples.json";
import { color } from "../colors";
import { approve, isApproved } from "../approved";
import { info, ranged, useAnswer } from "../data";
import { Card, copyText, CopyButton, Count, Empty, Icon, InlineBar, Loading, Quantity, Segmented, Verdict } from "../parts/basics";
import { Grid, save, type Column } from "../parts/grid";
import { Menu } from "../parts/menu";
import { Series } from "../parts/series";
import { source, type Params } from "../source";
import { go, language, link, param, place, remember, remembered } from "../state";
import { Table } from "../table";
import { fill, Say, texts } from "../text";
import * as units from "../units";
import "./query.css";

const text = texts({
  en: {
    ask: "Ask the recording in SQL: {tables} [table|tables] and {analyses} [analysis|analyses], each one a table.", answered: "{rows} [row|rows] and {columns} [column|columns].", nothing: "The question has an answer without rows.", wrong: "This question cannot be answered as it stands.", still: "A report answers no questions",
    stillHow: "Open the run itself with {view}, or ask it in a terminal with {query}.", whole: "all ranks and steps", rank: "rank {rank}", steps: "steps {steps}", took: "answered in {time}", also: "the same in a terminal: {command} (click to copy)",
    question: "Question", run: "Run", running: "Running…", keys: "Ctrl Enter runs", examples: "Examples", history: "History", saved: "Saved", save: "Save", name: "Name for this question", remove: "Remove", noHistory: "Nothing asked yet", noSaved: "Nothing saved yet", link: "Copy link", editor: "SQL",
    tables: "Tables", analyses: "Analyses", find: "Find a table or column", insert: "Click to insert", rowsOf: "{count} [row|rows]",
    result: "Answer", table: "Table", bar: "Bars", line: "Line", view: "View", x: "Along", y: "Value", csv: "Download CSV", chartOf: "{y} by {x}", first: "the first {some} of {all} [row|rows], in the order of the answer", timeline: "Timeline", here: "show", wait: "Asking…", noNumber: "No column of the answer holds numbers to draw", begin: "Write a question, or begin with one of these", what: "row|rows", linked: "The query of this link has not been run.", linkedNote: "Queries from links do not run on their own. Read this one, then press Run.",
  },
  zh: {
    ask: "用 SQL 查询记录：{tables} 个表和 {analyses} 个分析，每个分析都是一个表。", answered: "{rows} 行，{columns} 列。", nothing: "查询结果没有行。", wrong: "无法回答这个查询。", still: "报告不能回答查询",
    stillHow: "用 {view} 打开训练本身，或在终端用 {query} 查询。", whole: "全部 rank 和迭代", rank: "rank {rank}", steps: "迭代 {steps}", took: "用时 {time}", also: "终端中同样的查询：{command}（点击复制）",
    question: "查询", run: "运行", running: "正在运行…", keys: "Ctrl Enter 运行", examples: "示例", history: "历史", saved: "已保存", save: "保存", name: "查询名称", remove: "删除", noHistory: "还没有查询过", noSaved: "还没有保存", link: "复制链接", editor: "SQL",
    tables: "表", analyses: "分析", find: "查找表或列", insert: "点击插入", rowsOf: "{count} 行",
    result: "结果", table: "表格", bar: "柱", line: "线", view: "视图", x: "横轴", y: "数值", csv: "下载 CSV", chartOf: "{y}（按 {x}）", first: "按结果顺序的前 {some} 行，共 {all} 行", timeline: "时间线", here: "显示", wait: "正在查询…", noNumber: "结果中没有可绘制的数值列", begin: "写一个查询，或从下面开始", what: "行", linked: "此链接中的查询尚未运行。", linkedNote: "链接中的查询不会自动运行。请确认内容后点击“运行”。",
  },
});

interface Listed {
  name: string;
  question: string;
  columns: { name: string; type: string }[];
}

interface Kept {
  name: string;
  sql: string;
}

// Columns whose words have a colour of their own.
const OPERATORS = ["name", "type", "op", "op_type", "operator"];
const BARS = 40;
const HISTORY = 50;

export default function Query() {
  const t = text();
  const given = param("sql") ?? "";
  const asked = isApproved(given) ? given : "";
  const [sql, setSql] = useState(given || examples[0].sql);
  const box = useRef<HTMLTextAreaElement>(null);
  const part: Params = { rank: param("rank") === undefined ? null : Number(param("rank")), steps: ranged() ?? null };
  const run = place.value.run!;
  const began = useRef(0);
  const [took, setTook] = useState(NaN);
  const answer = useAnswer<Table>(asked ? `${run}\nquery\n${JSON.stringify([asked, part])}` : null, async () => {
    began.current = performance.now();
    const found = await source().query(run, asked, part);
    setTook((performance.now() - began.current) * 1e6);
    return found;
  });
  const analyses = useAnswer<Listed[]>(source().still ? null : "\nanalyses", async () => ((await (await fetch("api/analyses")).json()) as { analyses: Listed[] }).analyses);
  useEffect(() => void (given && setSql(given)), [given]);
  const ask = (question: string, more: Record<string, string | null> = {}) => {
    if (!question.trim()) return;
    setSql(question);
    note(question);
    approve(question.trim());
    // The query of a link is run as the link says: with its chart.
    if (question.trim() !== given || asked) go({ params: { sql: question.trim(), chart: null, x: null, y: null, "answer.sort": null, "answer.find": null, ...more } });
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
  if (source().still) {
    return (
      <>
        <Verdict>{t.still}</Verdict>
        <Card title={t.question}><Empty title={t.still}><Say of={t.stillHow} view={<code class="mono">stepscope view</code>} query={<code class="mono">stepscope query</code>} /></Empty></Card>
      </>
    );
  }
  const said = [part.rank !== null && fill(t.rank, { rank: Number(part.rank) }), part.steps !== null && fill(t.steps, { steps: String(part.steps).replace(":", "–") })].filter(Boolean);
  return (
    <>
      <Verdict facts={[said.length ? said.join(" · ") : t.whole, answer.data && !answer.waiting && Number.isFinite(took) && fill(t.took, { time: units.text(units.time(took)) }), <Terminal sql={given} path={info.value!.path} />]}>
        <Sentence asked={asked} linked={given !== "" && !asked} answer={answer} analyses={analyses.data?.length ?? NaN} />
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
                  {(close) => examples.map((one) => <button key={one.sql} class="item" onClick={() => { close(); ask(one.sql, { chart: one.chart ?? null, x: one.x ?? null, y: one.y ?? null }); }}>{one[language()]}</button>)}
                </Menu>
                <Menu button={t.history} label={t.history} class="sm" align="right">
                  {(close) => (history().length ? history().map((one) => <button key={one} class="item mono" title={one} onClick={() => { close(); ask(one); }}><span class="cut">{one.replace(/\s+/g, " ")}</span></button>) : <span class="item d3">{t.noHistory}</span>)}
                </Menu>
                <Saved sql={sql} ask={ask} />
                <CopyButton value={() => location.href.split("#")[0] + link({ params: { sql: sql.trim() } })} label={t.link} />
                <button class="btn sm pri" onClick={() => ask(sql)}>{answer.waiting && asked ? t.running : t.run}</button>
              </>
            }
          >
            <textarea
              ref={box} class="sql mono" value={sql} spellcheck={false} aria-label={t.editor} rows={Math.max(5, Math.min(18, sql.split("\n").length + 1))}
              onInput={(event) => setSql(event.currentTarget.value)}
              onKeyDown={(event) => {
                if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
                  event.preventDefault();
                  ask(event.currentTarget.value);
                }
              }}
            />
            {answer.error && <div class="trouble" role="alert"><b>SQL</b><span class="mono">{answer.error.message}</span></div>}
          </Card>
          {given !== "" && !asked ? (
            <Card title={t.result}><Empty title={t.linked}>{t.linkedNote}</Empty></Card>
          ) : asked === "" ? (
            <Card title={t.begin} flush>
              <div class="begin">
                {examples.map((one) => <button key={one.sql} class="item" onClick={() => ask(one.sql, { chart: one.chart ?? null, x: one.x ?? null, y: one.y ?? null })}><b>{one[language()]}</b><span class="mono d3 cut" title={one.sql}>{one.sql.replace(/\s+/g, " ")}</span></button>)}
              </div>
            </Card>
          ) : answer.data ? (
            <div class={answer.waiting ? "stale" : "fresh"}><Answer table={answer.data} /></div>
          ) : (
            !answer.error && <Card title={t.result}><Loading what={t.wait} /></Card>
          )}
        </div>
      </div>
    </>
  );
}

function Sentence({ asked, linked, answer, analyses }: { asked: string; linked: boolean; answer: { data: Table | null; error: Error | null }; analyses: number }) {
  const t = text();
  if (linked) return <>{t.linked}</>;
  if (asked && answer.error) return <>{t.wrong}</>;
  if (asked && answer.data?.rows === 0) return <>{t.nothing}</>;
  if (asked && answer.data) return <Say of={t.answered} rows={<b><Count of={answer.data.rows} /></b>} columns={<b>{answer.data.names.length}</b>} />;
  return <Say of={t.ask} tables={<b>{Object.keys(info.value!.tables).length}</b>} analyses={<b>{Number.isNaN(analyses) ? "–" : analyses}</b>} />;
}

function Terminal({ sql, path }: { sql: string; path: string }) {
  const quote = (word: string) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);
  const command = `stepscope query ${quote(path)} ${quote(sql.replace(/\s+/g, " ") || "select ...")}`;
  return <Say of={text().also} command={<button class="aslink mono" title={command} onClick={() => void copyText(command)}>stepscope query</button>} />;
}

// What was asked and what is kept, on this machine only.

function history(): string[] {
  return list<string>("sql.history");
}

function note(sql: string): void {
  remember("sql.history", JSON.stringify([sql.trim(), ...history().filter((one) => one !== sql.trim())].slice(0, HISTORY)));
}

function list<Item>(key: string): Item[] {
  try {
    const known = JSON.parse(remembered(key) ?? "[]") as Item[];
    return Array.isArray(known) ? known : [];
  } catch {
    return [];
  }
}

function Saved({ sql, ask }: { sql: string; ask: (sql: string) => void }) {
  const t = text();
  const [kept, setKept] = useState(() => list<Kept>("sql.saved"));
  const keep = (next: Kept[]) => {
    remember("sql.saved", JSON.stringify(next));
    setKept(next);
  };
  return (
    <Menu button={t.saved} label={t.saved} class="sm" align="right">
      {(close) => (
        <>
          {kept.map((one) => (
            <div key={one.name} class="savedrow">
              <button class="item" title={one.sql} onClick={() => { close(); ask(one.sql); }}>{one.name}</button>
              <button class="pick bare sm" aria-label={`${t.remove}: ${one.name}`} onClick={() => keep(kept.filter((other) => other.name !== one.name))}><Icon name="close" size={11} /></button>
            </div>
          ))}
          {!kept.length && <span class="item d3">{t.noSaved}</span>}
          <form
            class="steprange"
            onSubmit={(event) => {
              event.preventDefault();
              const name = String(new FormData(event.currentTarget).get("name")).trim();
              if (!name) return;
              keep([...kept.filter((one) => one.name !== name), { name, sql: sql.trim() }]);
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

/** What can be asked: tables of the recording with their rows, analyses with their question. */
function Schema({ analyses, insert }: { analyses: Listed[]; insert: (word: string) => void }) {
  const t = text();
  const [find, setFind] = useState("");
  const [open, setOpen] = useState<string | null>(null);
  const tables = info.value!.tables;
  const fits = (name: string, columns: string[] = []) => !find || [name, ...columns].some((word) => word.includes(find.toLowerCase()));
  const shown = analyses.filter((one) => fits(one.name, one.columns.map((column) => column.name)));
  const row = (name: string, note: string, title: string, columns: { name: string; type: string }[] | null) => (
    <div key={name} class="schemarow">
      <div class="schemahead">
        <button class="fold" aria-expanded={open === name} aria-label={name} onClick={() => setOpen(open === name ? null : name)}><Icon name={open === name ? "down" : "right"} size={12} /></button>
        <button class="aslink mono cut" title={`${title ? `${title}\n` : ""}${t.insert}`} onClick={() => insert(name)}>{name}</button>
        <span class="sp" />
        <span class="d3 small">{note}</span>
      </div>
      {open === name && (columns ? <Columns of={columns} insert={insert} /> : <TableColumns name={name} insert={insert} />)}
    </div>
  );
  return (
    <Card title={t.tables} class="schema" flush>
      <label class="pick find"><Icon name="search" size={13} /><input type="search" placeholder={t.find} aria-label={t.find} value={find} onInput={(event) => setFind(event.currentTarget.value)} /></label>
      <div class="schemalist">
        {Object.keys(tables).filter((name) => fits(name)).map((name) => row(name, units.count(tables[name]).value, fill(t.rowsOf, { count: units.count(tables[name]).value }), null))}
        {shown.length > 0 && <h3>{t.analyses}</h3>}
        {shown.map((one) => row(one.name, "", one.question, one.columns))}
      </div>
    </Card>
  );
}

function TableColumns({ name, insert }: { name: string; insert: (word: string) => void }) {
  const run = place.value.run!;
  const asked = useAnswer<Table>(`${run}\ncolumns\n${name}`, () => source().table(run, `tables/${name}`, { limit: 0 }));
  return asked.data ? <Columns of={asked.data.names.map((column) => ({ name: column, type: "" }))} insert={insert} /> : null;
}

function Columns({ of, insert }: { of: { name: string; type: string }[]; insert: (word: string) => void }) {
  return (
    <ul class="columns">
      {of.map((column) => <li key={column.name}><button class="aslink mono" onClick={() => insert(column.name)}>{column.name}</button><span class="d3 small">{column.type}</span></li>)}
    </ul>
  );
}

type View = "table" | "bar" | "line";

function Answer({ table }: { table: Table }) {
  const t = text();
  const numbers = table.names.filter((name) => !table.isText(name) && !table.blank(name));
  const said = param("chart");
  const view: View = said === "bar" || said === "line" ? said : "table";
  const words = table.names.filter((name) => table.isText(name));
  const y = numbers.includes(param("y") ?? "") ? param("y")! : (numbers.find((name) => name.endsWith("_ns") && !/start_ns|end_ns|at_ns/.test(name)) ?? numbers[numbers.length - 1]);
  const along = view === "line" ? numbers : table.names;
  const x = along.includes(param("x") ?? "") ? param("x")! : ((view === "line" ? numbers.find((name) => name !== y) : words[0]) ?? along[0]);
  const columns: Column[] = table.names.map((name) => ({ key: name, label: name, as: table.isText(name) ? "name" : undefined }));
  if (table.has("start_ns")) columns.push({ key: "\ttimeline", label: t.timeline, width: "80px", show: (rows, row) => <a href={link({ page: "timeline", params: where(rows, row) })}>{t.here}</a> });
  const pick = (name: string, value: string, of: string[], label: string) => (
    <label class="small d2">{label} <select value={value} onChange={(event) => go({ params: { [name]: event.currentTarget.value } }, true)}>{of.map((one) => <option key={one} value={one}>{one}</option>)}</select></label>
  );
  const tools = (
    <>
      {view !== "table" && y && <>{pick("x", x, along, t.x)}{pick("y", y, numbers, t.y)}</>}
      <Segmented<View> label={t.view} value={view} onChange={(id) => go({ params: { chart: id === "table" ? null : id } }, true)} choices={[{ id: "table", label: t.table }, { id: "bar", label: t.bar, off: !numbers.length }, { id: "line", label: t.line, off: numbers.length < 2 }]} />
      <button class="btn sm" onClick={() => save("query.csv", table.csv())}>{t.csv}</button>
    </>
  );
  return (
    <Card title={view === "table" || !y ? t.result : fill(t.chartOf, { x, y })} tools={tools} flush={view === "table"}>
      {view === "bar" && (y ? <Bars table={table} x={x} y={y} /> : <Empty title={t.noNumber} />)}
      {view === "line" && (y ? <Lines table={table} x={x} y={y} /> : <Empty title={t.noNumber} />)}
      <div class={view === "table" ? "" : "below"}>
        <Grid id="answer" table={table} columns={columns} search={words} what={t.what} label={t.result} />
      </div>
    </Card>
  );
}

/** Where a row is on the timeline. */
function where(table: Table, row: number): { t0: number; t1: number; span?: string } {
  const from = table.num("start_ns")[row];
  const length = [table.num("dur_ns")[row], table.num("end_ns")[row] - from, table.num("step_ns")[row]].find((value) => Number.isFinite(value)) ?? 1e6;
  return { t0: Math.round(from), t1: Math.round(from + length), ...(table.has("span") ? { span: table.raw("span", row) } : {}) };
}

function Bars({ table, x, y }: { table: Table; x: string; y: string }) {
  const t = text();
  const values = table.num(y);
  const count = Math.min(BARS, table.rows);
  const high = Array.from({ length: count }, (_, row) => Math.abs(values[row]) || 0).reduce((a, b) => Math.max(a, b), 0) || 1;
  const as = units.quantityOf(y);
  return (
    <>
      <div class="bars" role="img" aria-label={fill(t.chartOf, { x, y })}>
        {Array.from({ length: count }, (_, row) => {
          const name = table.isText(x) ? (table.str(x)[row] ?? "–") : units.text(units.write(table.num(x)[row], units.quantityOf(x)));
          return (
            <div key={row}>
              <span class="cut mono" title={name}>{name}</span>
              <InlineBar share={Math.abs(values[row]) / high} color={OPERATORS.includes(x) ? color(name) : "var(--kind-compute)"} />
              <span class="r"><Quantity value={values[row]} as={as} /></span>
            </div>
          );
        })}
      </div>
      {table.rows > count && <p class="d3 small">{fill(t.first, { some: count, all: units.count(table.rows).value })}</p>}
    </>
  );
}

function Lines({ table, x, y }: { table: Table; x: string; y: string }) {
  const sorted = useMemo(() => {
    const along = table.num(x);
    const rows = table.where((row) => !Number.isNaN(along[row])).sort((a, b) => along[a] - along[b]);
    return { x: Float64Array.from(rows, (row) => along[row]), y: Float64Array.from(rows, (row) => table.num(y)[row]) };
  }, [table, x, y]);
  const time = units.quantityOf(x) === "time";
  return <Series x={sorted.x} lines={[{ label: y, values: sorted.y, color: "--kind-compute" }]} as={units.quantityOf(y)} xAs={time ? "time" : "count"} height={260} label={fill(text().chartOf, { x, y })} />;
}
