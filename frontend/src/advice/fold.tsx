/** A part of the page that is drawn when it is opened. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

interface Props {
  title: ComponentChildren;
  class?: string;
  children: () => ComponentChildren;
}

export function Fold({ title, children, ...more }: Props) {
  const [seen, setSeen] = useState(false);
  return (
    <details class={more.class} onToggle={(event) => setSeen(event.currentTarget.open)}>
      <summary>{title}</summary>
      {seen && children()}
    </details>
  );
}
