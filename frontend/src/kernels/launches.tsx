/** Launches and their delay. */
import { Empty, Swatch, Tile, Tiles } from "../parts/basics";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { Count, Share, Time } from "../parts/quantity";
import { shortName } from "../parts/shapes";
import { go, param } from "../state";
import { fill, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import type { Tone } from "../verdict";
import { add, shade } from "./activities";

const text = strings("kernels");

export function Launches({ data, tone }: { data: Table; tone: Tone }) {
  const t = text();
  if (!data.rows) return <Empty title={t.noLaunches}>{t.noLaunchesHow}</Empty>;
  const calls = add(data, "calls"),
    host = add(data, "host_bound_calls"),
    brief = add(data, "short_calls");
  const longest = data.num("delay_max_ns").reduce((most, item) => Math.max(most, item), 0);
  const columns: Column[] = [
    {
      key: "name",
      label: t.name,
      as: "name",
      width: "minmax(240px, 4fr)",
      show: (of, row) => (
        <span class="name mono" title={of.str("name")[row] ?? ""}>
          <Swatch color={shade(of, row)} />
          <span class="cut">{shortName(of.str("name")[row] ?? "")}</span>
        </span>
      ),
    },
    { key: "stream", label: t.stream, as: "text", width: "minmax(90px, .8fr)" },
    { key: "calls", label: t.count },
    { key: "launch_avg_ns", label: t.launch },
    { key: "delay_avg_ns", label: t.delay, help: t.delayHelp },
    { key: "delay_min_ns", label: t.delayMin },
    { key: "delay_max_ns", label: t.delayMax },
    { key: "kernel_avg_ns", label: t.kernel },
    { key: "host_bound_calls", label: t.host, help: t.hostHelp },
    { key: "short_calls", label: t.shortCalls, help: t.shortHelp, width: "minmax(120px, 1fr)" },
  ];
  return (
    <div class="oppage">
      <Tiles label={t.launches}>
        <Tile label={t.launched}>
          <Count of={calls} />
        </Tile>
        <Tile
          label={t.waits}
          context={
            <>
              <Count of={host} /> {fill(t.of, { count: units.count(calls).value })}
            </>
          }
          tone={tone}
        >
          <Share of={host / calls} />
        </Tile>
        <Tile
          label={t.tooShort}
          context={
            <>
              <Count of={brief} /> {fill(t.of, { count: units.count(calls).value })}
            </>
          }
        >
          <Share of={brief / calls} />
        </Tile>
        <Tile label={t.longest}>
          <Time ns={longest} />
        </Tile>
      </Tiles>
      <section class="card opcard">
        <Grid
          id="launches"
          table={data}
          columns={columns}
          search={["name", "stream"]}
          sort="-calls"
          what={t.whatLaunches}
          rowKey={(of, row) => JSON.stringify([of.str("name")[row]])}
          selected={param("sel")}
          onOpen={(of, row) => go({ params: { sel: JSON.stringify([of.str("name")[row]]) } })}
          label={t.launches}
        />
      </section>
    </div>
  );
}
