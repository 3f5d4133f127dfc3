/** What the tests of streams share: a bank account, and streams in short. */

import { aggregate, event, type Pawl, projection, type StreamEvent } from "../../src/index.ts";

export const Opened = event("Opened");
export const Deposited = event<{ readonly amount: number }>("Deposited");
export const Withdrawn = event<{ readonly amount: number }>("Withdrawn");

export const account = aggregate("account", {
  initial: { balance: 0, count: 0 },
  on: [
    [Deposited, ({ balance, count }, { amount }) => ({ balance: balance + amount, count: count + 1 })],
    [Withdrawn, ({ balance, count }, { amount }) => ({ balance: balance - amount, count: count + 1 })],
  ],
  commands: {
    deposit: ({ balance }, { amount }: { readonly amount: number }, { emit }) => {
      emit(Deposited({ amount }));
      return balance + amount;
    },
    withdraw: ({ balance }, { amount }: { readonly amount: number }, { emit, refuse }) => {
      if (amount > balance) refuse("insufficient_funds", { balance });
      emit(Withdrawn({ amount }));
      return balance - amount;
    },
    /** Emits two events, and shows that a command sees the state before it. */
    move: ({ balance }, _: undefined, { emit, version }) => {
      emit(Deposited({ amount: 1 }), Withdrawn({ amount: 1 }));
      return { balance, version };
    },
    look: ({ balance }) => balance,
  },
});

export interface Balance {
  readonly balance: number;
  readonly events: number;
}

export const balances = projection(
  "balances",
  { on: [Deposited, Withdrawn], version: "1" },
  (row: Balance | undefined, e): Balance => ({
    balance: (row?.balance ?? 0) + (e.name === "Deposited" ? e.data.amount : -e.data.amount),
    events: (row?.events ?? 0) + 1,
  }),
);

export const deposits = (count: number) => Array.from({ length: count }, (_, i) => Deposited({ amount: i + 1 }));

export const brief = ({ stream, version, name }: StreamEvent): string => `${stream} ${version} ${name}`;

export async function all<T>(events: AsyncIterable<T>): Promise<T[]> {
  const read: T[] = [];
  for await (const one of events) read.push(one);
  return read;
}

/** What keeps a projection that is being built from getting ahead; undefined if nothing does, or there is none yet. */
export async function buildingFailure(pawl: Pawl, { name }: { readonly name: string }) {
  const status = await pawl
    .projection(name)
    .status()
    .catch(() => null);
  return status?.building?.failure;
}
