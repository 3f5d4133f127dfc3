/**
 * `pawl init`: a starter project, one file of code that runs.
 *
 * Where a package.json says that files are CommonJS, as that of `npm init`, the code is in a file whose name says that it is a module.
 *
 * Guarantees: nothing that is there is changed. A package.json and a tsconfig.json are written only where there is none.
 */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { CliError } from "../exit-codes.ts";
import { declare, type Place } from "../program.ts";
import { version } from "../version.ts";

const FILE = "app.ts";
const MODULE_FILE = "app.mts";
/** For an editor and `npx tsc`; Node itself only removes the types. */
const DEV_DEPENDENCIES = { "@types/node": "^24.0.0", typescript: ">=5.9" };

const TSCONFIG = {
  compilerOptions: {
    target: "es2024",
    lib: ["es2024", "esnext.disposable"],
    module: "nodenext",
    types: ["node"],
    strict: true,
    erasableSyntaxOnly: true,
    verbatimModuleSyntax: true,
    allowImportingTsExtensions: true,
    skipLibCheck: true,
    noEmit: true,
  },
};

/** What a newcomer runs first. Stopped in the middle and started again, it continues where it was. */
const starter = (name: string): string => `/**
 * A workflow that outlives its process.
 *
 *   node ${name.padEnd(17)} places an order and works on it; stop it with Ctrl-C while it waits, and start it again
 *   npx pawl runs          what has run, from another terminal
 *   npx pawl run signal order-1 approved '{"by":"ann"}'
 *   npx pawl run history order-1
 */

import { open, signal, workflow } from "pawl";

interface Order {
  readonly id: string;
  readonly cents: number;
}

export const approved = signal<{ by: string }>("approved");

export const fulfil = workflow("fulfil", async (ctx, order: Order) => {
  const receipt = await ctx.step("charge", ({ key }) => {
    console.log(\`charging \${order.cents} cents\`);
    // A payment provider charges once for each idempotency key, however often it is asked.
    return \`receipt-\${key.slice(0, 6)}\`;
  });
  console.log("waiting for the approval, at most 5 seconds");
  const approval = await ctx.waitForSignal(approved, { timeout: "5s" });
  const by = approval.ok ? approval.value.by : "nobody: it shipped without one";
  await ctx.step("ship", () => console.log(\`shipping \${order.id}, approved by \${by}\`));
  return { receipt, by };
});

// Not when another file imports it, as \`npx pawl serve --import ./${name}\` does.
if (import.meta.main) {
  const pawl = await open("pawl.db");
  pawl.work([fulfil]);
  const order = { id: "order-1", cents: 4200 };
  const run = await pawl.start(fulfil, order, { id: order.id }); // the same id is the same run
  console.log(await run.result());
  await pawl.close();
}
`;

export function initCommand(place: Place): void {
  declare(place, {
    usage: "init [folder]",
    summary: `write a starter project: ${FILE}, or ${MODULE_FILE} among CommonJS files, which runs at once`,
    run: async (session, [folder = "."]) => {
      const home = resolve(folder);
      const manifest = join(home, "package.json");
      const hasManifest = existsSync(manifest);
      const name = hasManifest && !isModule(manifest) ? MODULE_FILE : FILE;
      const file = join(home, name);
      if (existsSync(file)) throw new CliError("file_exists", `${file} is there already: name another folder`);
      makeFolder(home);
      const written: string[] = [];
      const write = (path: string, text: string): void => {
        writeFileSync(path, text, { flag: "wx" });
        written.push(path);
      };
      write(file, starter(name));
      if (!hasManifest) write(manifest, manifestFor(basename(home)));
      const config = join(home, "tsconfig.json");
      if (!existsSync(config)) write(config, `${JSON.stringify(TSCONFIG, null, 2)}\n`);
      const steps = [
        ...(folder === "." ? [] : [`cd ${folder}`]),
        hasManifest ? "npm install pawl" : "npm install",
        `node ${name}`,
      ];
      session.done(`wrote ${written.join(", ")}; next: ${steps.join(" && ")}`, { files: written, next: steps });
    },
  });
}

/** Makes a folder, and those above it. The `recursive` of Node never returns where a file system says that there is nothing, as /proc does. */
function makeFolder(folder: string): void {
  if (existsSync(folder)) return;
  makeFolder(dirname(folder));
  mkdirSync(folder);
}

/** Whether Node takes the .ts files beside this package.json for modules. */
function isModule(manifest: string): boolean {
  try {
    return (JSON.parse(readFileSync(manifest, "utf8")) as { readonly type?: unknown } | null)?.type === "module";
  } catch {
    return false;
  }
}

function manifestFor(folder: string): string {
  const name =
    folder
      .toLowerCase()
      .replace(/[^a-z0-9-]+/g, "-")
      .replace(/^-+|-+$/g, "") || "app";
  const manifest = {
    name,
    private: true,
    type: "module",
    dependencies: { pawl: `^${version()}` },
    devDependencies: DEV_DEPENDENCIES,
  };
  return `${JSON.stringify(manifest, null, 2)}\n`;
}
