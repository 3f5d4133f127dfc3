/**
 * The demonstration: starts the processes, the provider and the chaos, and draws what happens until the last order is charged.
 *
 * Guarantees: `end` leaves no process behind, whenever it is called.
 * Out of scope: the final checks, which run in another process (audit.ts).
 */

import { join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { open } from "../src/index.ts";
import { Chaos } from "./chaos.ts";
import { Place } from "./crew.ts";
import { makeLedgers, openReadOnly, PROVIDER_LEDGER, readEvidence } from "./evidence.ts";
import type { FromWeb, FromWorker } from "./messages.ts";
import {
  drawBrief,
  drawEnd,
  drawPicture,
  type Happening,
  type News,
  type ProcessView,
  type Snapshot,
} from "./picture.ts";
import { Provider } from "./provider.ts";
import { isScreen, print, Screen } from "./terminal.ts";
import { type Tally, tallyOf } from "./verdict.ts";

const WORKERS = 4;
const WEBS = 2;
const ORDERS_PER_SECOND = 20;
/** Parts of the whole time. The rest is for orders that are still open when the last process was killed. */
const ORDERING_SHARE = 0.8;
const CHAOS_SHARE = 0.85;
/** Long enough for any machine; an order that is not charged by then will not be. */
const PATIENCE_MS = 60_000;
const FRAME_MS = 100;
/** The numbers are read from the files, which costs some milliseconds, so not for every frame. */
const READ_MS = 400;
const BRIEF_MS = 3_000;
/** How long the last picture is shown. */
const LAST_LOOK_MS = 1_500;
const NEWS_KEPT = 20;

interface WorkerSeat {
  readonly place: Place<FromWorker>;
  inHand: readonly string[];
}

export class Demonstration {
  readonly #database: string;
  readonly #seconds: number;
  readonly #orderCount: number;
  readonly #screen = isScreen(process.stdout) ? new Screen(process.stdout) : undefined;
  readonly #workers: WorkerSeat[] = [];
  readonly #webs: Place<FromWeb>[] = [];
  readonly #news: News[] = [];
  #startMs: number | undefined;
  #chaos: Chaos | undefined;
  #provider: Provider | undefined;

  constructor(options: { database: string; seconds: number }) {
    this.#database = options.database;
    this.#seconds = options.seconds;
    this.#orderCount = Math.round(options.seconds * ORDERS_PER_SECOND);
  }

  /** Processes that ended by themselves. */
  get accidents(): readonly string[] {
    return this.#places().flatMap(({ accidents }) => accidents);
  }

  async run(): Promise<void> {
    const ledgers = makeLedgers(this.#database);
    // Creates the file, so that it can be read before a process has written.
    await (await open(this.#database)).close();
    for (let i = 0; i < WORKERS; i++) this.#workers.push(this.#startWorker(i + 1, ledgers));
    for (let i = 0; i < WEBS; i++) this.#webs.push(this.#startWeb(i));
    const db = openReadOnly(this.#database);
    await this.#watch(db, ledgers);
    this.#provider?.stop();
    this.#chaos?.stop();
    await Promise.all(this.#places().map((place) => place.stop()));
    this.#screen?.leave();
    print(process.stdout, drawEnd(this.#snapshot(tallyOf(readEvidence(db, ledgers)))));
    db.close();
  }

  /** Called when all processes are ready: starts the clock, the orders and the kills. */
  #begin(ledgers: string): void {
    this.#startMs = performance.now();
    this.#chaos = new Chaos({
      workers: this.#workers,
      webs: this.#webs,
      lengthMs: 1000 * CHAOS_SHARE * this.#seconds,
      report: (what, sentence) => this.#report(what, sentence),
    });
    this.#provider = new Provider({
      ledger: join(ledgers, PROVIDER_LEDGER),
      webCount: WEBS,
      deliver: (web, order) => {
        const place = this.#webs[web];
        if (place?.state !== "working") return false;
        place.send({ is: "order", ...order });
        return true;
      },
      orderCount: this.#orderCount,
      lengthMs: 1000 * ORDERING_SHARE * this.#seconds,
    });
  }

  /** Draws what happens, until every order is charged or the time is over. */
  async #watch(db: DatabaseSync, ledgers: string): Promise<void> {
    const giveUpAtMs = performance.now() + 1000 * this.#seconds + PATIENCE_MS;
    let tally = tallyOf(readEvidence(db, ledgers));
    let readAtMs = 0;
    let briefAtMs = 0;
    let doneAtMs: number | undefined;
    for (; performance.now() < giveUpAtMs; await sleep(FRAME_MS)) {
      if (this.#chaos === undefined && this.#places().every(({ state }) => state === "working")) this.#begin(ledgers);
      const nowMs = performance.now();
      if (nowMs - readAtMs >= READ_MS) {
        tally = tallyOf(readEvidence(db, ledgers));
        readAtMs = nowMs;
      }
      const snapshot = this.#snapshot(tally);
      if (this.#screen !== undefined) this.#screen.draw(drawPicture(snapshot, this.#screen));
      else if (nowMs - briefAtMs >= BRIEF_MS) {
        print(process.stdout, [drawBrief(snapshot)]);
        briefAtMs = nowMs;
      }
      if (tally.charged >= this.#orderCount && this.#chaos?.isOver) doneAtMs ??= nowMs;
      if (doneAtMs !== undefined && nowMs - doneAtMs >= (this.#screen === undefined ? 0 : LAST_LOOK_MS)) return;
    }
  }

  #startWorker(number: number, ledgers: string): WorkerSeat {
    const name = `worker ${number}`;
    const seat: WorkerSeat = {
      inHand: [],
      place: new Place<FromWorker>({
        name,
        script: "worker.ts",
        // A ledger for each process: no other process ever writes to it.
        args: (life) => [this.#database, name, join(ledgers, `worker-${number}-${life}.txt`)],
        onMessage: (message) => {
          switch (message.is) {
            case "ready":
              seat.inHand = [];
              seat.place.is("working");
              break;
            case "in hand":
              seat.inHand = message.orders;
              break;
            case "taken over":
              this.#chaos?.tookOver(message.order);
              this.#reportTakeOver(name, message.order);
              break;
            case "refused":
              this.#report("refused", `${name} committed ${message.order} too late: it has a new holder`);
              break;
            case "freezing":
              this.#chaos?.froze(seat);
              break;
          }
        },
      }),
    };
    return seat;
  }

  #startWeb(web: number): Place<FromWeb> {
    const name = `web ${web + 1}`;
    const place = new Place<FromWeb>({
      name,
      script: "web.ts",
      args: () => [this.#database, name],
      onMessage: (message) => {
        if (message.is === "ready") place.is("working");
        this.#provider?.onMessage(web, message);
      },
    });
    return place;
  }

  #report(what: Happening, sentence: string): void {
    this.#news.push({ atMs: this.#elapsedMs(), what, sentence });
    if (this.#news.length > NEWS_KEPT) this.#news.shift();
  }

  /** A worker that takes over several orders in a row has one line for them. */
  #reportTakeOver(name: string, order: string): void {
    const last = this.#news.at(-1);
    const start = `${name} continues with `;
    const isSame = last?.what === "took over" && last.sentence.startsWith(start);
    if (isSame) this.#news.pop();
    this.#report("took over", isSame ? `${last.sentence}, ${order}` : `${start}${order}`);
  }

  #snapshot(tally: Tally): Snapshot {
    return {
      elapsedMs: this.#elapsedMs(),
      lengthMs: 1000 * this.#seconds,
      orderCount: this.#orderCount,
      tally,
      processes: [
        ...this.#webs.map((place) => viewOf(place, null, "placed")),
        ...this.#workers.map(({ place, inHand }) => viewOf(place, inHand, "charged")),
      ],
      news: this.#news,
      calm: this.#chaos?.isOver === true,
    };
  }

  #elapsedMs(): number {
    return this.#startMs === undefined ? 0 : performance.now() - this.#startMs;
  }

  #places(): readonly Place<never>[] {
    return [...this.#workers.map(({ place }) => place), ...this.#webs];
  }

  /** Kills all processes immediately, for the end of the program. */
  end(): void {
    this.#screen?.leave();
    for (const place of this.#places()) place.end();
  }
}

function viewOf(
  { name, pid, state, killCount }: Place<never>,
  inHand: ProcessView["inHand"],
  does: ProcessView["does"],
): ProcessView {
  return { name, pid, state, killCount, inHand, does };
}
