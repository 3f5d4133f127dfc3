/**
 * Deposits: money that arrives once, although the same deposit is sent again by workers that do not know its outcome.
 *
 * A deposit has an id. One decision looks for the mark of that id and, if there is none, sets it, adds to the account, adds to
 * the account's mirror, and appends to the account's log. Whatever was not acknowledged is sent again under the same id, by the
 * same worker or another; some that were are sent again too.
 *
 * Checked: each acknowledged deposit is there, and none is there twice (G1, G2); accounts, mirrors, logs and marks tell the same
 * story, at the end and at any moment in between (G29).
 */

import { type Address, address } from "../../../src/kernel/contract.ts";
import type { Kernel } from "../../../src/kernel/kernel.ts";
import type { Pawl } from "../../../src/pawl.ts";
import type { Bench } from "../bench.ts";
import { type Evidence, overlaps, type Work } from "./work.ts";

const NAME = "deposits";
const ACCOUNTS = 20;
const CALLERS = 3;
const MAX_PAUSE_MS = 40;

export interface Deposit {
  readonly id: string;
  readonly account: string;
  readonly amount: number;
}

interface Audit {
  readonly audit: string;
}

/** Whether this call counted it, or found it counted. */
type Counted = { readonly counted: boolean };
type Audited = { readonly account: number; readonly mirror: number };

export const deposits: Work = {
  name: NAME,

  async act(bench) {
    await Promise.all([...Array.from({ length: CALLERS }, () => call(bench)), audit(bench)]);
  },

  again(operation) {
    const deposit = operation.input as Deposit | Audit;
    return "audit" in deposit ? null : { id: deposit.id, task: deposit };
  },

  isCommit: ({ answer, output }) => answer === "yes" && (output as Partial<Counted>).counted === true,

  async judge(pawl, evidence) {
    const wrong = checkDeposits(evidence, await look(pawl));
    return { wrong, ...resolve(evidence) };
  },
};

/** An unknown deposit had happened if a repetition found it. */
function resolve({ operations }: Evidence): { unknown: number; happened: number } {
  const ids = Map.groupBy(operations, ({ input }) => ("id" in (input as object) ? (input as Deposit).id : undefined));
  let unknown = 0;
  let happened = 0;
  for (const [id, all] of ids) {
    const count = all.filter(({ answer }) => answer === "unknown").length;
    if (id === undefined || count === 0) continue;
    unknown += count;
    if (!all.some((operation) => deposits.isCommit(operation))) happened += 1;
  }
  return { unknown, happened };
}

const slotOf = (pawl: Pawl, kind: "account" | "mirror", account: string) =>
  pawl.slot<number>(`${kind}/${account}`, { initial: 0 });

const logOf = (account: string): Address => address("deposits", account);

async function call(bench: Bench): Promise<void> {
  const { random } = bench;
  while (!bench.isOver) {
    const task = bench.take(NAME) as Deposit | undefined;
    if (task === undefined && bench.isHealing) {
      await bench.sleep(20);
      continue;
    }
    const deposit = task ?? {
      id: bench.mark(),
      account: String(random.below(ACCOUNTS)),
      amount: 1 + random.below(100),
    };
    await bench.attempt(NAME, deposit, () => put(bench.pawl, deposit, random.chance(0.7)));
    await bench.sleep(random.unit() * MAX_PAUSE_MS);
  }
}

/** Some decisions name all that they touch; the others are found out. */
function put(pawl: Pawl, { id, account, amount }: Deposit, namesAll: boolean): Promise<Counted> {
  const mark = pawl.slot<Deposit>(`done/${id}`);
  const value = slotOf(pawl, "account", account);
  const mirror = slotOf(pawl, "mirror", account);
  const log = logOf(account);
  return pawl.kernel.transact(
    (tx) => {
      if (mark.within(tx).get().value !== undefined) return { counted: false };
      mark.within(tx).set({ id, account, amount });
      value.within(tx).update((sum) => sum + amount);
      const record = tx.record(log);
      if (!record.exists) record.write({ value: null });
      record.append("deposited", { id, amount });
      mirror.within(tx).update((sum) => sum + amount);
      return { counted: true };
    },
    namesAll ? [mark.touches, value.touches, log, mirror.touches] : [mark.touches],
  );
}

/** Reads both sides of an account in one decision. */
async function audit(bench: Bench): Promise<void> {
  const { pawl, random } = bench;
  while (!bench.isOver) {
    const account = String(random.below(ACCOUNTS));
    const sides = [slotOf(pawl, "account", account).touches, slotOf(pawl, "mirror", account).touches];
    await bench.attempt(NAME, { audit: account } satisfies Audit, async (): Promise<Audited> => {
      const rows = await pawl.kernel.read(sides);
      const [left = 0, right = 0] = rows.map((row) =>
        row?.value == null ? 0 : Number(pawl.kernel.decode(row, row.value)),
      );
      return { account: left, mirror: right };
    });
    await bench.sleep(random.unit() * 10 * MAX_PAUSE_MS);
  }
}

export interface DepositState {
  readonly marks: ReadonlyMap<string, Deposit>;
  readonly accounts: ReadonlyMap<string, number>;
  readonly mirrors: ReadonlyMap<string, number>;
  /** The deposits in each account's log, in its order. */
  readonly logs: ReadonlyMap<string, readonly { readonly id: string; readonly amount: number }[]>;
}

async function look(pawl: Pawl): Promise<DepositState> {
  const marks = new Map<string, Deposit>();
  const accounts = new Map<string, number>();
  const mirrors = new Map<string, number>();
  for (let after: string | null = null; ; ) {
    const page = await pawl.slots.list({ after, limit: 1000 });
    for (const { name, value } of page.slots) {
      const [kind = "", rest = ""] = name.split(/\/(.*)/s);
      if (kind === "done") marks.set(rest, value as Deposit);
      if (kind === "account") accounts.set(rest, Number(value));
      if (kind === "mirror") mirrors.set(rest, Number(value));
    }
    if (page.next === null) break;
    after = page.next;
  }
  const logs = new Map<string, { id: string; amount: number }[]>();
  for (let i = 0; i < ACCOUNTS; i++) {
    const entries = await entriesOf(pawl.kernel, logOf(String(i)));
    logs.set(
      String(i),
      entries.map(({ data }) => data as { id: string; amount: number }),
    );
  }
  return { marks, accounts, mirrors, logs };
}

/** The whole log of a record, as values. */
export async function entriesOf(
  kernel: Kernel,
  at: Address,
): Promise<{ readonly version: number; readonly name: string; readonly data: unknown }[]> {
  const all: { version: number; name: string; data: unknown }[] = [];
  for (;;) {
    const page = await kernel.entries(at, all.at(-1)?.version ?? 0, 1000);
    if (page.length === 0) return all;
    for (const { version, name, data } of page) all.push({ version, name, data: kernel.decode(at, data) });
  }
}

/** Compares the results that the workers got with the database. */
export function checkDeposits({ operations, doubts }: Evidence, state: DepositState): string[] {
  const wrong: string[] = [];
  const asked = new Map<string, Deposit>();
  const acknowledged = new Set<string>();
  for (const { input, answer, output, startedAt, endedAt, life } of operations) {
    const wish = input as Deposit | Audit;
    if ("audit" in wish) {
      const { account, mirror } = (output ?? { account: 0, mirror: 0 }) as Audited;
      if (account !== mirror)
        wrong.push(`${life} saw account ${wish.audit} in the middle of a commit: ${account} and ${mirror}`);
      continue;
    }
    asked.set(wish.id, wish);
    if (answer !== "yes") continue;
    // Who found the mark only read it; a commit that the standby never got can be read, and lost.
    const onlyRead = !(output as Counted).counted;
    if (onlyRead && overlaps(doubts, startedAt, endedAt ?? startedAt)) continue;
    acknowledged.add(wish.id);
  }

  const logged = new Map<string, string[]>();
  for (const [account, entries] of state.logs)
    for (const { id } of entries) {
      const places = logged.get(id);
      if (places === undefined) logged.set(id, [account]);
      else places.push(account);
    }
  for (const id of acknowledged) {
    if (!state.marks.has(id)) wrong.push(`deposit ${id} was acknowledged and is lost`);
  }
  for (const [id, mark] of state.marks) {
    const wish = asked.get(id);
    if (wish === undefined) wrong.push(`deposit ${id} is there and was never asked for`);
    else if (wish.account !== mark.account || wish.amount !== mark.amount)
      wrong.push(`deposit ${id} is there as ${JSON.stringify(mark)}, and ${JSON.stringify(wish)} was asked for`);
    if (!logged.has(id)) wrong.push(`deposit ${id} has its mark and is not in the log of its account`);
  }
  for (const [id, places] of logged) {
    if (places.length > 1) wrong.push(`deposit ${id} was counted ${places.length} times: in ${places.join(", ")}`);
    if (!state.marks.has(id)) wrong.push(`deposit ${id} is in the log of its account and has no mark`);
  }
  for (const account of new Set([...state.accounts.keys(), ...state.mirrors.keys(), ...state.logs.keys()])) {
    let marked = 0;
    for (const mark of state.marks.values()) if (mark.account === account) marked += mark.amount;
    const sums = {
      account: state.accounts.get(account) ?? 0,
      mirror: state.mirrors.get(account) ?? 0,
      log: (state.logs.get(account) ?? []).reduce((sum, { amount }) => sum + amount, 0),
      marks: marked,
    };
    if (new Set(Object.values(sums)).size > 1)
      wrong.push(`account ${account} does not add up: ${JSON.stringify(sums)}`);
  }
  return wrong;
}
