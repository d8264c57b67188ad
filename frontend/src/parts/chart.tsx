/**
 * Sankey, treemap, heat map, scatter: ECharts, loaded when first drawn. The tooltip is ours: that of ECharts needs
 * inline styles.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import type { EChartsCoreOption, ECharts } from "echarts/core";
import { css } from "../colors";
import { theme } from "../state";
import { useWidth } from "./basics";
import { tip, untip } from "./tip";
import type { ComponentChildren } from "preact";

interface ChartProps {
  /** Built again when the theme changes: use `css("--token")` for colors. */
  option: () => EChartsCoreOption;
  /** The option changes when this does. */
  of: unknown[];
  height?: number;
  label: string;
  onPick?: (item: ChartItem) => void;
  tip?: (item: ChartItem) => ComponentChildren;
}

export interface ChartItem {
  name: string;
  value: unknown;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- the datum as the page passed it to ECharts
  data: any;
  dataIndex: number;
  dataType?: string;
  seriesName?: string;
}

let library: Promise<typeof import("./echarts")> | null = null;
const load = () => (library ??= import("./echarts"));

/** Load the library while the data is loading: for a page that opens with a chart. */
export function preload(): void {
  void load();
}

export function Chart(props: ChartProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const chart = useRef<ECharts | null>(null);
  const [ready, setReady] = useState<typeof import("./echarts") | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const height = props.height ?? 320;
  useEffect(() => void load().then(setReady), []);
  useEffect(() => {
    if (!ready || !box.current || width === 0 || chart.current) return;
    chart.current = ready.init(box.current, null, { renderer: "canvas" });
    chart.current.on("click", (item) => latest.current.onPick?.(item as unknown as ChartItem));
    chart.current.on("mousemove", (item) => {
      const content = latest.current.tip?.(item as unknown as ChartItem);
      const event = (item as { event?: { event: MouseEvent } }).event?.event;
      if (content && event) tip(event, content);
    });
    chart.current.on("mouseout", untip);
    chart.current.on("globalout", untip);
  }, [ready, width > 0]);
  useEffect(
    () => () => {
      chart.current?.dispose();
      untip();
    },
    [],
  );
  const shade = theme();
  useEffect(() => {
    if (!chart.current) return;
    chart.current.resize({ width, height });
    const text = { color: css("--text-2"), fontFamily: css("--font"), fontSize: 12 };
    chart.current.setOption({ animation: false, textStyle: text, ...props.option() }, true);
  }, [ready, width, height, shade, ...props.of]);
  return <div ref={box} class="chart" style={{ height: `${height}px` }} role="img" aria-label={props.label} />;
}
