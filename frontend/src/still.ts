/** The source of a report: what `stepscope report` put into the page. */
import { Refusal, type Info, type Params, type Run, type Source } from "./source";
import type { Table } from "./table";

export class StillSource implements Source {
  readonly still = true;

  async runs(): Promise<Run[]> {
    return [];
  }

  async info(): Promise<Info> {
    throw new Refusal("not in this report", "usage", 404);
  }

  async table(_run: string, name: string, _params: Params): Promise<Table> {
    throw new Refusal(`${name} is not in this report`, "usage", 404);
  }

  async query(): Promise<Table> {
    throw new Refusal("a report answers no questions", "usage", 404);
  }

  download(): null {
    return null;
  }

  listen(): () => void {
    return () => undefined;
  }
}
