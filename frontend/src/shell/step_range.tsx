/** Choice of steps. */
import { allStepsParam, info, shownSteps, useTable } from "../data";
import { Menu } from "../parts/menu";
import type { Info } from "../source";
import { go } from "../state";
import { strings } from "../strings";
import { useMemo, useState } from "preact/hooks";

const text = strings("shell");

/** First and last step of "2:5" or "3"; undefined for other texts. */
export function stepRange(requested: string): [number, number] | undefined {
  const match = /^(\d{1,9})(?::(\d{1,9}))?$/.exec(requested);
  const [first, last] = [Number(match?.[1]), Number(match?.[2] ?? match?.[1])];
  return first <= last ? [first, last] : undefined;
}

/** The step numbers of the selected rank, in order; null until they are loaded. */
export function useStepNumbers(skip = false): number[] | null {
  const none = skip || !info.value?.tables.steps;
  const fetched = useTable("tables/steps", { columns: "rank,step" }, { allSteps: true, skip: none });
  return useMemo(
    () => (none ? [] : fetched.data ? [...new Set(fetched.data.num("step"))].sort((a, b) => a - b) : null),
    [none, fetched.data],
  );
}

export function Steps({ now }: { now: Info }) {
  const t = text();
  const numbers = useStepNumbers();
  if (!now.tables.steps) return null;
  const all = numbers?.length ? span(numbers[0], numbers[numbers.length - 1]) : "…";
  const chosen = stepRange(shownSteps() ?? "");
  return (
    <Menu
      label={`${t.steps}: ${shownSteps() ?? t.all}`}
      class={chosen ? "chosen" : ""}
      button={
        <>
          <span class="k">{t.steps}</span>
          {chosen ? span(...chosen) : all}
        </>
      }
    >
      {(close) => (numbers?.length ? <StepRange steps={numbers} close={close} /> : null)}
    </Menu>
  );
}

export function span(first: number, last: number = first): string {
  return first === last ? String(first) : `${first}–${last}`;
}

function StepRange({ steps, close }: { steps: number[]; close: () => void }) {
  const t = text();
  const [first, last] = stepRange(shownSteps() ?? "") ?? [steps[0], steps[steps.length - 1]];
  const [wrong, setWrong] = useState(false);
  const apply = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const [low, high] = [Number(form.get("first")), Number(form.get("last"))].sort((a, b) => a - b);
    if (!steps.some((step) => step >= low && step <= high)) return setWrong(true);
    go({ params: { steps: low <= steps[0] && high >= steps[steps.length - 1] ? allStepsParam() : `${low}:${high}` } });
    close();
  };
  return (
    <form class="steprange" onSubmit={apply}>
      <label>
        {t.first}{" "}
        <input name="first" type="number" min={steps[0]} max={steps[steps.length - 1]} defaultValue={String(first)} />
      </label>
      <label>
        {t.last}{" "}
        <input name="last" type="number" min={steps[0]} max={steps[steps.length - 1]} defaultValue={String(last)} />
      </label>
      <button class="btn sm pri">{t.apply}</button>
      <button
        class="btn sm"
        type="button"
        onClick={() => {
          go({ params: { steps: allStepsParam() } });
          close();
        }}
      >
        {t.allSteps}
      </button>
      {wrong && (
        <span class="bad small" role="alert">
          {t.noStep}
        </span>
      )}
    </form>
  );
}
