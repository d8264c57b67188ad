declare module "pages" {
  import type { ComponentType } from "preact";

  /** One file of src/pages; everything but `load` comes from its first line. */
  export interface Page {
    id: keyof import("./strings").Strings["pages"];
    order: number;
    group: "performance" | "resources" | "cluster" | "tools" | "";
    icon: string;
    /** Span kinds, tables or counters, any of which the run must have for the page to show something. */
    needs?: string[];
    /** A summary of ranks has data for the page. */
    ofSummary?: boolean;
    /** Opens without a run. */
    alone?: boolean;
    load: () => Promise<{ default: ComponentType }>;
  }
  const pages: Page[];
  export default pages;
}

declare module "timeline-worker" {
  /** Path of the timeline worker beside the scripts; "" in a report, which is a single file. */
  const script: string;
  export default script;
}

/** Sections of src/strings: those of the frame and of the list of runs, and those of the other pages. */
declare module "strings:*" {
  const strings: import("./strings").Strings;
  export default strings;
}

declare module "page-strings:*" {
  const strings: import("./strings").Strings;
  export default strings;
}

/** Sentences of `verdict` and of `advice`, from src/stepscope/model/strings. */
declare module "messages:*" {
  const messages: Record<string, string>;
  export default messages;
}

declare module "advice-messages:*" {
  const messages: Record<string, string>;
  export default messages;
}
