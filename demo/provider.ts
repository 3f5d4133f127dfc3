/**
 * The payment provider: generates the orders and delivers them to the web processes, at least once each.
 *
 * It behaves like real providers. A third of the orders is delivered twice, to two processes at the same moment; a delivery
 * that is not confirmed is repeated, also when the order was committed and only the confirmation was lost with its process.
 *
 * Its own list of orders is a text file outside of the database, with which the database is compared in the end.
 */

import { appendFileSync } from "node:fs";
import type { FromWeb } from "./messages.ts";
import type { Order } from "./shop.ts";

export interface ProviderOptions {
  readonly ledger: string;
  /** The web processes are numbered from 0. */
  readonly webCount: number;
  /** Returns false if that web process is not running; the order is delivered once it is. */
  readonly deliver: (web: number, order: Order) => boolean;
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
    this.#unconfirmed = Array.from({ length: options.webCount }, () => new Map());
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
    const { webCount } = this.#options;
    const first = this.#sentCount % webCount;
    this.#deliver(first, order);
    if (this.#sentCount % TWICE_EVERY === 0) this.#deliver((first + 1) % webCount, order);
  }

  #deliver(web: number, order: Order): void {
    this.#unconfirmed[web]?.set(order.id, order);
    if (this.#options.deliver(web, order)) this.#note(`delivered ${order.id}`);
  }

  /** Handles a message of a web process. A new process gets everything that its predecessors left unconfirmed. */
  onMessage(web: number, message: FromWeb): void {
    const unconfirmed = this.#unconfirmed[web] ?? new Map<string, Order>();
    if (message.is === "ready") {
      for (const order of unconfirmed.values()) this.#deliver(web, order);
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
