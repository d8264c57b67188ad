/** What a run's overview and its idle causes amount to: the case that decides the sentence. The figures are the analyses' own. */
import { overheadOf } from "./overhead";
import type { Info } from "./source";
import type { Table } from "./table";

export type Case =
  | "launch" // the device waits for its host to launch work
  | "input" // for data
  | "communication" // transfers that nothing hides
  | "sync" // the host waits for the device, and then the device for the host
  | "latency" // between launch and start
  | "copying" // copies with nothing to hide them
  | "idle" // for several or unknown reasons
  | "used" // little is lost
  | "host" // there is no device
  | "hostInput"
  | "hostCommunication"
  | "unrecorded" // there is a device, and its work is not recorded
  | "unknown" // nothing is known to be work
  | "none"; // no steps at all

export interface Finding {
  case: Case;
  /** The share of the steps that the case is about; for "used" and "host", what computes. */
  share: number;
  tone: "good" | "warn" | "bad" | undefined;
}

/** Below this nobody would act on it. */
const MATTERS = 0.05;
const USED = 0.9;

// Idle time because the host communicates is in the exposed communication already.
const CAUSES: Record<string, Case | null> = { "host-bound": "launch", "data wait": "input", communication: null, sync: "sync", "launch latency": "latency" };

/** `row` is of `overview`; `causes` is gap_causes of the same rank. Where recording makes idle time longer, shares are of the unprofiled step. */
export function finding(overview: Table | null, row: number, causes: Table | null, device: boolean): Finding {
  if (!overview || row < 0 || row >= overview.rows) return { case: "none", share: NaN, tone: undefined };
  const over = device ? overheadOf(overview, row) : null;
  const longer = over ? over.step / over.bare : 1;
  const [compute, copy, exposed] = ["compute_share", "copy_share", "exposed_communication_share"].map((name) => overview.num(name)[row] * longer);
  const idle = over ? over.left : overview.num("idle_share")[row];
  const input = overview.num("input_wait_share")[row];
  if (overview.str("device_data")[row] === "none") return { case: "unrecorded", share: NaN, tone: undefined };
  if (!Number.isFinite(compute)) return { case: "unknown", share: NaN, tone: undefined };
  if (!device) {
    if (exposed >= 0.1 && !(input > exposed)) return { case: "hostCommunication", share: exposed, tone: tone(exposed) };
    if (input >= 0.1) return { case: "hostInput", share: input, tone: tone(input) };
    return { case: "host", share: compute, tone: undefined };
  }
  const lost = new Map<Case, number>([["communication", exposed || 0], ["copying", copy]]);
  if (causes) {
    const devices = new Set(causes.num("device")).size || 1; // a share is of one device; the rank's is their mean
    const [name, share] = [causes.str("cause"), causes.num(over ? "unprofiled_share" : "share")];
    for (let at = 0; at < causes.rows; at++) {
      const one = CAUSES[name[at] ?? ""];
      if (one !== null) lost.set(one ?? "idle", (lost.get(one ?? "idle") ?? 0) + share[at] / devices);
    }
  }
  const [most, share] = [...lost].sort((a, b) => b[1] - a[1])[0];
  if (share < MATTERS || (compute >= USED && !(exposed >= MATTERS))) return compute >= USED ? { case: "used", share: compute, tone: "good" } : { case: "idle", share: idle, tone: tone(idle) };
  const part = most === "idle" ? idle : share; // the sentence says it beside what the device computes
  return { case: most, share: part, tone: tone(part) };
}

function tone(share: number): "warn" | "bad" {
  return share >= 0.2 ? "bad" : "warn";
}

/** Whether something ran on a device. An Ascend chip is listed only where it was recorded, also without its kernels. */
export function onDevice(info: Info): boolean {
  return (info.kinds.kernel ?? 0) > 0 || info.devices.some((device) => device.kind === "aicore");
}

const WORDS: Record<string, string> = { gpu: "GPU", aicore: "NPU", npu: "NPU", aicpu: "AI CPU", tpu: "TPU" };

/** What people call the device: GPU, NPU; null where there is none or nobody knows. */
export function deviceWord(info: Info): string | null {
  return info.devices.map((device) => WORDS[device.kind]).find(Boolean) ?? null;
}
