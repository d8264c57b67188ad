/** Devices of a run. */
import type { Info } from "./source";

/** Whether device work is recorded. An Ascend chip is listed only if it was recorded, even without kernels. */
export function onDevice(info: Info): boolean {
  return (info.kinds.kernel ?? 0) > 0 || info.devices.some((device) => device.kind === "aicore");
}

const DEVICE_WORDS: Record<string, string> = { gpu: "GPU", aicore: "NPU", npu: "NPU", aicpu: "AI CPU", tpu: "TPU" };

/** The word for the device: GPU, NPU; null where it is unknown. */
export function deviceWord(info: Info): string | null {
  return info.devices.map((device) => DEVICE_WORDS[device.kind]).find(Boolean) ?? null;
}
