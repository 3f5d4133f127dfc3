/**
 * The crew: worker processes, each in a place of its own that is filled again when its process dies, and a follower.
 *
 * Each place has its own proxy in front of the server, so that one worker can be cut off from it alone. Everything a worker prints goes
 * into the ledger. Operations that did not succeed and can be repeated are handed to any live worker, by `Repeats`, until they are
 * acknowledged.
 *
 * A worker that asks what the ledger knows gets the reply here, from what all of them reported before.
 *
 * Guarantees: a process that ended without being killed by us is recorded as an accident, with its last output.
 */

import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Random } from "../../src/testing/sim/random.ts";
import { spawnNode } from "../node/child.ts";
import type { Order } from "./bench.ts";
import type { WorkerArguments } from "./children/worker.ts";
import { type Ledger, LedgerError, type Operation } from "./ledger.ts";
import type { FaultyProxy } from "./proxy.ts";
import { type SkewedClock, skewedClock } from "./skew.ts";
import type { Work } from "./works/work.ts";

export interface CrewOptions {
  /** What `open` is given: a path, or an address that the place's proxy stands in front of. */
  readonly store: string;
  readonly namespace: string;
  readonly ledger: Ledger;
  readonly random: Random;
  readonly works: readonly Work[];
  /** For each place, and one more for the follower; empty where there is no server. */
  readonly proxies: readonly FaultyProxy[];
  /** How many connections each second worker gives to Pawl in a pool of its own; null for all of them to open an address. */
  readonly poolMax: number | null;
  /** Whether the others, and the follower, have such a pool too. */
  readonly isPoolForAll: boolean;
  /** Whether workers may have clocks of their own. */
  readonly skews: boolean;
  /** Where libfaketime is, or null. */
  readonly faketime: string | null;
  /** For files of its own. */
  readonly folder: string;
}

type PlaceState = "starting" | "working" | "stopped" | "killed" | "gone";

const HOUR_MS = 3_600_000;
/** Some workers give up soon, and get "unknown" more often; others wait through most faults. */
const PATIENCE_MS = [1_000, 15_000];
const HURRY_MS = 30_000;

/** One worker after another, in one place. */
export class Place {
  readonly name: string;
  readonly proxy: FaultyProxy | null;
  readonly #crew: Crew;
  readonly #options: CrewOptions;
  readonly #program: "worker.ts" | "follower.ts";
  readonly #index: number;
  #lives = 0;
  #child: ChildProcess | undefined;
  #clock: SkewedClock | undefined;
  #complaints = "";
  #restart: NodeJS.Timeout | undefined;
  state: PlaceState = "gone";
  #closed: Promise<void> = Promise.resolve();

  constructor(crew: Crew, options: CrewOptions, index: number, program: "worker.ts" | "follower.ts") {
    this.#crew = crew;
    this.#options = options;
    this.#index = index;
    this.#program = program;
    this.name = program === "follower.ts" ? "follower" : `w${index}`;
    this.proxy = options.proxies[index] ?? null;
  }

  get life(): string {
    return `${this.name}#${this.#lives}`;
  }

  start(): void {
    const { store, namespace, random, skews, folder, works, ledger } = this.#options;
    this.#lives += 1;
    const { life } = this;
    const isSkewed = skews && this.#program === "worker.ts";
    const faketime = isSkewed ? this.#options.faketime : null;
    const skewMs = isSkewed ? drawSkew(random) : 0;
    this.#clock = skewedClock(faketime, join(folder, `${life}.clock`), skewMs);
    const hasPool = this.#options.isPoolForAll || this.#index % 2 === 1;
    const args: WorkerArguments = {
      store: this.proxy === null ? store : this.proxy.urlOf(store),
      poolMax: hasPool ? this.#options.poolMax : null,
      namespace,
      patienceMs: PATIENCE_MS[this.#index % PATIENCE_MS.length] ?? 0,
      life,
      seed: random.below(2 ** 31),
      skewMs: faketime === null ? skewMs : 0,
      works: works.map(({ name }) => name),
    };
    const file = join(import.meta.dirname, "children", this.#program);
    const child = spawnNode(file, [JSON.stringify(args)], { env: this.#clock.env });
    this.#child = child;
    this.#complaints = "";
    this.state = "starting";
    child.stderr?.on("data", (text) => {
      this.#complaints = `${this.#complaints}${text}`.slice(-4_000);
    });
    if (child.stdout !== null)
      createInterface({ input: child.stdout }).on("line", (line) => {
        if (this.state === "starting") this.state = "working";
        try {
          ledger.hear(life, line);
        } catch (error) {
          // The last line of a killed process may be half a line.
          if (error instanceof LedgerError || this.state !== "killed") this.#crew.accidents.push(`${life}: ${error}`);
        }
      });
    if (this.#crew.isHealing) this.tell({ order: "heal" });
    this.#closed = new Promise((resolve) => {
      child.on("close", (code, signal) => {
        const wasMeant = this.state === "killed" || (this.state === "gone" && code === 0);
        if (!wasMeant)
          this.#crew.accidents.push(`${life} ended with ${signal ?? `exit code ${code}`}: ${this.#complaints.trim()}`);
        ledger.died(life);
        this.#crew.died(life);
        if (this.state !== "gone") {
          this.state = "killed";
          this.#restart = setTimeout(() => this.start(), 50 + random.unit() * 300);
        }
        resolve();
      });
    });
  }

  tell(order: Order): void {
    this.#child?.stdin?.write(`${JSON.stringify(order)}\n`);
  }

  /** Nothing of it runs any more; another starts in its place soon. */
  async kill(): Promise<void> {
    this.state = "killed";
    this.#child?.kill("SIGKILL");
    await this.#closed;
  }

  /** Suspends it for this long, without its knowledge. */
  async pause(ms: number): Promise<void> {
    const child = this.#child;
    if (child === undefined || !child.kill("SIGSTOP")) return;
    this.state = "stopped";
    await new Promise((resolve) => setTimeout(resolve, ms));
    child.kill("SIGCONT");
    if (this.state === "stopped") this.state = "working";
  }

  /** Sets its clock forward or back. */
  jump(ms: number): void {
    if (this.#clock?.set(ms) !== true) this.tell({ order: "skew", ms });
  }

  /** Asks it to end, and waits until it has. */
  async stop(): Promise<void> {
    clearTimeout(this.#restart);
    const wasRunning = this.state === "starting" || this.state === "working";
    this.state = "gone";
    if (!wasRunning) return;
    this.tell({ order: "stop" });
    const late = setTimeout(() => {
      this.#crew.accidents.push(`${this.life} does not end`);
      this.#child?.kill("SIGKILL");
    }, HURRY_MS);
    await this.#closed;
    clearTimeout(late);
  }

  /** Ends it whatever it does. */
  abort(): void {
    clearTimeout(this.#restart);
    this.state = "gone";
    this.#child?.kill("SIGKILL");
  }
}

/** Most clocks are a little off, some by an hour, some by a day. */
function drawSkew(random: Random): number {
  const scale = random.pick([0, 5_000, HOUR_MS, HOUR_MS, 24 * HOUR_MS]);
  return Math.round((2 * random.unit() - 1) * scale);
}

const HEAR_FIRST_MS = 30;

export class Crew {
  readonly places: readonly Place[];
  readonly follower: Place;
  readonly accidents: string[] = [];
  readonly repeats: Repeats;
  isHealing = false;

  constructor(size: number, options: CrewOptions) {
    this.places = Array.from({ length: size }, (_, i) => new Place(this, options, i, "worker.ts"));
    this.follower = new Place(this, options, size, "follower.ts");
    this.repeats = new Repeats(this, options);
    const { ledger, works } = options;
    ledger.listen({
      asked: (life, { work, question, ask }) => {
        // After a moment, so that everything it wrote before the question has been read, from both pipes.
        setTimeout(() => {
          const known = { notes: ledger.notes(work), dead: ledger.dead };
          const answer = works.find(({ name }) => name === work)?.answer?.(question, known);
          this.places.find((place) => place.life === life)?.tell({ order: "answer", ask, answer });
        }, HEAR_FIRST_MS);
      },
    });
  }

  start(): void {
    for (const place of this.places) place.start();
    this.follower.start();
  }

  /** Places whose process is running and was not stopped. */
  get present(): readonly Place[] {
    return this.places.filter(({ state }) => state === "working");
  }

  heal(): void {
    this.isHealing = true;
    for (const place of this.places) place.tell({ order: "heal" });
  }

  /** The workers first, so that the follower sees the last of what they did. */
  async stop(): Promise<void> {
    this.repeats.stop();
    await Promise.all(this.places.map((place) => place.stop()));
    await this.follower.stop();
  }

  abort(): void {
    this.repeats.stop();
    for (const place of [...this.places, this.follower]) place.abort();
  }

  died(life: string): void {
    this.repeats.died(life);
  }
}

const REPEAT_ACKNOWLEDGED = 0.03;

interface Pending {
  readonly work: string;
  readonly task: unknown;
  /** Who has it in hand. */
  on: string | null;
}

/** Asks again what was not acknowledged, and sometimes what was. */
export class Repeats {
  readonly #crew: Crew;
  readonly #options: CrewOptions;
  readonly #pending = new Map<string, Pending>();
  #isOver = false;
  /** How often something was asked again. */
  count = 0;

  constructor(crew: Crew, options: CrewOptions) {
    this.#crew = crew;
    this.#options = options;
    options.ledger.listen({ ended: (operation) => this.#ended(operation) });
  }

  /** What is still to be acknowledged. */
  get pending(): readonly string[] {
    return [...this.#pending.keys()];
  }

  stop(): void {
    this.#isOver = true;
  }

  died(life: string): void {
    for (const [key, pending] of this.#pending) if (pending.on === life) this.#later(key, pending);
  }

  #ended(operation: Operation): void {
    const again = this.#options.works.find(({ name }) => name === operation.work)?.again?.(operation) ?? null;
    if (again === null || this.#isOver) return;
    const key = `${operation.work} ${again.id}`;
    const pending: Pending = { work: operation.work, task: again.task, on: null };
    if (operation.answer !== "yes") {
      this.#pending.set(key, pending);
      this.#later(key, pending);
      return;
    }
    this.#pending.delete(key);
    if (!this.#crew.isHealing && this.#options.random.chance(REPEAT_ACKNOWLEDGED)) this.#hand(pending);
  }

  #later(key: string, pending: Pending): void {
    pending.on = null;
    setTimeout(
      () => {
        // Another may have brought it home meanwhile, or have taken it up.
        if (this.#pending.get(key) !== pending || pending.on !== null || this.#isOver) return;
        if (!this.#hand(pending)) this.#later(key, pending);
      },
      20 + this.#options.random.unit() * 200,
    );
  }

  #hand(pending: Pending): boolean {
    const { present } = this.#crew;
    if (present.length === 0) return false;
    const place = this.#options.random.pick(present);
    pending.on = place.life;
    this.count += 1;
    place.tell({ order: "task", work: pending.work, task: pending.task });
    return true;
  }
}
