/**
 * Whether the raw limit is one: the same statements with the same rows, sent by `pgbench`, PostgreSQL's own tool, written in C.
 *
 * A transaction of raw and one of pgbench are the same: BEGIN, one statement for the records, one for the log, COMMIT, prepared, in
 * one round trip, over one connection, under the same pinned plans. One run of the script is a run of ten steps for all callers.
 * pgbench computes with nothing but numbers, so the arrays stay the same for all runs, and the statements add to their ids the
 * number of the first record of the run; that, and arrays as text, is all that differs. Both leave the same rows, which is checked.
 *
 * The tool belongs to a PostgreSQL that is installed; the servers from npm have none. Where it is missing, this is said.
 */

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { atLeast, CALLERS, type Case } from "./comparisons.ts";
import type { Contender, Session, Timing } from "./contender.ts";
import type { Place } from "./ground.ts";
import { type Plan, steps } from "./plan.ts";
import { rawPostgres, SETTINGS, turnStatements } from "./raw-postgres.ts";
import { type Result, resultOf } from "./result.ts";
import { compare, type Setting } from "./rounds.ts";

/** The version of the tool, or null where there is none. */
export function findPgbench(): string | null {
  const { status, stdout } = spawnSync("pgbench", ["--version"], { encoding: "utf8" });
  return status === 0 ? (/\d[\d.]*/.exec(stdout)?.[0] ?? "") : null;
}

const ROUNDS = 5;

/** Raw beside pgbench, with all callers' rows in a transaction and with one. */
export const honesty: Case = {
  id: "r",
  title: "raw beside pgbench",
  async run(setting) {
    const version = findPgbench();
    if (version === null) {
      setting.note("pgbench is not installed here, so it was not checked whether raw is as fast as possible (case r)");
      return [];
    }
    return [
      await check(setting, { id: "r1", title: `raw, ${CALLERS} rows in a transaction`, callers: CALLERS, turns: 800 }),
      await check(setting, { id: "r2", title: "raw, one row in a transaction", callers: 1, turns: 2000 }),
    ];
  },
};

interface Check {
  readonly id: string;
  readonly title: string;
  readonly callers: number;
  readonly turns: number;
}

async function check(setting: Setting, { id, title, callers, turns }: Check): Promise<Result> {
  const plan = steps({ callers, turns: setting.quick ? 20 : turns });
  const sides = [pgbench, rawPostgres].map((contender) => ({ name: contender.name, contender, plan: () => plan }));
  const [base, raw] = await compare(setting, { unit: "commits/s", rounds: ROUNDS, sides, same: "rows" });
  if (base === undefined || raw === undefined) throw new Error("a side was not measured");
  return resultOf({ id, title, unit: "commits/s", base, ours: raw, target: atLeast(0.8) });
}

export const pgbench: Contender = {
  name: "pgbench",
  open: async (place) => new PgbenchSession(place),
};

class PgbenchSession implements Session {
  readonly #place: Place;

  constructor(place: Place) {
    this.#place = place;
  }

  async run(plan: Plan): Promise<Timing> {
    const { turns, commitsPerRecord, hot, claimed, logged } = plan;
    if (hot || claimed || !logged || turns % commitsPerRecord !== 0)
      throw new Error("the script for pgbench needs whole runs that begin with new records");
    const folder = mkdtempSync(join(tmpdir(), "pawl-pgbench-"));
    try {
      const script = join(folder, "run.sql");
      writeFileSync(script, scriptOf(plan));
      const repeated = ["--transactions", String(turns / commitsPerRecord)];
      const flags = ["--no-vacuum", "--protocol=prepared", "--file", script, ...repeated];
      const said = await runPgbench([...flags, ...variablesOf(plan), this.#place]);
      const runsPerSecond = Number(/^tps = ([\d.]+) \(without initial connection time\)/m.exec(said)?.[1]);
      if (!(runsPerSecond > 0)) throw new Error(`pgbench said nothing of its speed:\n${said}`);
      const ms = (turns / commitsPerRecord / runsPerSecond) * 1000;
      return { ms, transactions: turns, latenciesMs: [] };
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }

  async close(): Promise<void> {}
}

/** One run of ten steps: the first creates the records, the others change them. */
export function scriptOf(plan: Plan): string {
  const sql = turnStatements(plan.space, plan.logged, {
    id: "v.id + :first",
    key: "'run-' || lpad((v.id + :first - 1)::text, 32, '0')",
  });
  const named = (text: string, ...names: readonly string[]): string =>
    text.replaceAll(/\$(\d)/g, (_, number: string) => `:${names[Number(number) - 1]}`).replaceAll(/\s+/g, " ");
  const turns = plan.values.map((_, step) => {
    const [heads, texts] = [`heads${step}`, `texts${step}`];
    const records = step === 0 ? named(sql.insert, "ids", "ids", texts) : named(sql.update, "ids", heads, heads, texts);
    const entries = named(sql.append, "ids", heads, texts, "at");
    return ["\\startpipeline", "begin;", `${records};`, `${entries};`, "commit;", "\\endpipeline"].join("\n");
  });
  return [...turns, `\\set first :first + ${plan.callers}`, ""].join("\n");
}

/** The arrays, as texts of PostgreSQL's own. */
function variablesOf(plan: Plan): string[] {
  const each = (item: (index: number) => string) =>
    `{${Array.from({ length: plan.callers }, (_, index) => item(index)).join(",")}}`;
  const quoted = (text: string) => `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
  const variables: Record<string, string> = { first: "0", at: "0", ids: each((index) => String(index + 1)) };
  for (const [step, value] of plan.values.entries()) {
    variables[`heads${step}`] = each(() => String(step + 1));
    variables[`texts${step}`] = each(() => quoted(JSON.stringify(value)));
  }
  return Object.entries(variables).flatMap(([name, value]) => ["--define", `${name}=${value}`]);
}

async function runPgbench(args: readonly string[]): Promise<string> {
  const env = { ...process.env, PGOPTIONS: SETTINGS.map((setting) => `-c ${setting.replaceAll(" ", "")}`).join(" ") };
  const child = spawn("pgbench", args, { env, stdio: ["ignore", "pipe", "pipe"] });
  const said: string[] = [];
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => said.push(text));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  if (code !== 0) throw new Error(`pgbench ended with ${code}:\n${said.join("")}`);
  return said.join("");
}
