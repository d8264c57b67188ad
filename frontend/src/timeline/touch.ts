/** Touch: two fingers hold two timestamps, which stay under them. */
import type { Timeline } from "./model";

interface Finger {
  x: number;
  y: number;
  moment: number;
}

/** Nearer fingers cannot define a zoom. */
const NEAREST = 12;

export class Fingers {
  private down = new Map<number, Finger>();

  constructor(private of: Timeline) {}

  get count(): number {
    return this.down.size;
  }

  /** The finger that stays down after the other was lifted. */
  get last(): { x: number; y: number } | null {
    return [...this.down.values()].pop() ?? null;
  }

  put(id: number, x: number, y: number): void {
    this.down.set(id, { x, y, moment: 0 });
    this.hold();
  }

  lift(id: number): void {
    this.down.delete(id);
    this.hold();
  }

  /** Follow two fingers; returns whether there are two. */
  move(id: number, x: number, y: number): boolean {
    const finger = this.down.get(id);
    if (!finger) return false;
    const lower = y - finger.y;
    [finger.x, finger.y] = [x, y];
    if (this.down.size !== 2) return false;
    const { of } = this;
    const [left, right] = [...this.down.values()].sort((a, b) => a.moment - b.moment);
    const apart = right.x - left.x;
    if (apart >= NEAREST && right.moment > left.moment) {
      const perPixel = (right.moment - left.moment) / apart;
      const t0 = left.moment - left.x * perPixel;
      of.sight.drag(t0, t0 + of.width * perPixel);
    }
    of.scrollTo(of.scroll - lower / 2);
    return true;
  }

  private hold(): void {
    for (const finger of this.down.values()) finger.moment = this.of.sight.momentAt(finger.x);
  }
}
