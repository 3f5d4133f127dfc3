/**
 * Real faults on real processes, as in `scripts/faults.ts`, with a real PgBouncer between the workers and the server: in transaction
 * mode and in session mode, with many and with few server connections, with and without its support for prepared statements.
 *
 *   npm run pgbouncer
 *   npm run pgbouncer -- --seconds 120 --seed 7 --only transaction
 *   npm run pgbouncer -- --pgbouncer /opt/pgbouncer/bin/pgbouncer
 *
 * PgBouncer itself is killed, shut down, stopped, paused, reloaded and reconnected; so are workers and the server; and replies to COMMIT get
 * lost on either side of it. It exits with 1 if anything was lost, duplicated or out of order, if work did not end, if a process was not
 * woken, or if a kind of fault never occurred; with 2 if there is no PgBouncer.
 */

import { parseArgs } from "node:util";
import { type BouncerProgram, findBouncer, KEEPS_PREPARED } from "../test/faults/bouncer.ts";
import type { BouncerChoice } from "../test/faults/cluster.ts";
import { describeRun } from "../test/faults/report.ts";
import { type RunOptions, type RunReport, runFaults } from "../test/faults/run.ts";
import { works } from "../test/faults/works/index.ts";
import { postgresVersions } from "../test/postgres/server.ts";

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "60" },
    seed: { type: "string", default: "1" },
    workers: { type: "string", default: "4" },
    postgres: { type: "string", default: "18" },
    /** Only the modes whose name has this in it. */
    only: { type: "string", default: "" },
    /** Only the faults whose name has this in it. */
    fault: { type: "string" },
    pgbouncer: { type: "string" },
    quiet: { type: "boolean", default: false },
  },
});

const seconds = atLeast(0, values.seconds, "--seconds");
const workers = atLeast(1, values.workers, "--workers");
const seed = atLeast(0, values.seed, "--seed");
const version = postgresVersions.find((one) => String(one) === values.postgres);
if (version === undefined) throw new Error(`--postgres must be one of ${postgresVersions.join(", ")}`);

interface Mode {
  readonly name: string;
  readonly bouncer: BouncerChoice;
  readonly pool: NonNullable<RunOptions["pool"]>;
}

/** The size of a pool that Pawl creates, and the smallest size for a pool of the application. */
const OWN_POOL = 10;
const SMALL_POOL = 3;
/** With one more process in between and few connections, three leases of 1.5 s are not enough on a busy machine. */
const SLACK = 4;

function modesOf(program: BouncerProgram): readonly Mode[] {
  const keeps = program.version >= KEEPS_PREPARED;
  const mixed = { max: OWN_POOL, isForAll: false };
  const small = { max: SMALL_POOL, isForAll: true };
  /** The workers, the follower, and the two processes that look at wake-ups before and after. */
  const processes = workers + 1;
  const transaction = (name: string, serverConnections: number, preparedStatements: number | null): Mode => ({
    name: `transaction, ${name}`,
    bouncer: { program, poolMode: "transaction", serverConnections, preparedStatements },
    pool: mixed,
  });
  const session = (name: string, pool: Mode["pool"], preparedStatements: number | null): Mode => ({
    name: `session, ${name}`,
    bouncer: { program, poolMode: "session", serverConnections: pool.max * processes, preparedStatements },
    pool,
  });
  if (!keeps)
    return [
      transaction("20 server connections", 20, null),
      transaction("3 server connections", 3, null),
      session("a connection for each of every pool", mixed, null),
      session("pools of 3, and as many connections", small, null),
    ];
  return [
    transaction("20 server connections, no prepared statements", 20, 0),
    transaction("20 server connections, 200 prepared statements", 20, 200),
    transaction("3 server connections, no prepared statements", 3, 0),
    transaction("3 server connections, 10 prepared statements", 3, 10),
    session("a connection for each of every pool, no prepared statements", mixed, 0),
    session("a connection for each of every pool, 200 prepared statements", mixed, 200),
    session("pools of 3, and as many connections", small, 200),
  ];
}

const program = findBouncer(values.pgbouncer);
if (program === null) {
  console.error(
    `${values.pgbouncer === undefined ? "PgBouncer is not installed" : `${values.pgbouncer} is not a PgBouncer`}, so nothing was run. ` +
      "Debian and Ubuntu: apt-get install pgbouncer; macOS: brew install pgbouncer. It need not run as a service. " +
      "For another location use --pgbouncer <path>.",
  );
  process.exitCode = 2;
} else await runAll(program);

async function runAll(program: BouncerProgram): Promise<void> {
  const modes = modesOf(program).filter(({ name }) => name.includes(values.only));
  if (modes.length === 0) throw new Error(`no mode has "${values.only}" in its name`);
  const verdicts: string[] = [];
  let isWell = true;
  for (const { name, bouncer, pool } of modes) {
    console.log(`\n${program.name} in front of PostgreSQL ${version}: ${name}`);
    const startedMs = performance.now();
    const say = (sentence: string) =>
      console.log(`${((performance.now() - startedMs) / 1000).toFixed(1).padStart(8)} s  ${sentence}`);
    const report = await runFaults({
      store: "postgres",
      version,
      seconds,
      seed,
      workers,
      bouncer,
      pool,
      works,
      slack: SLACK,
      only: values.fault,
      ...(values.quiet ? {} : { say }),
    });
    console.log(`\n${describeRun(report)}`);
    const silent = [...report.struck].filter(([, count]) => count === 0).map(([fault]) => fault);
    if (silent.length > 0) console.log(`these faults never struck: ${silent.join("; ")}`);
    const isGood = report.violations.length === 0 && silent.length === 0;
    isWell &&= isGood;
    verdicts.push(`${isGood ? "ok    " : "FAILED"}  ${name}: ${inShort(report)}`);
  }
  console.log(`\n${verdicts.join("\n")}`);
  process.exitCode = isWell ? 0 : 1;
}

function inShort({ struck, works, violations, bouncer, lives }: RunReport): string {
  const sum = (counts: Iterable<number>): number => [...counts].reduce((total, count) => total + count, 0);
  const commits = sum([...works.values()].map((work) => work.commits));
  const unknown = sum([...works.values()].map((work) => work.unknown));
  return (
    `${commits} acknowledged commits and ${unknown} unknown, ${sum(struck.values())} faults, ${lives} processes, ` +
    `${bouncer?.transactions ?? 0} transactions through ${bouncer?.starts ?? 0} PgBouncers, ${violations.length} violations`
  );
}

function atLeast(least: number, text: string, name: string): number {
  const number = Number(text);
  if (!(number >= least)) throw new Error(`${name} must be a number of at least ${least}, not "${text}"`);
  return number;
}
