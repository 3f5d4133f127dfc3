/**
 * `GET /metrics`: what an operator watches, in the text format of Prometheus.
 *
 * What is in the store is looked at for each scrape: runs by workflow and status with the age of the oldest, reactions with what waits for them. What this
 * process does is counted as it happens: requests, commits and their size, and, with `runMetrics()` as the listener of its workers, runs, attempts, lost
 * leases. Counts in the store go up to 1,000, so that a scrape costs the same however much waits.
 *
 * It needs a key of the server's own namespace, because it says how many there are of things (G26).
 */

import type { Put } from "../../kernel/contract.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { decodeRun } from "../../workflow/history/read-run.ts";
import { RUNS, type RunStatus, workflowOfQueue } from "../../workflow/stored.ts";
import { Family, type Labels } from "./counts.ts";
import { refuse } from "./problem.ts";
import type { Routing } from "./route.ts";

/** Statuses of runs that have not ended. */
const OPEN: readonly RunStatus[] = ["pending", "queued", "running", "waiting", "parked"];
const MOST_COUNTED = 1000;
/** Counts the commits of this process. */
class CommitMetrics {
  commits = 0;
  records = 0;
  bytes = 0;

  readonly count = (puts: readonly Put[] | undefined): void => {
    if (puts === undefined) return;
    this.commits += 1;
    this.records += puts.length;
    for (const { row, entries } of puts) {
      this.bytes += row.value?.length ?? 0;
      for (const { data } of entries) this.bytes += data.length;
    }
  };

  get text(): string {
    const lines = [
      ["pawl_commits_total", "Commits of this process since its first scrape.", this.commits],
      ["pawl_committed_records_total", "Records that they wrote.", this.records],
      ["pawl_committed_bytes_total", "Bytes that they wrote, approximately.", this.bytes],
    ] as const;
    return lines
      .map(([name, help, value]) => `# HELP ${name} ${help}\n# TYPE ${name} counter\n${name} ${value}\n`)
      .join("");
  }
}

export function metrics(routing: Routing): void {
  const { app, callers, namespace, kernel, settings, requests, waiting } = routing;
  const commits = new CommitMetrics();
  let isListening = false;
  app.get("/metrics", async (c) => {
    const caller = await callers.of(c.req.raw, c.env, "read");
    if (caller.namespace !== namespace)
      throw refuse("scope_missing", "This needs an API key of the server's own namespace.");
    if (!isListening) kernel.listen(commits.count);
    isListening = true;
    const nowMs = await kernel.transact((tx) => tx.nowMs, []);
    const parts = [
      await runsText(kernel, nowMs),
      await reactionsText(routing, nowMs),
      commits.text,
      requests.text,
      gauge("pawl_http_waiting", "Requests that wait: long polls and event streams.", [[{}, waiting.count]]),
      settings.metrics?.text() ?? "",
    ];
    return new Response(parts.join(""), {
      headers: { "content-type": "text/plain; version=0.0.4; charset=utf-8", "cache-control": "no-store" },
    });
  });
}

function gauge(name: string, help: string, values: readonly (readonly [Labels, number])[]): string {
  const family = new Family(name, help, "gauge");
  for (const [labels, value] of values) family.add(labels, value);
  return family.text;
}

async function runsText(kernel: Kernel, nowMs: number): Promise<string> {
  const depth: [Labels, number][] = [];
  const ages: [Labels, number][] = [];
  for (const status of OPEN) {
    const rows = await kernel.list({
      space: RUNS,
      prefix: "",
      order: "oldest",
      after: null,
      statuses: [status],
      limit: MOST_COUNTED,
    });
    for (const [workflow, group] of Map.groupBy(rows, ({ kind }) => workflowOfQueue(kind))) {
      depth.push([{ workflow, status }, group.length]);
      const [oldest] = group;
      if (oldest === undefined) continue;
      try {
        ages.push([{ workflow, status }, (nowMs - decodeRun(kernel, oldest).startedAtMs) / 1000]);
      } catch {
        // The age of a run that cannot be read is not known.
      }
    }
  }
  return (
    gauge("pawl_runs", "Runs that have not ended, by status; at most 1,000 of each status are counted.", depth) +
    gauge("pawl_runs_oldest_seconds", "How long ago the oldest of them was started.", ages)
  );
}

async function reactionsText({ pawl }: Routing, nowMs: number): Promise<string> {
  const unrouted: [Labels, number][] = [];
  const ages: [Labels, number][] = [];
  const blocked: [Labels, number][] = [];
  for (const reaction of await pawl.reactions.list()) {
    const labels = { reaction: reaction.name };
    unrouted.push([labels, reaction.unrouted]);
    if (reaction.unroutedSince !== null) ages.push([labels, (nowMs - reaction.unroutedSince.getTime()) / 1000]);
    const page = await pawl.reactions.targets(reaction.name, { status: "blocked", limit: MOST_COUNTED });
    blocked.push([labels, page.targets.length]);
  }
  return (
    gauge("pawl_reaction_unrouted", "Events that wait to be routed.", unrouted) +
    gauge("pawl_reaction_oldest_seconds", "How long ago the oldest of them was committed.", ages) +
    gauge("pawl_reaction_blocked", "Targets that are blocked.", blocked)
  );
}
