/**
 * Goal: whatever a receiver does, and however often the servers that call it are killed, every task ends, as whatever settled it says to everybody; every call
 * for a task, and every notification of its end, has its one key; and a receiver that goes by the key has done the work of each task once.
 * Method: two processes of `pawl serve` share a database, are killed (`kill -9`) again and again while calls are under way, and are replaced. Clients
 * create tasks, send signals and wait through whichever of them lives, and repeat what got no response. The receiver is slow, dies, responds late or never,
 * redirects, drips, sends 10 GB, closes half-way, and is overloaded: each task meets some of that before a call of it gets a good response. For half of
 * the tasks it signals, in its own time, more than once, or never. Its ledger is by what the body says, not by the key, so a second key would count twice.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Webhook } from "standardwebhooks";
import { afterEach, expect, test } from "vitest";
import { open } from "../../src/index.ts";
import { KEYS, type Served, served } from "../cli/kit.ts";
import { type Got, sender } from "../http/kit.ts";
import { freshDatabase } from "../postgres/server.ts";
import { PATIENCE } from "../workflow/kit.ts";
import {
  type Behavior,
  closesHalfway,
  dies,
  drips,
  receiver,
  reply,
  resets,
  SECRET,
  type Seen,
  sendsTenGigabytes,
  silence,
} from "./kit.ts";

/** Tasks are created a wave at a time, at least until there were that many waves and kills. */
const WAVE = 16;
const WAVES = 3;
const KILLS = 16;
/** How long a server lives after it has begun to serve. */
const LIFE_MS = { least: 300, most: 1500 };
const TIMEOUT_MS = 1000;
/** Each task meets this many bad responses. */
const BAD = 3;

const ENV = { ...KEYS, PAWL_WEBHOOK_SECRETS: SECRET };
const OPTIONS = ["--allow", "127.0.0.1/32", "--lease", "500ms"];

const endings: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const end of endings.splice(0).reverse()) await end();
});

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const after =
  (ms: number, behavior: Behavior): Behavior =>
  (response, seen) =>
    void setTimeout(() => behavior(response, seen), ms);

const redirects = reply(302, "", { location: "/elsewhere" });

const MOODS: Readonly<Record<string, Behavior>> = {
  late: after(3 * TIMEOUT_MS, reply(200, "too late")),
  dies,
  "sends 10 GB": sendsTenGigabytes,
  drips,
  "closes half-way": closesHalfway,
  redirects,
  resets,
  "never replies": silence,
  overloaded: reply(503, "", { "retry-after": "0" }),
};
const NAMES = Object.keys(MOODS);

/** Two servers that are killed and replaced, and requests to whichever lives. */
class Servers {
  kills = 0;
  readonly #store: string;
  readonly #living = new Set<string>();
  #key = "";
  #isOver = false;
  #lives: Promise<void>[] = [];

  constructor(store: string) {
    this.#store = store;
  }

  async start(): Promise<void> {
    const first = await this.#serve();
    this.#key = String(first.key);
    this.#lives = [this.#live(first), this.#live(await this.#serve())];
    for (const life of this.#lives) life.catch(() => {});
  }

  #serve(): Promise<Served> {
    return served(["--store", this.#store, ...OPTIONS], ENV);
  }

  async #live(first: Served): Promise<void> {
    for (let server = first; ; server = await this.#serve()) {
      this.#living.add(server.url);
      await pause(LIFE_MS.least + Math.random() * (LIFE_MS.most - LIFE_MS.least));
      this.#living.delete(server.url);
      await server.child.kill();
      this.kills += 1;
      if (this.#isOver) return;
    }
  }

  /** Kills both. What one of them did wrong, such as not to start again, is thrown. */
  async end(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#lives);
  }

  /** Repeats a request until it has a response; a server that is killed leaves it without one. */
  async send(method: string, path: string, body?: unknown, key: string | null = this.#key): Promise<Got> {
    for (;;) {
      const urls = [...this.#living];
      const url = urls[Math.floor(Math.random() * urls.length)];
      const got = url === undefined ? null : await sender(url, key ?? undefined)(method, path, body).catch(() => null);
      if (got !== null && got.status !== 429 && got.status !== 503) return got;
      // A server that cannot be started again would leave this waiting without an end.
      await Promise.race([pause(20), ...this.#lives]);
    }
  }

  async outcomeOf(id: string): Promise<Record<string, unknown>> {
    for (;;) {
      const { status, json } = await this.send("GET", `/v1/tasks/${id}?wait=20s`);
      expect(status).toBe(200);
      if (json["outcome"] !== null) return json["outcome"] as Record<string, unknown>;
    }
  }
}

/** What the receiver knows of a task, by the number in the body. */
class Known {
  readonly calls: Seen[] = [];
  readonly keys = new Set<string>();
  readonly notified = new Set<string>();
  /** How often the work was done, and how often its end was noted: once for each key. */
  work = 0;
  ends = 0;
  /** The outcomes that signals got, as texts. */
  readonly told = new Set<string>();
  readonly signals: Promise<void>[] = [];
}

class Ledger {
  readonly #of = new Map<number, Known>();
  readonly moods = new Set<string>();
  readonly #servers: Servers;
  readonly #webhook = new Webhook(SECRET);

  constructor(servers: Servers) {
    this.#servers = servers;
  }

  of(n: number): Known {
    const known = this.#of.get(n) ?? new Known();
    this.#of.set(n, known);
    return known;
  }

  readonly behave: Behavior = (response, seen) => {
    this.#webhook.verify(seen.body, seen.headers as Record<string, string>);
    expect(seen.headers["webhook-id"]).toBe(seen.key);
    if (seen.path === "/ended") return this.#end(response, seen);
    const { n } = JSON.parse(seen.body) as { n: number };
    const task = this.of(n);
    if (!task.keys.has(seen.key)) task.work += 1;
    task.keys.add(seen.key);
    task.calls.push(seen);
    const token = seen.headers["pawl-signal-token"];
    if (token !== undefined && task.calls.length > n % 3)
      for (let i = 0; i < (n % 8 === 7 ? 0 : n % 4); i++) task.signals.push(this.#signal(task, String(token)));
    const call = task.calls.length - 1;
    // A slow response is a good one: it comes in time.
    if (call >= BAD) return after(n % 5 === 0 ? TIMEOUT_MS / 4 : 0, reply(200, "fine"))(response, seen);
    const mood = NAMES[(n + 2 * call) % NAMES.length] as string;
    this.moods.add(mood);
    MOODS[mood]?.(response, seen);
  };

  readonly #end: Behavior = (response, seen) => {
    const { data } = JSON.parse(seen.body) as { data: { id: string } };
    const n = Number(data.id.slice(1));
    const task = this.of(n);
    const isFirst = task.notified.size === 0;
    if (!task.notified.has(seen.key)) task.ends += 1;
    task.notified.add(seen.key);
    (isFirst ? [dies, reply(500), reply()][n % 3] : reply())?.(response, seen);
  };

  async #signal(task: Known, token: string): Promise<void> {
    await pause(Math.random() * 2 * TIMEOUT_MS);
    const body = { status: Math.random() < 0.5 ? "completed" : "failed", value: Math.random() < 0.5 ? 1 : 2 };
    const { status, json } = await this.#servers.send("POST", `/v1/signals/${token}`, body, null);
    expect([200, 409, 410]).toContain(status);
    task.told.add(JSON.stringify(json["outcome"] ?? (json["data"] as Record<string, unknown>)["outcome"]));
  }
}

const grounds = {
  SQLite: async () => {
    const folder = mkdtempSync(join(tmpdir(), "pawl-task-kills-"));
    endings.push(() => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }));
    return join(folder, "shop.db");
  },
  PostgreSQL: async () => {
    const { url, drop } = await freshDatabase();
    endings.push(drop);
    return url;
  },
};

test.each(["SQLite", "PostgreSQL"] as const)("every task ends, and its work is done once, on %s", async (name) => {
  const store = await grounds[name]();
  const servers = new Servers(store);
  await servers.start();
  endings.push(() => servers.end());
  const ledger = new Ledger(servers);
  const { url, seen } = await receiver(ledger.behave);
  const retry = { attempts: 1000, delay: "10ms", maxDelay: "100ms" };
  const outcomes = new Map<number, Record<string, unknown>>();

  for (let wave = 0; wave < WAVES || servers.kills < KILLS; wave++) {
    const some = Array.from({ length: WAVE }, (_, i) => wave * WAVE + i);
    const work = some.map(async (n) => {
      const waits = n % 2 === 1 ? { waitForSignal: true, maxWaitTime: "2s" } : {};
      // Half of the others take a redirect for an outage; for the rest it is the end.
      const retried = n % 4 === 2 ? {} : { retryStatuses: [302, 429, "5xx"] };
      const task = {
        targetUrl: url,
        onCompleteUrl: new URL("/ended", url).href,
        body: { n },
        timeout: `${TIMEOUT_MS}ms`,
      };
      const created = await servers.send("POST", "/v1/tasks", { ...task, ...waits, ...retried, retry, id: `t${n}` });
      expect([200, 201]).toContain(created.status);
      outcomes.set(n, await servers.outcomeOf(`t${n}`));
    });
    await Promise.all(work);
  }

  for (const [n, outcome] of outcomes) {
    const task = ledger.of(n);
    await Promise.all(task.signals);
    for (const told of task.told) expect(told).toBe(JSON.stringify(outcome));
    const deliveries = async () => (await servers.send("GET", `/v1/tasks/t${n}/deliveries`)).json["items"];
    await expect.poll(deliveries, PATIENCE).toMatchObject([{ status: "completed" }]);
    expect(await deliveries()).toMatchObject([...task.notified].map((id) => ({ id })));
    const { json } = await servers.send("GET", `/v1/tasks/t${n}/attempts`);
    const attempts = json["items"] as { number: number; status: number | null; body: string }[];
    expect(attempts.map(({ number }) => number)).toEqual(attempts.map((_, i) => i + 1));
    if (outcome["by"] === "response")
      expect(outcome).toMatchObject(
        attempts.at(-1)?.status === 302 && n % 4 === 2
          ? { status: "failed", value: { status: 302 } }
          : { status: "completed", value: { status: 200, body: "fine" } },
      );
    else
      expect([n % 2, outcome["by"]]).toEqual([
        1,
        task.told.size > 0 ? expect.stringMatching(/signal|timeout/) : "timeout",
      ]);
    // A signal may come before any call was made, but it is the receiver that sends it, so there was one.
    expect([task.keys.size, task.work, task.notified.size, task.ends], `t${n}`).toEqual([1, 1, 1, 1]);
    const fences = task.calls.map(({ fence }) => fence);
    expect(new Set(fences).size).toBe(fences.length);
  }

  // What was meant to happen did: each behavior, outcomes of each kind, and kills in the middle of calls, which were then made again under their numbers.
  expect([...ledger.moods].toSorted()).toEqual(NAMES.toSorted());
  expect(new Set(Array.from(outcomes.values(), ({ by }) => by))).toEqual(new Set(["response", "signal", "timeout"]));
  const isCutShort = (n: number) =>
    new Set(ledger.of(n).calls.map(({ attempt }) => attempt)).size < ledger.of(n).calls.length;
  expect([...outcomes.keys()].some(isCutShort)).toBe(true);
  expect(servers.kills).toBeGreaterThanOrEqual(KILLS);
  expect(seen.filter(({ path }) => path !== "/hook" && path !== "/ended")).toEqual([]);

  await servers.end();
  await using pawl = await open(store, { logger: false });
  const { tasks } = await pawl.tasks.list({
    status: ["pending", "queued", "running", "waiting", "parked"],
    limit: 1000,
  });
  expect(tasks).toEqual([]);
});
