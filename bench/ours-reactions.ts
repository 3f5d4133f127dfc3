/**
 * Reactions that catch up: the events of a plan are there, and one worker begins to handle them. A stream of the plan is a target, each of its turns an
 * event. Ours, and the bare group commit of the rows that handling costs.
 *
 * For each event a reference is added to the log of its target, and a commit moves the target on, by up to 32 events. The raw limit writes both, for all
 * targets together: the references to 1,600 events, as many of each target, with the cursor of the reaction, as the routing worker does where many
 * wait; and the progress of each target in every 32nd turn. It reads no event and calls no handler.
 */

import type { DatabaseSync } from "node:sqlite";
import { type Pawl, reaction } from "../src/index.ts";
import { int8Array, textArray } from "../src/stores/postgres/arrays.ts";
import { type Call, statement } from "../src/stores/postgres/pipeline.ts";
import type { Contender, Timing } from "./contender.ts";
import type { Place } from "./ground.ts";
import { NAMESPACE, type Ours, openOurs } from "./ours.ts";
import { Charged } from "./ours-streams.ts";
import { commitCount, type Plan } from "./plan.ts";
import { rawWith, type Turn } from "./raw.ts";
import { BEGIN, COMMIT, rawPostgresWith } from "./raw-postgres.ts";

const REACTION = "mail";

/** Appends the plan's events, each stream in one commit. */
export async function appendAll(pawl: Pawl, { keys, turns, values }: Plan): Promise<void> {
  const charges = Array.from({ length: turns }, (_, turn) => Charged(values[turn % values.length] as never));
  for (let first = 0; first < keys.length; first += 50)
    await Promise.all(keys.slice(first, first + 50).map((key) => pawl.stream(key).append(charges)));
}

/** Handles all events of the plan, and resolves when the last handler was called. */
async function drain({ pawl, transactions }: Ours, plan: Plan): Promise<Timing> {
  const count = commitCount(plan);
  const { promise: isDrained, resolve } = Promise.withResolvers<void>();
  let handled = 0;
  const last = new Map<string, number>();
  const mail = reaction(REACTION, { on: [Charged], concurrency: CONCURRENCY }, async ({ stream, version }) => {
    // A handler may be called again, as after a machine stood still for longer than a lease.
    if (version <= (last.get(stream) ?? 0)) return;
    last.set(stream, version);
    handled += 1;
    if (handled === count) resolve();
  });
  await appendAll(pawl, plan);
  const before = transactions();
  const startedMs = performance.now();
  const worker = pawl.work([mail]);
  await isDrained;
  const ms = performance.now() - startedMs;
  const made = transactions() - before;
  await worker.stop();
  const { targets } = await pawl.reactions.targets(REACTION, { limit: plan.keys.length });
  const done = targets.reduce((sum, target) => sum + target.handled, 0);
  if (handled !== count || done !== count) throw new Error(`of ${count} events, ${done} are handled`);
  return { ms, transactions: made, latenciesMs: [] };
}

const CONCURRENCY = 1000;

export const oursReactions: Contender = {
  name: "Pawl, reactions",
  open: async (place: Place) => {
    const ours = await openOurs(place);
    return { run: (plan) => drain(ours, plan), close: () => ours.pawl.close() };
  },
};

// ------------------------------------------------------------------------------------------------------------- raw

const SPACE = `reaction-target/${REACTION}`;
/** How many events are routed in a commit, and how many of a target are handled. */
const ROUTED = 1600;
const HANDLED = 32;
const doneText = (done: number): string => JSON.stringify({ done });
const routedText = (version: number): string => JSON.stringify({ version });

/** The entries of the logs that are added in this turn, by their versions. */
function routedIn({ keys, turns }: Plan, turn: number): readonly number[] {
  const perTarget = Math.ceil(ROUTED / keys.length);
  if (turn % perTarget !== 0) return [];
  return Array.from({ length: Math.min(perTarget, turns - turn) }, (_, index) => turn + index + 1);
}

/** Whether the progress of the targets is committed after this turn. */
const isProgress = ({ turns }: Plan, turn: number): boolean => (turn + 1) % HANDLED === 0 || turn + 1 === turns;

const inSqlite = (db: DatabaseSync, plan: Plan): Turn => {
  const many = (row: string, count: number) => Array.from({ length: count }, () => row).join(", ");
  const targets = plan.keys.map((_, index) => index + 1);
  const insert = db.prepare(`insert or rollback into pawl_record
    (id, namespace, space, key, version, fence, wakes, tries, holder, kind, due, head, value)
    values ${many(`(?, '${NAMESPACE}', '${SPACE}', ?, 1, 1, 0, 1, 'worker', 'reaction/${REACTION}', ?, 0, ?)`, targets.length)}`);
  const update = db.prepare(`update or rollback pawl_record set version = v.column2, wakes = v.column3, head = v.column4
    from (values ${many("(?, ?, ?, ?)", targets.length)}) v where id = v.column1`);
  const progress = db.prepare(`update or rollback pawl_record set version = v.column2, value = v.column3
    from (values ${many("(?, ?, ?)", targets.length)}) v where id = v.column1`);
  const cursor =
    db.prepare(`insert into pawl_record (id, namespace, space, key, version, fence, wakes, tries, head, value)
    values (?, '${NAMESPACE}', 'reaction', '${REACTION}', ?, 1, 0, 1, 0, ?)
    on conflict (id) do update set version = excluded.version, value = excluded.value`);
  const append = (count: number) =>
    db.prepare(`insert or rollback into pawl_log (record, version, name, data, at)
      values ${many("(?, ?, 'event', ?, ?)", targets.length * count)}`);
  const appends = new Map<number, ReturnType<typeof append>>();
  return (turn, atMs) => {
    const versions = routedIn(plan, turn);
    if (turn === 0)
      insert.run(...targets.flatMap((id, index) => [id, plan.keys[index] ?? "", atMs + 30_000, doneText(0)]));
    if (versions.length > 0) {
      const statement = appends.get(versions.length) ?? append(versions.length);
      appends.set(versions.length, statement);
      const head = versions.at(-1) ?? 0;
      update.run(...targets.flatMap((id) => [id, turn + head, head, head]));
      statement.run(
        ...targets.flatMap((id) => versions.flatMap((version) => [id, version, routedText(version), atMs])),
      );
      cursor.run(targets.length + 1, turn + 1, JSON.stringify({ cursor: head * targets.length, on: ["Charged"] }));
    }
    if (isProgress(plan, turn))
      progress.run(...targets.flatMap((id) => [id, turn + (versions.at(-1) ?? 0) + 1, doneText(turn + 1)]));
  };
};

const INSERT = statement(`insert into pawl.record
    (id, namespace, space, key, version, fence, wakes, tries, holder, kind, due, head, value)
    select v.id, '${NAMESPACE}', '${SPACE}', v.key, 1, 1, 0, 1, 'worker', 'reaction/${REACTION}', $3::text::bigint, 0, '{"done":0}'
    from unnest($1::bigint[], $2::text[]) v(id, key)`);
const UPDATE = statement(`update pawl.record r set version = r.version + 1, wakes = r.wakes + 1, head = $2::text::bigint
    from unnest($1::bigint[]) v(id) where r.id = v.id`);
const PROGRESS = statement(`update pawl.record r set version = r.version + 1, value = $2::text
    from unnest($1::bigint[]) v(id) where r.id = v.id`);
const CURSOR =
  statement(`insert into pawl.record as r (id, namespace, space, key, version, fence, wakes, tries, head, value)
    values ($1::text::bigint, '${NAMESPACE}', 'reaction', '${REACTION}', 1, 1, 0, 1, 0, $2::text)
    on conflict (id) do update set version = r.version + 1, value = excluded.value`);
const APPEND = statement(`insert into pawl.log (record, version, name, data, at)
    select v.id, v.version, 'event', v.data, $4::text::bigint
    from unnest($1::bigint[], $2::bigint[], $3::text[]) v(id, version, data)`);

const inPostgres = (plan: Plan) => {
  const targets = plan.keys.map((_, index) => index + 1);
  const ids = int8Array(targets);
  return (turn: number, atMs: number): readonly Call[] => {
    const versions = routedIn(plan, turn);
    const calls: Call[] = [BEGIN];
    if (turn === 0) calls.push({ statement: INSERT, values: [ids, textArray([...plan.keys]), String(atMs + 30_000)] });
    if (versions.length > 0) {
      const head = versions.at(-1) ?? 0;
      const entries = targets.flatMap((id) => versions.map((version) => ({ id, version })));
      const value = JSON.stringify({ cursor: head * targets.length, on: ["Charged"] });
      calls.push(
        { statement: UPDATE, values: [ids, String(head)] },
        {
          statement: APPEND,
          values: [
            int8Array(entries.map(({ id }) => id)),
            int8Array(entries.map(({ version }) => version)),
            textArray(entries.map(({ version }) => routedText(version))),
            String(atMs),
          ],
        },
        { statement: CURSOR, values: [String(targets.length + 1), value] },
      );
    }
    if (isProgress(plan, turn)) calls.push({ statement: PROGRESS, values: [ids, doneText(turn + 1)] });
    // A turn with nothing to write is no transaction.
    return calls.length === 1 ? [] : [...calls, COMMIT];
  };
};

const NAME = "raw, the rows of reactions";

export const rawReactions = rawWith(NAME, inSqlite);
export const rawReactionsPostgres = rawPostgresWith(NAME, inPostgres);
