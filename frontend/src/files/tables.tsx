/** Tables, counters, devices and options of a recording. */
import { Chip, Empty, InlineBar } from "../parts/basics";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { Bytes, Count } from "../parts/quantity";
import { type Info, source } from "../source";
import { strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

const text = strings("files");

export function Counts({
  of,
  to,
  csv,
  color,
  head,
}: {
  of: Record<string, number>;
  to: (name: string) => string;
  csv?: (name: string) => string | null;
  color: (name: string) => string;
  head: [string, string];
}) {
  const t = text();
  const entries = Object.entries(of).sort((a, b) => b[1] - a[1]);
  const most = entries[0]?.[1] || 1;
  const asks = !source().isReport;
  return (
    <div class="scroll">
      <table>
        <thead>
          <tr>
            <th>{head[0]}</th>
            <th />
            <th>{head[1]}</th>
            {csv && asks && <th />}
          </tr>
        </thead>
        <tbody>
          {entries.map(([name, count]) => (
            <tr key={name}>
              <td class="mono">
                {asks && count > 0 ? (
                  <a href={to(name)} title={t.query}>
                    {name}
                  </a>
                ) : (
                  name
                )}
              </td>
              <td class="barcell">
                <InlineBar share={count / most} color={color(name)} />
              </td>
              <td>
                <Count of={count} />
              </td>
              {csv && asks && (
                <td>
                  {count > 0 && csv(name) && (
                    <a href={csv(name)!} download>
                      {t.download}
                    </a>
                  )}
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Devices({ run }: { run: Info }) {
  const t = text();
  const table = useMemo(() => {
    const number = (key: string) =>
      run.devices.map((device) => (device[key] === null || device[key] === undefined ? NaN : Number(device[key])));
    return Table.of({
      name: run.devices.map((device) => device.name),
      kind: run.devices.map((device) => device.kind),
      rank: number("rank"),
      device: number("device"),
      cores: number("cores"),
      memory_bytes: number("memory_bytes"),
      clock_hz: number("clock_hz"),
      peak_flops: number("peak_flops"),
      peak_bandwidth: number("peak_bandwidth"),
    });
  }, [run]);
  const columns: Column[] = [
    { key: "name", label: t.name, as: "text", width: "minmax(110px, 2fr)" },
    { key: "kind", label: t.kind, as: "text", width: "56px" },
    { key: "rank", label: t.rank, width: "56px" },
    { key: "device", label: t.device, width: "66px" },
    { key: "cores", label: t.cores, width: "56px" },
    { key: "memory_bytes", label: t.memory, width: "78px" },
    { key: "clock_hz", label: t.clock, show: (rows, row) => <Hertz of={rows.num("clock_hz")[row]} /> },
    { key: "peak_flops", label: t.peak, as: "flopsRate" },
    { key: "peak_bandwidth", label: t.bandwidth, as: "rate" },
  ];
  return (
    <Grid
      id="devices"
      bare
      table={table}
      columns={columns.filter(
        (column) =>
          ["name", "kind", "rank", "memory_bytes"].includes(column.key) ||
          table.num(column.key).some((value) => !Number.isNaN(value)),
      )}
      label={t.devices}
    />
  );
}

const Hertz = ({ of }: { of: number }) =>
  Number.isNaN(of) ? (
    <>–</>
  ) : (
    <span title={`${of} Hz`}>
      {units.count(Number((of / 1e6).toPrecision(4))).value}
      <span class="u">{units.THIN}MHz</span>
    </span>
  );

/** Options and other metadata of the source as text. */
export function Pairs({ of, id }: { of: Record<string, unknown>; id: string }) {
  const t = text();
  const entries = Object.entries(of).filter(
    ([, value]) =>
      value !== null && value !== undefined && !(typeof value === "object" && Object.keys(value).length === 0),
  );
  if (!entries.length)
    return (
      <div class="bd">
        <Empty title={t.nothing} height={72} />
      </div>
    );
  const write = (name: string, value: unknown): ComponentChildren => {
    if (typeof value === "boolean") return value ? <Chip tone="good">{t.on}</Chip> : <span class="d3">{t.off}</span>;
    if (typeof value === "number" && name.endsWith("_bytes")) return <Bytes of={value} />;
    const written = typeof value === "object" ? JSON.stringify(value) : String(value);
    return (
      <span class="mono cut" title={written}>
        {written}
      </span>
    );
  };
  return (
    <div class="scroll">
      <table id={`files-${id}`}>
        <tbody>
          {entries.map(([name, value]) => (
            <tr key={name}>
              <td class="mono">{name}</td>
              <td class="value">{write(name, value)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
