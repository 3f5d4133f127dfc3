// Goal: once `forget` has returned, nothing shows the person: no reader, no folded state, no command, and, when projections have been built again, no row and
// no export; no personal event of the person is appended any more; folds still work; and of all others nothing is lost. All of it although processes die, pause past
// their leases and lose replies (G2, G12, G13, G25).
// Method: two writers append events about four people to two streams, plainly and by commands, each with a canary of its own. A clerk forgets two of the people
// meanwhile, and an operator begins rebuilds. Two workers have a projection of each person's canaries, and a reaction that notes each event. A reader looks all
// the time: what it begins to read after `forget` has returned must not have the person's canaries.

import { Writable } from "node:stream";
import {
  aggregate,
  event,
  FORGOTTEN,
  type Forgotten,
  isPawlError,
  type Pawl,
  ProjectionNotFoundError,
  projection,
  reaction,
} from "../../../src/index.ts";
import { FORGETTING, SUBJECTS } from "../../../src/stream/personal/stored.ts";
import { Subjects, subjectsOf } from "../../../src/stream/personal/subjects.ts";
import { GENERATIONS, RETIRED } from "../../../src/stream/projections/stored.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import { until } from "./transfers.ts";

interface Call {
  readonly person: string;
  readonly canary: string;
}

const Called = event<Call, "canary">("Called", { personal: { subject: ({ person }) => person, fields: ["canary"] } });
const Noted = event<{ readonly of: string }>("Noted");

const LEASE_MS = 5_000;
const PEOPLE = ["ann", "bob", "cid", "dan"];
const TO_FORGET = ["ann", "bob"];
const STREAMS = ["calls-1", "calls-2"];
const KEYS = { keys: { current: "k", ring: { k: new Uint8Array(32).fill(7) } } };

const shown = (canary: string | Forgotten): string => (canary === FORGOTTEN ? "-" : String(canary));

/** What the folded state and the rows have of a stream, or of a person: the canaries, in order. */
type Canaries = readonly string[];

const calls = aggregate("calls", {
  initial: [] as Canaries,
  on: [[Called, (all: Canaries, { canary }) => [...all, shown(canary)]]],
  commands: {
    call: (_, given: Call, { emit }) => emit(Called(given)),
    look: (all) => all,
  },
});

const byPerson = projection(
  "by-person",
  { on: [Called], key: ({ data }) => String(data.person), version: "1" },
  (row: Canaries | undefined, { data }): Canaries => [...(row ?? []), shown(data.canary)],
);

const note = reaction("note", { on: [Called], lease: LEASE_MS, retry: { attempts: 20, delay: 200 } }, (e, { emit }) =>
  emit("notes", [Noted({ of: e.id })]),
);

/** The handle of a process, which has the keys. */
function withKeys(pawl: Pawl): Pawl {
  // It takes the place of the one that the handle was made with, which has no keys.
  const subjects = new Subjects(pawl.kernel, KEYS);
  return subjectsOf(pawl.kernel) === subjects ? pawl : withKeys(pawl);
}

/** What was done, as far as it was acknowledged. */
interface Ledger {
  /** By the id of the event. */
  readonly appended: Map<string, Call & { readonly stream: string }>;
  readonly begun: Set<string>;
  readonly forgotten: Set<string>;
}

export const forgetting = {
  name: "a person who was forgotten is seen nowhere, and nothing else is lost",
  options: { faultsMs: 60_000 },
  regressions: [148, 40143],
  async scenario(world: World): Promise<void> {
    const ledger: Ledger = { appended: new Map(), begun: new Set(), forgotten: new Set() };
    let left = 3;
    let isOver = false;
    for (const name of ["north", "south"])
      world.process(name, async (process) => {
        for (let i = 0; i < 5; i++) {
          await append(world, ledger, process, `${name}.${process.incarnation}.${i}`);
          await process.sleep(process.random() * 4_000);
        }
        left -= 1;
      });
    world.process("clerk", async (process) => {
      const pawl = withKeys(process.pawl);
      for (const person of TO_FORGET) {
        await process.sleep(process.random() * 10_000);
        ledger.begun.add(person);
        await until(async () => void (await pawl.forget(person)), process);
        ledger.forgotten.add(person);
      }
      left -= 1;
    });
    for (const name of ["w1", "w2"])
      world.process(name, async ({ pawl }) => void withKeys(pawl).work([byPerson, note], { lease: LEASE_MS }), {
        service: true,
      });
    world.process(
      "reader",
      async (process) => {
        const pawl = withKeys(process.pawl);
        while (!isOver) {
          await process.sleep(2_500);
          const stream = oneOf(STREAMS, process.random);
          const before = new Set(ledger.forgotten);
          for (const text of await seenOf(pawl, stream, process.random() < 0.5)) checkUnseen(world, before, text);
        }
      },
      { service: true },
    );
    // An operator, who also waits for the end of it all.
    world.process("operator", async (process) => {
      const pawl = withKeys(process.pawl);
      let idleLooks = 0;
      while (idleLooks < 3) {
        await process.sleep(3_000);
        if (left > 0 && process.random() < 0.3)
          await pawl
            .projection(byPerson)
            .rebuild()
            .catch(() => {});
        await until(async () => {
          idleLooks = left === 0 && (await isIdle(pawl)) ? idleLooks + 1 : 0;
        }, process);
      }
      isOver = true;
    });
    await world.finish();
    checkCommits(world);
    await judge(world, ledger);
  },
};

const oneOf = (all: readonly string[], random: () => number): string => all[Math.floor(random() * all.length)] ?? "";

/** Appends an event about someone, once: one with an unknown outcome may be there or not. */
async function append(world: World, ledger: Ledger, { pawl, random }: Process, n: string): Promise<void> {
  const stream = oneOf(STREAMS, random);
  const person = oneOf(PEOPLE, random);
  const call = { person, canary: `canary-${person}-${n}` };
  const wasForgotten = ledger.forgotten.has(person);
  withKeys(pawl);
  try {
    const { ids } =
      random() < 0.5
        ? await pawl.stream(stream).append([Called(call)])
        : await pawl.aggregate(calls, stream).execute("call", call);
    world.check(!wasForgotten, `an event about ${person} was appended after ${person} was forgotten`);
    for (const id of ids) ledger.appended.set(id, { ...call, stream });
  } catch (error) {
    if (isPawlError(error, "subject_forgotten"))
      world.check(ledger.begun.has(person), `${person} was refused, and nobody has forgotten ${person}`);
  }
}

/** What a reader sees of a stream; nothing where the store does not serve now. */
async function seenOf(pawl: Pawl, stream: string, isCommand: boolean): Promise<readonly string[]> {
  try {
    const seen: string[] = [];
    for await (const { data } of pawl.stream(stream).read({ events: [Called] })) seen.push(shown(data.canary));
    const folded = isCommand
      ? (await pawl.aggregate(calls, stream).execute("look")).output
      : (await pawl.aggregate(calls, stream).state()).state;
    return [...seen, ...folded];
  } catch {
    return [];
  }
}

function checkUnseen(world: World, people: Iterable<string>, text: string): void {
  for (const person of people)
    world.check(!text.includes(`canary-${person}`), `${person} was forgotten, and is seen: ${text.slice(0, 200)}`);
}

async function isIdle(pawl: Pawl): Promise<boolean> {
  const unfinished = await pawl.kernel.list({ space: SUBJECTS, prefix: "", after: null, limit: 100 });
  if (unfinished.some(({ kind }) => kind === FORGETTING)) return false;
  const isBuilt = await pawl
    .projection(byPerson)
    .status()
    .then(
      ({ live, building }) => live !== null && live.behind === 0 && building === null,
      (error: unknown) => {
        // No worker has begun it yet.
        if (error instanceof ProjectionNotFoundError) return false;
        throw error;
      },
    );
  const [found] = await pawl.reactions.list();
  if (!isBuilt || found === undefined || found.unrouted > 0) return false;
  const { targets } = await pawl.reactions.targets(found.name);
  // The processes of a target may die so often in a row that it is blocked; for any other reason none may be.
  for (const { target, status, lastError } of targets)
    if (status === "blocked" && lastError?.message.startsWith("its process ended"))
      await pawl.reactions.unblock(found.name, { target });
  if (targets.some(({ pending }) => pending > 0)) return false;
  // The rows of generations that were replaced are removed when the store's clock is there, which may have been set back since.
  const generations = await pawl.kernel.list({ space: GENERATIONS, prefix: "", after: null, limit: 100 });
  return generations.every(({ kind }) => kind !== RETIRED);
}

async function judge(world: World, ledger: Ledger): Promise<void> {
  const pawl = withKeys(world.open());
  const { appended, forgotten } = ledger;
  const rows = new Map<string, string[]>();
  const ids: string[] = [];
  for (const stream of STREAMS) {
    const folded: string[] = [];
    for await (const { id, data } of pawl.stream(stream).read({ events: [Called] })) {
      const person = String(data.person);
      const canary = shown(data.canary);
      ids.push(id);
      folded.push(canary);
      rows.set(person, [...(rows.get(person) ?? []), canary]);
      const known = appended.get(id)?.canary;
      const isAsItWas = forgotten.has(person) ? canary === "-" : canary === (known ?? canary);
      world.check(isAsItWas, `event ${id} about ${person} reads ${canary}, and was ${known}`);
    }
    const { state } = await pawl.aggregate(calls, stream).state();
    world.check(String(state) === String(folded), `the state of ${stream} is ${state}, its events are ${folded}`);
  }
  for (const [id, { person }] of appended)
    world.check(ids.includes(id), `event ${id} about ${person} was acknowledged and is gone`);
  const noted: string[] = [];
  for await (const { data } of pawl.stream("notes").read({ events: [Noted] })) noted.push(data.of);
  world.check(String(noted.toSorted()) === String(ids.toSorted()), `the reaction noted ${noted} of ${ids}`);
  for (const person of PEOPLE) {
    const row = (await pawl.projection(byPerson).get(person)) ?? [];
    const wanted = rows.get(person) ?? [];
    world.check(String(row.toSorted()) === String(wanted.toSorted()), `the row of ${person} is ${row}, not ${wanted}`);
  }
  checkUnseen(world, forgotten, await exported(pawl));
  for (let generation = 1; generation < 30; generation++) {
    const space = `projection-row/${generation}/${byPerson.name}`;
    for (const { value } of await pawl.kernel.list({ space, prefix: "", after: null, limit: 100 }))
      checkUnseen(world, forgotten, value ?? "");
  }
}

/** All streams, as an export has them. */
async function exported(pawl: Pawl): Promise<string> {
  let text = "";
  const to = new Writable({
    write(piece, _, done) {
      text += String(piece);
      done();
    },
  });
  await pawl.streams.export({ prefix: "" }, to);
  return text;
}
