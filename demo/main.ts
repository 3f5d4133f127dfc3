/**
 * The demonstration of killed processes: `npm run demo`. A shop charges orders on one SQLite file while its processes are killed, for about a minute.
 *
 * - `demonstration.ts` starts and watches the other processes until the last order is charged.
 * - `provider.ts` delivers orders to two web processes (`web.ts`), many of them twice.
 * - Four worker processes (`worker.ts`) claim the orders and charge them (`shop.ts` has the decisions).
 * - `chaos.ts` kills processes (`crew.ts` starts and restarts them) with SIGKILL and freezes workers past their leases.
 * - `evidence.ts` reads the database and the processes' ledgers, `verdict.ts` checks them, `picture.ts` draws them.
 * - `audit.ts` checks the result in the end, in a process of its own.
 *
 * Guarantees: the exit code is 0 only if every check passes and no process ended by itself. No process is left behind, also after Ctrl-C, and no
 * file, unless `--keep` or `--db` is given or a check failed.
 */

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { Demonstration } from "./demonstration.ts";
import { type Line, print } from "./terminal.ts";

const USAGE = `npm run demo -- [options]

  --seconds <n>  approximate duration, at least 3. Default: 60
  --db <path>    creates the database there, and keeps it
  --keep         keeps the database, and prints its path`;

process.exitCode = await main();

async function main(): Promise<number> {
  const options = readOptions();
  if (typeof options === "string") {
    console.log(options);
    return options === USAGE ? 0 : 2;
  }
  const folder = options.db === undefined ? mkdtempSync(join(tmpdir(), "pawl-demo-")) : undefined;
  const database = resolve(options.db ?? join(folder ?? "", "shop.db"));
  const demonstration = new Demonstration({ database, seconds: options.seconds });
  let isKept = options.db !== undefined || options.keep;
  const tidyUp = () => {
    demonstration.end();
    if (folder !== undefined && !isKept) rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
  };
  // Runs whatever ends the program, including an error.
  process.once("exit", tidyUp);
  for (const [signal, code] of Object.entries({ SIGINT: 130, SIGTERM: 143, SIGHUP: 129 }))
    process.once(signal, () => {
      tidyUp();
      console.log(isKept ? `Stopped; the database is kept: ${database}` : "Stopped; nothing was left behind.");
      process.exit(code);
    });
  await demonstration.run();
  const isRight = audit(database) && demonstration.accidents.length === 0;
  // Kept, so that the failure can be examined.
  if (!isRight) isKept = true;
  print(process.stdout, [...accidentLines(demonstration.accidents), ...farewell(isKept ? database : undefined)]);
  return isRight ? 0 : 1;
}

/** Checks the result in a process that took no part in the run. */
function audit(database: string): boolean {
  const args = [...process.execArgv, join(import.meta.dirname, "audit.ts"), database];
  return spawnSync(process.execPath, args, { stdio: "inherit" }).status === 0;
}

interface Options {
  readonly seconds: number;
  readonly db: string | undefined;
  readonly keep: boolean;
}

/** The options, or the text to print instead of running. */
function readOptions(): Options | string {
  const values = parseOptions();
  if (typeof values === "string") return `${values}\n\n${USAGE}`;
  if (values.help === true) return USAGE;
  const seconds = Number(values.seconds ?? 60);
  if (!(seconds >= 3 && seconds <= 3_600)) return "--seconds must be a number from 3 to 3600";
  if (values.db !== undefined && existsSync(values.db))
    return `${values.db} is there already: name a file that does not exist`;
  return { seconds, db: values.db, keep: values.keep === true };
}

function parseOptions() {
  try {
    return parseArgs({
      options: {
        seconds: { type: "string" },
        db: { type: "string" },
        keep: { type: "boolean" },
        help: { type: "boolean", short: "h" },
      },
    }).values;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function accidentLines(accidents: readonly string[]): readonly Line[] {
  if (accidents.length === 0) return [];
  return [
    [],
    [["  "], [" PROCESSES ENDED THAT WERE NOT KILLED ", "bad"]],
    ...accidents.map((accident): Line => [[`  ${accident}`, "red"]]),
  ];
}

/** How to look at the database, and what to read next. */
function farewell(kept: string | undefined): readonly Line[] {
  const look: Line =
    kept === undefined
      ? [["npm run demo -- --keep"], ["  keeps the database of the next run", "dim"]]
      : [[`npx node demo/look.ts ${kept}`], ['  and any "select …"', "dim"]];
  return [
    [],
    [["  Read the database  ", "dim"], ...look],
    [["  See how it works   ", "dim"], ["demo/shop.ts"], ["  the three decisions of the shop", "dim"]],
    [["  Read next          ", "dim"], ["README.md"]],
    [],
  ];
}
