// Builds the pages into src/stepscope/server/dist, or into the folder given: node build.mjs [--out FOLDER] [--watch]
// The same sources give the same bytes: a test compares what is committed with a fresh build.
import { build, context } from "esbuild";
import { copyFile, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const words = process.argv.slice(2);
const out = path.resolve(
  words.includes("--out") ? words[words.indexOf("--out") + 1] : path.join(here, "../src/stepscope/server/dist"),
);

// Sections of src/strings that the frame and the list of runs need; the others load with the first page of a run.
const FIRST_SECTIONS = ["basics", "grid", "overhead", "pages", "runs", "shell", "values"];

// `import strings from "strings:en"` has these sections, "page-strings:en" the others.
const strings = {
  name: "strings",
  setup(build) {
    build.onResolve({ filter: /^(page-)?strings:(en|zh)$/ }, ({ path: name }) => ({
      path: name,
      namespace: "strings",
    }));
    build.onLoad({ filter: /.*/, namespace: "strings" }, async ({ path: name }) => {
      const [part, language] = name.split(":");
      const file = path.join(here, `src/strings/${language}.json`);
      const all = Object.entries(JSON.parse(await readFile(file, "utf8")));
      const some = all.filter(([section]) => FIRST_SECTIONS.includes(section) === (part === "strings"));
      return { contents: JSON.stringify(Object.fromEntries(some)), loader: "json", watchFiles: [file] };
    });
  },
};

// Sentences of `verdict` are needed by the first page, those of `advice` only where it is shown: `import texts from "messages:en"`, or
// "advice-messages:en".
const messages = {
  name: "messages",
  setup(build) {
    build.onResolve({ filter: /^(advice-)?messages:(en|zh)$/ }, ({ path: name }) => ({
      path: name,
      namespace: "messages",
    }));
    build.onLoad({ filter: /.*/, namespace: "messages" }, async ({ path: name }) => {
      const [part, language] = name.split(":");
      const file = path.join(here, `../src/stepscope/model/strings/${language}.json`);
      const all = Object.entries(JSON.parse(await readFile(file, "utf8")));
      const some = all.filter(([code]) => code.startsWith("advice-") === part.startsWith("advice-"));
      return { contents: JSON.stringify(Object.fromEntries(some)), loader: "json", watchFiles: [file] };
    });
  },
};

// The menu is the folder: `import pages from "pages"` lists src/pages/*.tsx. A page's first line says where it stands in the menu;
// the page itself is loaded when it is opened. Styles beside a page or a part (src/pages/*.css, src/parts/*.css) are part of the one style
// sheet, which is `import "styles"`, since nothing would load them later.
const pages = {
  name: "pages",
  setup(build) {
    build.onResolve({ filter: /^pages$/ }, () => ({ path: "pages", namespace: "pages" }));
    build.onResolve({ filter: /^\.\/\w+\.css$/ }, ({ importer, path: name }) =>
      ["pages", "parts"].includes(path.basename(path.dirname(importer)))
        ? { path: name, namespace: "styled" }
        : undefined,
    );
    build.onLoad({ filter: /.*/, namespace: "styled" }, () => ({ contents: "", loader: "js" }));
    build.onResolve({ filter: /^styles$/ }, () => ({ path: "styles", namespace: "styles" }));
    build.onLoad({ filter: /.*/, namespace: "styles" }, async () => {
      const folders = ["parts", "pages"].map((name) => path.join(here, "src", name));
      const files = await Promise.all(
        folders.map(async (folder) => (await readdir(folder)).sort().map((name) => path.join(folder, name))),
      );
      const sheets = [
        "style.css",
        ...files
          .flat()
          .filter((name) => name.endsWith(".css"))
          .map((name) => path.relative(path.join(here, "src"), name)),
      ];
      return {
        contents: sheets.map((name) => `import "./${name}";\n`).join(""),
        resolveDir: path.join(here, "src"),
        loader: "js",
        watchDirs: folders,
      };
    });
    build.onLoad({ filter: /.*/, namespace: "pages" }, async () => {
      const folder = path.join(here, "src/pages");
      const files = (await readdir(folder)).filter((name) => name.endsWith(".tsx")).sort();
      const entries = await Promise.all(
        files.map(async (name) => {
          const first = (await readFile(path.join(folder, name), "utf8")).split("\n", 1)[0];
          if (!first.startsWith("// page: ")) throw new Error(`${name}: the first line is to be "// page: {...}"`);
          const about = JSON.parse(first.slice("// page: ".length));
          return { ...about, id: path.basename(name, ".tsx") };
        }),
      );
      entries.sort((a, b) => a.order - b.order);
      const lines = entries.map(
        (page) => `{...${JSON.stringify(page)}, load: () => import("./src/pages/${page.id}.tsx")}`,
      );
      return {
        contents: `export default [${lines.join(",\n")}];`,
        resolveDir: here,
        loader: "js",
        watchDirs: [folder],
      };
    });
  },
};

// `import script from "timeline-worker"` is where the timeline's worker lies: a script of its own, named after its content. A report, being one
// file, has none. Its path is not a real one: names of files would depend on where the project lies.
const worker = (made) => ({
  name: "worker",
  setup(within) {
    within.onResolve({ filter: /^timeline-worker$/ }, () => ({ path: "worker.js", namespace: "worker" }));
    within.onLoad({ filter: /.*/, namespace: "worker" }, async () => {
      if (!made) return { contents: 'export default "";', loader: "js" };
      const result = await build({ ...common, entryPoints: ["src/timeline/worker.ts"], format: "iife", write: false });
      return {
        contents: result.outputFiles[0].contents,
        loader: "file",
        watchFiles: Object.keys(result.metafile.inputs).map((name) => path.join(here, name)),
      };
    });
  },
});

const common = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  define: { "process.env.NODE_ENV": '"production"' },
  plugins: [pages, strings, messages],
  logLevel: "warning",
  metafile: true,
};

async function assemble(result) {
  const outputs = Object.entries(result.metafile.outputs);
  const named = (end) =>
    path.basename(outputs.find(([name, output]) => output.entryPoint === "src/main.tsx" && name.endsWith(end))[0]);
  const script = named(".js");
  const style = path.basename(outputs.find(([, output]) => output.entryPoint === "src/main.tsx").at(1).cssBundle);
  const page = await readFile(path.join(here, "src/index.html"), "utf8");
  await writeFile(
    path.join(out, "index.html"),
    page.replace("{script}", `assets/${script}`).replace("{style}", `assets/${style}`),
  );
}

const app = {
  ...common,
  entryPoints: ["src/main.tsx"],
  outdir: path.join(out, "assets"),
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  format: "esm",
  splitting: true,
  plugins: [...common.plugins, worker(true)],
};
// The single-file report has everything in one script, which stands inside the page.
const report = {
  ...common,
  entryPoints: { report: "src/report.tsx" },
  outdir: path.join(out, "report"),
  format: "iife",
  plugins: [...common.plugins, worker(false)],
  logOverride: { "empty-import-meta": "silent" },
};

if (words.includes("--watch")) {
  const end = { name: "end", setup: (build) => build.onEnd((result) => result.errors.length || assemble(result)) };
  const watching = await context({ ...app, plugins: [...app.plugins, end] });
  await watching.watch();
} else {
  await rm(out, { recursive: true, force: true });
  await mkdir(out, { recursive: true });
  const [made] = await Promise.all([build(app), build(report)]);
  await assemble(made);
  await copyFile(path.join(here, "src/queries.json"), path.join(out, "report/queries.json"));
}
