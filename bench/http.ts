/**
 * `npm run bench:http`: what a call over HTTP costs beyond the same call of the library.
 *
 *   npm run bench:http                        on SQLite and on PostgreSQL
 *   npm run bench:http -- --rounds 9          more rounds, for a noisy machine
 *   npm run bench:http -- --quick             to see that everything runs
 *
 * Method: a hundred callers make the same calls, in turns with a handle and with `createClient` against `serve` on that handle, with an API key. Client, server
 * and library are in one process, so its processor time for each call is that of all of them; for PostgreSQL, without that of the database. No request
 * is limited. A creation over HTTP is repeatable (`Idempotency-Key`), which costs a record; the library's is not.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { createClient } from "../src/http/client/index.ts";
import { apiKeys, serve } from "../src/http/server/index.ts";
import { open } from "../src/index.ts";
import { sqliteGround } from "./ground.ts";
import { postgresGround } from "./ground-postgres.ts";
import { describeMachine } from "./machine.ts";
import { median } from "./result.ts";
import { showMachine } from "./table.ts";
import { cpuMs } from "./usage.ts";

const CALLERS = 100;
const { values: options } = parseArgs({
  allowPositionals: true,
  options: { quick: { type: "boolean", default: false }, rounds: { type: "string" } },
});
const rounds = Number(options.rounds ?? (options.quick ? 1 : 5));
const calls = options.quick ? 500 : 5000;

/** What is called: by a handle and by a client alike. `name` is another one for each caller. */
interface Called {
  readonly tasks: {
    create(options: { targetUrl: string; body: unknown }): Promise<{ readonly task: { readonly id: string } }>;
    get(id: string): Promise<unknown>;
  };
  start(workflow: string, input: unknown): Promise<unknown>;
  slot(name: string): { get(): Promise<unknown>; set(value: unknown): Promise<unknown> };
}

const OPERATIONS: Readonly<Record<string, (on: Called, name: string, task: string) => Promise<unknown>>> = {
  "read a slot": (on, name) => on.slot(name).get(),
  "write a slot": (on, name) => on.slot(name).set({ at: 42 }),
  "create a task": (on) => on.tasks.create({ targetUrl: "https://example.com/hook", body: { order: 42 } }),
  "read a task": (on, _name, task) => on.tasks.get(task),
  "start a run": (on) => on.start("charge", { order: 42 }),
};

interface Figures {
  readonly perSecond: number;
  readonly cpuUs: number;
}

async function measure(call: (name: string) => Promise<unknown>): Promise<Figures> {
  let left = calls;
  const caller = async (name: string): Promise<void> => {
    while (left-- > 0) await call(name);
  };
  const [beganMs, beganCpuMs] = [performance.now(), cpuMs()];
  await Promise.all(Array.from({ length: CALLERS }, (_, n) => caller(`slot-${n}`)));
  return {
    perSecond: (calls * 1000) / (performance.now() - beganMs),
    cpuUs: ((cpuMs() - beganCpuMs) * 1000) / calls,
  };
}

async function compare(place: string): Promise<void> {
  const pawl = await open(place, { logger: false });
  const server = await serve(pawl, { port: 0, logger: false, limits: { requests: false } });
  const { key } = await apiKeys(pawl).create({ name: "bench", scopes: ["admin"] });
  const library = pawl as unknown as Called;
  const client = createClient({ url: server.url, key }) as unknown as Called;
  const { task } = await library.tasks.create({ targetUrl: "https://example.com/hook", body: { order: 42 } });
  try {
    for (const [title, operation] of Object.entries(OPERATIONS)) {
      const found = { library: [] as Figures[], http: [] as Figures[] };
      // The first round only warms up.
      for (let round = 0; round <= rounds; round++) {
        const [direct, over] = [
          await measure((name) => operation(library, name, task.id)),
          await measure((name) => operation(client, name, task.id)),
        ];
        if (round > 0) {
          found.library.push(direct);
          found.http.push(over);
        }
      }
      console.log(drawLine(title, found.library, found.http));
    }
  } finally {
    await server.close({ timeout: 0 });
    await pawl.close();
  }
}

const HEADS = ["", "library /s", "HTTP /s", "ratio", "library µs", "HTTP µs", "HTTP costs µs"];
const drawRow = (cells: readonly string[]): string =>
  cells.map((cell, column) => (column === 0 ? cell.padEnd(16) : cell.padStart(14))).join("");

function drawLine(title: string, library: readonly Figures[], http: readonly Figures[]): string {
  const of = (figures: readonly Figures[], name: keyof Figures): number => median(figures.map((one) => one[name]));
  const ratios = library.map((one, round) => (http[round]?.perSecond ?? 0) / one.perSecond);
  const costs = library.map((one, round) => (http[round]?.cpuUs ?? 0) - one.cpuUs);
  const figures = [of(library, "perSecond"), of(http, "perSecond")].map((figure) => figure.toFixed(0));
  const times = [of(library, "cpuUs"), of(http, "cpuUs"), median(costs)].map((figure) => figure.toFixed(0));
  return drawRow([title, ...figures, median(ratios).toFixed(2), ...times]);
}

const folder = mkdtempSync(join(tmpdir(), "pawl-http-"));
process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
const postgres = await postgresGround();
try {
  console.log(showMachine(describeMachine(`${postgres.server}, SQLite ${process.versions["sqlite"]}`, folder)));
  console.log(`\n${CALLERS} callers; medians of ${rounds} rounds in turns; µs of processor time for each call\n`);
  for (const [name, ground] of [
    ["SQLite", sqliteGround(folder)],
    ["PostgreSQL", postgres],
  ] as const) {
    console.log(`${name}\n${drawRow(HEADS)}`);
    const place = await ground.fresh();
    await compare(String(place));
    await ground.remove(place);
    console.log();
  }
} finally {
  await postgres.close();
}
process.exit();
