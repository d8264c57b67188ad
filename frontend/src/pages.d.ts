declare module "pages" {
  import type { ComponentType } from "preact";

  /** One file of src/pages; all but `load` comes from its first line. */
  export interface Page {
    id: string;
    order: number;
    group: "performance" | "resources" | "cluster" | "tools" | "";
    icon: string;
    en: string;
    zh: string;
    /** What the run must have for the page to show something: names of span kinds, tables or counters, any of them. */
    needs?: string[];
    /** Opens without a run. */
    alone?: boolean;
    load: () => Promise<{ default: ComponentType }>;
  }
  const pages: Page[];
  export default pages;
}

declare module "timeline-worker" {
  /** Where the worker of the timeline lies, beside the scripts; "" in a report, which is one file. */
  const script: string;
  export default script;
}
