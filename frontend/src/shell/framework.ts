/** Names of frameworks. */

const FRAMEWORKS: Record<string, string> = {
  pytorch: "PyTorch",
  torch: "PyTorch",
  mindspore: "MindSpore",
  jax: "JAX",
  tensorflow: "TensorFlow",
  python: "Python",
  cann: "CANN",
};

export function framework(now: { framework: string; versions?: Record<string, string> }): string {
  const name = FRAMEWORKS[now.framework] ?? now.framework;
  const version = now.versions?.[now.framework] ?? now.versions?.torch ?? now.versions?.pytorch;
  // After the plus is the build: 2.11.0+cu130.
  return version && now.framework ? `${name} ${version.split("+")[0]}` : name;
}
