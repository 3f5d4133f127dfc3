/** `pawl doctor`: whether the store is sound, and what is stuck in it. */

import type { Backend } from "../backend.ts";
import type { Finding, Stuck } from "../diagnosis.ts";
import { CliError } from "../exit-codes.ts";
import type { Column } from "../output.ts";
import { declare, type Place } from "../program.ts";
import { LISTED, type Session } from "../session.ts";

const COLUMNS: readonly Column<Finding>[] = [
  { title: "CHECK", of: ({ check }) => check },
  { title: "STATUS", of: ({ status }) => status, isStatus: true },
  { title: "SAYS", of: ({ says }) => says, isWhole: true },
];

const MOST_READ = 1000;
const ALIVE = ["pending", "queued", "running", "waiting"];
const KINDS = ["mutex", "semaphore", "rwlock"] as const;

export function doctorCommand(place: Place): void {
  declare(place, {
    usage: "doctor",
    summary: "check that the store is sound, and say what is stuck and why",
    help: "Ends with 1 if there is a problem. Looks at the newest 1,000 runs that have not ended.",
    run: async (session) => {
      const findings = await examine(session);
      if (session.isJson) for (const one of findings) session.json(one);
      else
        await session.list(
          {
            columns: COLUMNS,
            page: async () => ({ items: findings, next: null }),
            keyOf: ({ says }) => says,
            none: "",
          },
          {},
        );
      const problems = findings.filter(({ status }) => status === "problem").length;
      if (problems > 0)
        throw new CliError("unhealthy", `${problems} ${problems === 1 ? "problem was" : "problems were"} found`);
    },
  });
}

async function examine(session: Session): Promise<readonly Finding[]> {
  const [{ judgeStuck, judgeSurvey }, { wallMs }] = await Promise.all([
    import("../diagnosis.ts"),
    import("../../node/ports.ts"),
  ]);
  const findings: Finding[] = [];
  let nowMs = wallMs();
  if (session.url === undefined) {
    const place = await session.place();
    const { nothingThere, survey } = await import("../store.ts");
    const found = await survey(place);
    if (found.schema === 0) throw nothingThere(place);
    nowMs = found.is === "postgres" ? found.nowMs : wallMs();
    const database = found.is === "postgres" ? "PostgreSQL" : "SQLite";
    const versions = `Pawl ${await pawlVersion()}, Node ${process.versions.node}, ${database} ${found.version}`;
    findings.push({ check: "store", status: "ok", says: place.shown }, ...judgeSurvey(found, wallMs(), versions));
    // What is stuck is read as this release stores it.
    if (found.schema < found.known) return findings;
  }
  const backend = await session.backend("read");
  if (session.url !== undefined) findings.push({ check: "server", status: "ok", says: backend.place });
  return [...findings, ...judgeStuck(await readStuck(backend, nowMs))];
}

async function pawlVersion(): Promise<string> {
  const { version } = await import("../version.ts");
  return version();
}

async function readStuck(backend: Backend, nowMs: number): Promise<Stuck> {
  const [parked, alive, pausedWorkflows, schedules, reactions, projections] = await Promise.all([
    backend.runs.list({ status: ["parked"], limit: MOST_READ }),
    backend.runs.list({ status: ALIVE, limit: MOST_READ }),
    backend.workflows.paused(),
    backend.schedules.list({ limit: MOST_READ }),
    backend.reactions.list(),
    backend.projections.list(),
  ]);
  const blocked = await Promise.all(
    reactions.map(async ({ name }) => ({
      reaction: name,
      targets: (await backend.reactions.targets(name, { status: "blocked", limit: LISTED })).items,
    })),
  );
  const letters = await Promise.all(
    reactions.map(async ({ name }) => ({
      reaction: name,
      ...(await backend.reactions.deadLetters(name, { limit: LISTED })),
    })),
  );
  return {
    nowMs,
    parked: parked.items,
    alive: alive.items,
    pausedWorkflows,
    schedules: schedules.items,
    reactions,
    blocked,
    letters,
    projections,
    locks: await readLocks(backend),
  };
}

/** A server does not list locks. */
async function readLocks(backend: Backend): Promise<Stuck["locks"]> {
  try {
    const pages = await Promise.all(KINDS.map((kind) => backend.locks.list({ kind, limit: MOST_READ })));
    return pages.flatMap(({ items }) => items);
  } catch (error) {
    if (error instanceof CliError && error.code === "not_supported") return [];
    throw error;
  }
}
