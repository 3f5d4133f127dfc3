/**
 * How the tests run: `*.test.ts` of src/, test/ and examples/ in the short suite (`npm test`), `*.long.test.ts` in the long one
 * (`npm run test:long`), and both in `npm run test:all`. A test belongs in the short suite unless it takes more than a few seconds; where a
 * search can be as long as one likes, a share of it is in a short file, and the rest, with other seeds, in a long file beside it.
 *
 * Several processes run files concurrently, the slowest files first. A file of the long suite has a process of its own. Those of the short suite
 * share processes, one file after the other, because to start one and to load the sources takes half a second of processor time, twice what
 * the tests of most files take: they leave no timers, listeners, handles or changed globals behind, or are listed in ALONE. Their files, and
 * the PostgreSQL server when no long test shares it, are in memory where the machine has a folder for that (test/node/memory-folder.ts).
 *
 * A test that imports "pawl" gets the sources, by the same condition that examples use. A run without tests has failed. Tests that need
 * PostgreSQL share one server, which is started when the first of them asks for a database.
 *
 * No test may depend on how fast the machine is. A wait ends when what is waited for has happened; the limits here only end a test that hangs.
 */

import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import { memoryFolder } from "./test/node/memory-folder.ts";

const SHORT = ["src/**/*.test.ts", "test/**/*.test.ts", "examples/**/*.test.ts"];
const LONG = ["src/**/*.long.test.ts", "test/**/*.long.test.ts"];

/** Files of the short suite that need a process of their own, because they measure it or leave something behind in it. */
const ALONE = [
  "src/node/ports.test.ts",
  "src/node/trap.test.ts",
  "src/node/watchdog.test.ts",
  "test/workflow/silence.test.ts",
];

const cores = availableParallelism();

/** Twice as many processes as cores, because most of these files wait most of the time: for timers, other processes, or a server. */
const SHORT_WORKERS = Math.min(8, Math.max(3, 2 * cores));
/** Files of the long suite are busy more of the time. */
const LONG_WORKERS = Math.min(8, Math.max(3, cores));

const inMemory = memoryFolder();
const short = {
  isolate: false,
  maxWorkers: SHORT_WORKERS,
  env: {
    ...(inMemory === null ? {} : { TMPDIR: inMemory }),
    // For the processes that tests start: compiled code makes a start three times as fast.
    NODE_COMPILE_CACHE: join(inMemory ?? tmpdir(), "node-compile-cache"),
  },
  setupFiles: ["test/node/leftovers.ts"],
};
const shared = { ...short, setupFiles: [...short.setupFiles, "test/node/kept-watchdog.ts"] };

/** What takes longest, in this order: it starts first, so that no process is left alone with it at the end. A run names its slowest files. */
const SLOWEST: readonly string[] = [
  "test/simulation/planted.long.test.ts",
  "test/programs/planted.long.test.ts",
  "test/faults/faults.long.test.ts",
  "test/stream/sweep.long.test.ts",
  "test/stream/guards.long.test.ts",
  "test/postgres/planted.long.test.ts",
  "test/serializable/planted.long.test.ts",
  "test/postgres/guards.long.test.ts",
  "test/flow/sweep.long.test.ts",
  "test/simulation/simulation-1.long.test.ts",
  "test/simulation/simulation-2.long.test.ts",
  "test/simulation/simulation-3.long.test.ts",
  "test/simulation/simulation-4.long.test.ts",
  "test/postgres/simulation.long.test.ts",
  "test/once/processes.long.test.ts",
  "test/postgres/conformance.long.test.ts",
  "test/workflow/contradiction.long.test.ts",
  "test/workflow/poison.long.test.ts",
  "test/faults/lossy.long.test.ts",
  "test/programs/programs.long.test.ts",
  "test/bench/bench.long.test.ts",
  "test/stream/closing.long.test.ts",
  "test/stream/many.long.test.ts",
  "test/differential/differential.long.test.ts",
  "test/overload/starve.long.test.ts",
  "test/overload/hang.long.test.ts",
  "test/package/package.long.test.ts",
  "test/sqlite/processes.long.test.ts",
  "test/workflow/long-history.long.test.ts",
  "test/sql/orm.long.test.ts",
  "test/overload/batch.long.test.ts",
  "test/workflow/retry-many.long.test.ts",
  "test/workflow/year.long.test.ts",
  "test/postgres/migrate.long.test.ts",
  "examples/examples.test.ts",
  "test/workflow/unreadable.test.ts",
  "test/stream/reactions.test.ts",
  "test/cli/serve.test.ts",
  "test/stream/projections.test.ts",
  "test/task/managing.test.ts",
  "test/postgres/traps.test.ts",
  "test/workflow/recovery.test.ts",
  "test/postgres/pool.test.ts",
  "test/simulation/simulation.test.ts",
  "test/http/waiting.test.ts",
  "test/sql/transact-sql.test.ts",
  "test/stream/order.test.ts",
  "test/sql/over.test.ts",
  "test/stream/closing-in-use.test.ts",
  "test/stream/projection-closing.test.ts",
  "test/stream/origin.test.ts",
  "test/task/settling.test.ts",
  "test/overload/lost.test.ts",
  "test/overload/skew.test.ts",
  "test/programs/programs.test.ts",
  "test/flow/sweep.test.ts",
  "test/stream/reaction-reports.test.ts",
  "test/arguments/arguments.test.ts",
  "test/cli/server.test.ts",
  "test/flow/processes.test.ts",
  "test/http/task-attacks.test.ts",
  "test/stream/forget.test.ts",
  "test/postgres/server-start.test.ts",
  "test/workflow/cancel.test.ts",
  "test/faults/stopped.test.ts",
  "test/sql/joint-postgres.test.ts",
  "test/workflow/cleanup.test.ts",
  "test/client/failures.test.ts",
  "test/workflow/attempts.test.ts",
  "test/sql/joint.test.ts",
  "test/http/attacks.test.ts",
];

/**
 * The slowest files first; the others in vitest's own order: by how long they took last time, or else by size. Files that share processes
 * come in a row, because a process is only kept for the next file in line.
 */
class SlowestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId, project }: TestSpecification): number => {
      const place = SLOWEST.findIndex((end) => moduleId.endsWith(end));
      return place >= 0 ? place : SLOWEST.length + (project.config.isolate ? 0 : 1);
    };
    const sorted = await super.sort(files);
    return sorted.toSorted((a, b) => rank(a) - rank(b));
  }
}

export default defineConfig({
  ssr: { resolve: { conditions: ["pawl-source", "module", "node"], externalConditions: ["pawl-source", "node"] } },
  test: {
    globalSetup: ["test/postgres/setup.ts"],
    pool: "forks",
    sequence: { sequencer: SlowestFirst },
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 60_000 } },
    passWithNoTests: false,
    reporters: ["default"],
    projects: [
      { extends: true, test: { ...shared, name: "short", include: SHORT, exclude: [...LONG, ...ALONE] } },
      { extends: true, test: { ...short, name: "short-alone", include: ALONE, isolate: true } },
      { extends: true, test: { name: "long", include: LONG, maxWorkers: LONG_WORKERS, sequence: { groupOrder: 1 } } },
    ],
  },
});
