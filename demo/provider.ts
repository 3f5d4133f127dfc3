/**
 * The payment provider: thinks up the orders and delivers them to the web processes, at least once each.
 *
 * It behaves as providers do. A third of the orders is delivered twice, to two processes at the same moment; a delivery
 * that is not confirmed is repeated, also when the order was in fact committed and only the confirmation died with its process.
 *
 * Its own list of what was ordered is a text file outside the database, by which the books are judged in the end.
 */

import { appendFileSync } from "node:fs";
import type { FromWeb } from "./messages.ts";
import type { Order } from "./shop.ts";

export interface ProviderOptions {
  readonly ledger: string;
  /** The web processes are numbered from 0. */
  readonly doorCount: number;
  /** Answers false if nobody is there to open; the order is delivered once somebody is. */
  readonly deliver: (door: number, order: Order) => boolean;
  readonly orderCount: number;
  readonly lengthMs: number;
}

const TICK_MS = 40;
const TWICE_EVERY = 3;

export class Provider {
  readonly #options: ProviderOptions;
  readonly #unconfirmed: Map<string, Order>[];
  readonly #timer: NodeJS.Timeout;
  #sentCount = 0;

  constructor(options: ProviderOptions) {
    this.#options = options;
    this.#unconfirmed = Array.from({ length: options.doorCount }, () => new Map());
    const startMs = performance.now();
    this.#timer = setInterval(() => {
      const share = Math.min(1, (performance.now() - startMs) / options.lengthMs);
      while (this.#sentCount < share * options.orderCount) this.#send();
      if (share === 1) this.stop();
    }, TICK_MS);
  }

  #send(): void {
    this.#sentCount += 1;
    const order = {
      id: String(this.#sentCount).padStart(4, "0"),
      cents: 500 + Math.floor(9_500 * Math.random()),
    };
    this.#note(`order ${order.id} ${order.cents}`);
    const { doorCount } = this.#options;
    const first = this.#sentCount % doorCount;
    this.#deliver(first, order);
    if (this.#sentCount % TWICE_EVERY === 0) this.#deliver((first + 1) % doorCount, order);
  }

  #deliver(door: number, order: Order): void {
    this.#unconfirmed[door]?.set(order.id, order);
    if (this.#options.deliver(door, order)) this.#note(`delivered ${order.id}`);
  }

  /** Hears from a web process. A new one is given everything that its predecessors left unconfirmed. */
  hear(door: number, message: FromWeb): void {
    const unconfirmed = this.#unconfirmed[door] ?? new Map<string, Order>();
    if (message.is === "ready") {
      for (const order of unconfirmed.values()) this.#deliver(door, order);
      return;
    }
    unconfirmed.delete(message.order);
    this.#note(`confirmed ${message.order} ${message.isNew ? "new" : "again"}`);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #note(line: string): void {
    appendFileSync(this.#options.ledger, `${line}\n`);
  }
}
