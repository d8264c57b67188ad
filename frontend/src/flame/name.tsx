/** The name of a frame in a sentence: short, with the whole name on hover. */
import { labelOf } from "./paint";

export function Name({ of }: { of: string }) {
  return (
    <b class="mono big" title={of}>
      {labelOf(of)}
    </b>
  );
}
