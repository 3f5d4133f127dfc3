/** The machines that the tests of machines move, and their audit log in short. */

import { machine } from "../../src/machine/definition.ts";
import { Machines } from "../../src/machine/machine.ts";
import type { MachineEvent } from "../../src/machine/results.ts";
import type { Pawl } from "../../src/pawl.ts";

export interface OrderData {
  readonly cents: number;
  readonly receipt?: string;
  readonly parcel?: string;
}

export const transitions = {
  pending: ["paid", "canceled"],
  paid: ["shipped", "refunded"],
  shipped: ["delivered"],
  delivered: [],
  canceled: [],
  refunded: [],
} as const;

const blank: OrderData = { cents: 0 };
export const order = machine("order", {
  initial: "pending",
  initialData: blank,
  transitions,
  guards: {
    pending: { paid: (data, { next }) => (next.receipt !== undefined && data.cents > 0) || "there is no receipt" },
  },
  maxParked: 3,
});
export type State = (typeof order.states)[number];

/** An instance is created by its first event. */
export const parcel = machine("parcel", {
  initial: "announced",
  unknown: "create",
  transitions: { announced: ["sent"], sent: ["lost", "here"], lost: ["here"], here: [] },
});

export const ordersOf = (pawl: Pawl) => new Machines(pawl.kernel).of(order);

/** What happened, in short. */
export const brief = (events: readonly MachineEvent[]) =>
  events.map(({ outcome, from, to, code }) => `${outcome} ${from ?? "-"} ${to}${code === undefined ? "" : ` ${code}`}`);
