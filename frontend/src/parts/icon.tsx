/** Icons. */

/** 16 by 16 line icons; the icon of a page in the menu is one of these names. */
const ICONS: Record<string, string> = {
  runs: "M2 4h12M2 8h12M2 12h8",
  overview: "M2 2h5v5H2zM9 2h5v5H9zM2 9h5v5H2zM9 9h5v5H9z",
  steps: "M2 3h5M5 8h6M9 13h5",
  operators: "M2 4h9M2 8h12M2 12h6",
  functions: "M2 3h12M5 8h9M8 13h6",
  flame: "M8 1.5c.5 3 4 4 4 8a4 4 0 0 1-8 0c0-2 1-3 1.500-4.500.8.5 1 1.500 1 2C8 6 8.500 4 8 1.500z",
  kernels: "M4 4h8v8H4zM6 1v3M10 1v3M6 12v3M10 12v3M1 6h3M1 10h3M12 6h3M12 10h3",
  flops: "M2 12a6 6 0 1 1 12 0M8 12l3-4",
  data: "M2 3h12l-4.5 5.5V13l-3 1V8.5z",
  timeline: "M2 3h6M6 8h8M3 13h4M10 13h4",
  cpu: "M2 12l3-5 3 3 3-7 3 6",
  memory: "M2 4h12v8H2zM5 4v8M8 4v8M11 4v8",
  ranks: "M2 2h3v3H2zM11 2h3v3h-3zM2 11h3v3H2zM11 11h3v3h-3zM5 3.5h6M5 12.5h6M3.5 5v6M12.5 5v6",
  communication: "M3 6h9l-3-3M13 10H4l3 3",
  advice: "M8 1.5a4.5 4.5 0 0 1 2.5 8.2V12h-5V9.7A4.5 4.5 0 0 1 8 1.5zM6.5 14.5h3",
  compare: "M6 2H2v12h4M10 2h4v12h-4M8 1v14",
  query: "M2 4l3.5 4L2 12M8 12h6",
  files: "M4 1.5h5l3 3v10H4zM9 1.5v3h3M6 8h4M6 11h4",
  hangs: "M4 1.5h8M4 14.5h8M5 1.5c0 3.5 6 3.500 6 6.500s-6 3-6 6.500M11 1.500c0 3.500-6 3.500-6 6.500s6 3 6 6.500",
  live: "M8 8m-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0M4 4a5.5 5.5 0 0 0 0 8M12 4a5.5 5.5 0 0 1 0 8",
  search: "M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9M10.5 10.5L14 14",
  export: "M8 2v8M5 7l3 3 3-3M2.5 13h11",
  dark: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  light: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6M8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  help: "M6 6a2 2 0 1 1 2.5 2c-.5.3-.5.7-.5 1.5M8 12.3v.1",
  down: "M4 6l4 4 4-4",
  right: "M6 4l4 4-4 4",
  close: "M4 4l8 8M12 4l-8 8",
  pin: "M6 2h4l-.5 4 2 2.5h-7L6.500 6zM8 8.500V14",
};

export function Icon({ name, size = 16 }: { name: string; size?: number }) {
  return (
    <svg
      class="ic"
      viewBox="0 0 16 16"
      width={size}
      height={size}
      style={{ width: `${size}px`, height: `${size}px` }}
      aria-hidden="true"
    >
      <path d={ICONS[name] ?? ICONS.files} />
    </svg>
  );
}
