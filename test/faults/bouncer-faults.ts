/**
 * The faults of PgBouncer, and of the connection between it and the server, in a run that uses it.
 *
 * PAUSE, RESUME and so on are commands of its admin console. A pause waits until no client uses a server connection, which in session mode
 * is never; and when it is resumed before, PAUSE has no reply at all. So no reply is awaited here.
 */

import type { Bouncer } from "./bouncer.ts";
import type { ServerFault, ServerScene } from "./faults.ts";
import type { FaultyProxy } from "./proxy.ts";

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

interface BouncerScene extends ServerScene {
  readonly bouncer: Bouncer;
  /** Between PgBouncer and the server. */
  readonly behind: FaultyProxy;
  readonly between: (least: number, most: number) => number;
}

/** A fault that needs PgBouncer, which is there and running. */
function fault(name: string, weight: number, strike: (scene: BouncerScene) => Promise<boolean>): ServerFault {
  return {
    name,
    weight,
    async strike(scene) {
      const { bouncer, behind } = scene.cluster;
      if (bouncer === null || behind === null || !bouncer.isRunning) return false;
      // What it has counted ends with its life.
      await bouncer.count().catch(() => {});
      const between = (least: number, most: number) => least + scene.random.unit() * (most - least);
      return strike({ ...scene, bouncer, behind, between });
    },
  };
}

export const bouncerFaults: readonly ServerFault[] = [
  fault("PgBouncer is killed and starts again", 3, async ({ bouncer, between }) => {
    await bouncer.kill();
    await sleep(between(0, 600));
    await bouncer.start();
    return true;
  }),
  fault("PgBouncer is shut down and starts again", 2, async ({ bouncer, between }) => {
    await bouncer.shutDown();
    await sleep(between(0, 600));
    await bouncer.start();
    return true;
  }),
  fault("PgBouncer is suspended for longer than a lease", 1, async ({ bouncer, pastLeaseMs }) => {
    await bouncer.pause(pastLeaseMs());
    return true;
  }),
  fault("PAUSE and RESUME", 2, async ({ bouncer, between }) => {
    bouncer.command("pause").catch(() => {});
    await sleep(between(100, 1_500));
    await bouncer.command("resume");
    return true;
  }),
  fault("KILL and RESUME", 2, async ({ bouncer, between }) => {
    await bouncer.command("kill");
    await sleep(between(0, 1_000));
    await bouncer.command("resume");
    return true;
  }),
  fault("RELOAD with other settings", 2, async ({ bouncer }) => {
    await bouncer.reload();
    return true;
  }),
  fault("RECONNECT", 2, async ({ bouncer }) => {
    await bouncer.command("reconnect");
    return true;
  }),
  fault("connections are cut behind PgBouncer", 2, async ({ behind }) => behind.cutAll() > 0),
  fault("replies to COMMIT are lost behind PgBouncer", 4, async ({ behind, random }) => {
    const before = behind.counts.commitRepliesDropped;
    behind.dropCommitReplies(1 + random.below(3));
    const deadlineMs = performance.now() + 2_000;
    while (performance.now() < deadlineMs && behind.pendingFaults > 0) await sleep(5);
    behind.disarm();
    return behind.counts.commitRepliesDropped > before;
  }),
  fault("the connection behind PgBouncer stalls for longer than a lease", 1, async ({ behind, pastLeaseMs }) => {
    const ms = pastLeaseMs();
    behind.stallAll(ms);
    await sleep(ms);
    return true;
  }),
];
