/**
 * The demonstration: `npm start`. A shop charges orders on one SQLite file while its processes are killed, for about a minute.
 *
 * - `show.ts` puts it all on: it starts and watches the others until the last order is charged.
 * - `provider.ts` delivers orders to two web processes (`web.ts`), many of them twice.
 * - Four worker processes (`worker.ts`) claim the orders and charge them (`shop.ts` has the decisions).
 * - `chaos.ts` kills processes of the crew (`crew.ts`) with SIGKILL and freezes workers past their leases.
 * - `evidence.ts` reads the database and the processes' ledgers, `verdict.ts` judges them, `picture.ts` shows it.
 * - `audit.ts` gives the verdict in the end, in a process of its own.
 *
 * Promises: exit code 0 only if every check of the verdict holds and no process ended by itself; no process and, unless
 * asked for or needed to see what went wrong, no file is left behind, also after Ctrl-C.
 */

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { Show } from "./show.ts";
import { type Line, print } from "./terminal.ts";

const USAGE = `npm start -- [options]

  --seconds <n>  how long it takes, about; 60 unless said otherwise, at least 3
  --db <path>    where the database is made, which is then kept
  --keep         keeps the database, and says where it is`;

process.exitCode = await main();

async function main(): Promise<number> {
  const options = readOptions();
  if (typeof options === "string") {
    console.log(options);
    return options === USAGE ? 0 : 2;
  }
  const folder = options.db === undefined ? mkdtempSync(join(tmpdir(), "pawl-demo-")) : undefined;
  const database = resolve(options.db ?? join(folder ?? "", "shop.db"));
  const show = new Show({ database, seconds: options.seconds });
  let isKept = options.db !== undefined || options.keep;
  const tidyUp = () => {
    show.end();
    if (folder !== undefined && !isKept) rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
  };
  // Runs whatever ends the program, an error included.
  process.once("exit", tidyUp);
  for (const [signal, code] of Object.entries({ SIGINT: 130, SIGTERM: 143, SIGHUP: 129 }))
    process.once(signal, () => {
      tidyUp();
      console.log(isKept ? `Stopped; the database is kept: ${database}` : "Stopped; nothing was left behind.");
      process.exit(code);
    });
  await show.run();
  const isRight = audit(database) && show.accidents.length === 0;
  // What went wrong is worth looking at.
  if (!isRight) isKept = true;
  print(process.stdout, [...accidentLines(show.accidents), ...farewell(isKept ? database : undefined)]);
  return isRight ? 0 : 1;
}

/** Has the run judged by a process that took no part in it. */
function audit(database: string): boolean {
  const args = [...process.execArgv, join(import.meta.dirname, "audit.ts"), database];
  return spawnSync(process.execPath, args, { stdio: "inherit" }).status === 0;
}

interface Options {
  readonly seconds: number;
  readonly db: string | undefined;
  readonly keep: boolean;
}

/** The options, or what to say instead of running. */
function readOptions(): Options | string {
  const values = parseOptions();
  if (typeof values === "string") return `${values}\n\n${USAGE}`;
  if (values.help === true) return USAGE;
  const seconds = Number(values.seconds ?? 60);
  if (!(seconds >= 3 && seconds <= 3_600)) return "--seconds must be a number from 3 to 3600";
  if (values.db !== undefined && existsSync(values.db)) return `${values.db} is there already: name a new file`;
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
    [["  "], [" PROCESSES ENDED THAT NOBODY KILLED ", "bad"]],
    ...accidents.map((accident): Line => [[`  ${accident}`, "red"]]),
  ];
}

/** How to see for oneself, and where to go on. */
function farewell(kept: string | undefined): readonly Line[] {
  const look: Line =
    kept === undefined
      ? [["npm start -- --keep"], ["  keeps the database of the next run", "dim"]]
      : [[`npx node demo/look.ts ${kept}`], ['  and any "select …"', "dim"]];
  return [
    [],
    [["  Look for yourself  ", "dim"], ...look],
    [["  See how it works   ", "dim"], ["demo/shop.ts"], ["  the three decisions that the shop is made of", "dim"]],
    [["  Read on            ", "dim"], ["README.md"]],
    [],
  ];
}
