/** The part of ECharts that the pages use. */
import { HeatmapChart, SankeyChart, ScatterChart, TreemapChart, LineChart, BarChart } from "echarts/charts";
import { GridComponent, VisualMapComponent, DataZoomComponent, MarkLineComponent } from "echarts/components";
import { init, use as register } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

register([
  HeatmapChart,
  SankeyChart,
  ScatterChart,
  TreemapChart,
  LineChart,
  BarChart,
  GridComponent,
  VisualMapComponent,
  DataZoomComponent,
  MarkLineComponent,
  CanvasRenderer,
]);

export { init };
