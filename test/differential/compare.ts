/**
 * Comparing subjects: each runs the same chapter from the start, and their results are compared.
 *
 * A transcript is what one subject returned: the result of each operation, and every so often its whole state. The first place where two
 * transcripts differ is the difference. It is then searched for with fewer operations, so that what is left to read is short, and comes
 * with the command that repeats it.
 */

import { inspect } from "node:util";
import { type Chapter, chapter } from "./operations/index.ts";
import type { Operation } from "./operations/operation.ts";
import { stateOf, textOf } from "./state.ts";
import { type Subject, TestClock } from "./subjects.ts";
import { World } from "./world.ts";

/** How many operations a chapter has at most. Short, so that a difference is played again soon. */
export const CHAPTER = 1000;
const STATE_EVERY = 50;
/** The clock moves more slowly than fences rise, so that they must rise by themselves. */
const OPERATIONS_PER_MS = 200;
/** How long an answer may take. */
const PATIENCE_MS = 60_000;
const SHRINK_FOR_MS = 60_000;

export interface ResultLine {
  /** The operation that it is about or comes after. */
  readonly number: number;
  readonly of: "answer" | "state" | "end";
  readonly text: string;
}

export interface Transcript {
  readonly lines: readonly ResultLine[];
  readonly seen: ReadonlyMap<string, number>;
}

type StateAfter = (operation: Operation, isLast: boolean) => boolean;

const everySoOften: StateAfter = ({ number }, isLast) => isLast || number % STATE_EVERY === 0;
const always: StateAfter = () => true;
const atTheEnd: StateAfter = (_, isLast) => isLast;

/** Returns the subject's results of these operations. An unexpected error is the last line. */
export async function play(
  subject: Subject,
  { cast, operations }: Chapter,
  { stateAfter = everySoOften, patienceMs = PATIENCE_MS }: { stateAfter?: StateAfter; patienceMs?: number } = {},
): Promise<Transcript> {
  const clock = new TestClock();
  const world = await World.open(await subject.open(clock), cast);
  const lines: ResultLine[] = [];
  let number = 0;
  try {
    for (const [index, operation] of operations.entries()) {
      number = operation.number;
      clock.stepsMs = Math.floor(number / OPERATIONS_PER_MS);
      world.saw(operation.kind);
      lines.push({ number, of: "answer", text: textOf(await inTime(operation.run(world), patienceMs)) });
      if (stateAfter(operation, index === operations.length - 1))
        lines.push({ number, of: "state", text: await inTime(stateOf(world), patienceMs) });
    }
  } catch (error) {
    lines.push({ number, of: "end", text: `it ended here: ${inspect(error)}` });
  }
  try {
    await inTime(world.close(), patienceMs);
  } catch (error) {
    lines.push({ number, of: "end", text: `it could not be closed: ${inspect(error)}` });
  }
  return { lines, seen: world.seen };
}

/** Refuses to wait for ever. */
async function inTime<T>(promise: Promise<T>, patienceMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${patienceMs} ms`)), patienceMs);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Where two subjects part. */
export interface Difference {
  readonly seed: number;
  /** The operations that are enough to see it, the last of which shows it. */
  readonly operations: readonly Operation[];
  readonly of: ResultLine["of"];
  readonly subjects: readonly [string, string];
  readonly texts: readonly [string, string];
}

/** The first place where two transcripts part, if they do. */
export function partingOf(
  reference: Transcript,
  other: Transcript,
): { number: number; of: ResultLine["of"]; texts: [string, string] } | undefined {
  for (let i = 0; i < Math.max(reference.lines.length, other.lines.length); i++) {
    const [a, b] = [reference.lines[i], other.lines[i]];
    if (a?.text === b?.text) continue;
    const line = a ?? b;
    return { number: line?.number ?? 0, of: line?.of ?? "end", texts: [a?.text ?? "nothing", b?.text ?? "nothing"] };
  }
  return undefined;
}

/** Plays the operations on both and says where they part. */
async function differ(
  pair: readonly [Subject, Subject],
  { seed, cast }: Chapter,
  operations: readonly Operation[],
  stateAfter: StateAfter,
): Promise<Difference | undefined> {
  const [reference, other] = pair;
  const played = { seed, cast, operations };
  const parting = partingOf(await play(reference, played, { stateAfter }), await play(other, played, { stateAfter }));
  if (parting === undefined) return undefined;
  const { number, of, texts } = parting;
  const enough = operations.filter((operation) => operation.number <= number);
  return { seed, operations: enough, of, texts, subjects: [reference.name, other.name] };
}

/** Removes operations, first many at a time and then fewer, as long as the two still differ. */
export async function shrink(
  pair: readonly [Subject, Subject],
  of: Chapter,
  found: Difference,
  mostMs: number,
): Promise<Difference> {
  if (mostMs === 0) return found;
  const giveUpAtMs = performance.now() + mostMs;
  // A state that differs may have done so for a while. Where only the answer does, it is enough to look at the end.
  const isState = found.of === "state";
  let best = (isState ? await differ(pair, of, found.operations, always) : undefined) ?? found;
  for (let size = Math.ceil(best.operations.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let from = 0; from < best.operations.length && performance.now() < giveUpAtMs; ) {
      const fewer = [...best.operations.slice(0, from), ...best.operations.slice(from + size)];
      const still = fewer.length === 0 ? undefined : await differ(pair, of, fewer, atTheEnd);
      if (still === undefined) from += size;
      else best = still;
    }
  }
  return best;
}

export interface RunOptions {
  readonly seed: number;
  readonly operations: number;
  readonly subjects: readonly Subject[];
  /** Plays these of the chapter alone. */
  readonly only?: ReadonlySet<number> | undefined;
  /** The number of concurrent chapters. Default: 1. */
  readonly atOnce?: number;
  /** How long to search for fewer operations that show a difference. Default: one minute. */
  readonly shrinkForMs?: number;
  readonly progress?: (report: RunReport) => void;
}

export interface RunReport {
  readonly operations: number;
  readonly chapters: number;
  /** What came up in the reference, and how often. */
  readonly seen: ReadonlyMap<string, number>;
  /** By subject. */
  readonly tookMs: ReadonlyMap<string, number>;
  readonly difference: Difference | undefined;
}

/** Plays chapter after chapter, each with the next seed, until two subjects part. */
export async function run(options: RunOptions): Promise<RunReport> {
  const seen = new Map<string, number>();
  const tookMs = new Map<string, number>();
  const chapters = Math.ceil(options.operations / CHAPTER);
  let [begun, played, operations] = [0, 0, 0];
  let difference: Difference | undefined;
  const report = (): RunReport => ({ operations, chapters: played, seen, tookMs, difference });
  const player = async () => {
    while (begun < chapters && difference === undefined) {
      const index = begun++;
      const drawn = chapter(options.seed + index, Math.min(CHAPTER, options.operations - index * CHAPTER));
      const { only } = options;
      const chosen = drawn.operations.filter(({ number }) => only === undefined || only.has(number));
      difference ??= await playAll({ ...drawn, operations: chosen }, options, seen, tookMs);
      played += 1;
      operations += drawn.operations.length;
      options.progress?.(report());
    }
  };
  await Promise.all(Array.from({ length: options.atOnce ?? 1 }, player));
  return report();
}

/** Plays one chapter on all subjects, and makes what it finds short. */
async function playAll(
  played: Chapter,
  { subjects, shrinkForMs = SHRINK_FOR_MS }: RunOptions,
  seen: Map<string, number>,
  tookMs: Map<string, number>,
): Promise<Difference | undefined> {
  const { seed } = played;
  const [reference, ...others] = subjects;
  if (reference === undefined) throw new Error("there is nothing to compare");
  const expected = await timed(reference, played, tookMs);
  const end = expected.lines.find((line) => line.of === "end");
  if (end !== undefined) throw new Error(`seed ${seed}, operation ${end.number} on ${reference.name}: ${end.text}`);
  for (const [what, count] of expected.seen) seen.set(what, (seen.get(what) ?? 0) + count);
  for (const other of others) {
    const parting = partingOf(expected, await timed(other, played, tookMs));
    if (parting === undefined) continue;
    const { number, of, texts } = parting;
    const operations = played.operations.filter((operation) => operation.number <= number);
    const found: Difference = { seed, operations, of, texts, subjects: [reference.name, other.name] };
    return shrink([reference, other], played, found, shrinkForMs);
  }
  return undefined;
}

async function timed(subject: Subject, played: Chapter, tookMs: Map<string, number>): Promise<Transcript> {
  const startedMs = performance.now();
  const transcript = await play(subject, played);
  tookMs.set(subject.name, (tookMs.get(subject.name) ?? 0) + performance.now() - startedMs);
  return transcript;
}

/** The command that plays the same again, with nothing left out that matters. */
export function commandFor({ seed, operations, subjects }: Difference): string {
  const numbers = operations.map(({ number }) => number);
  const last = numbers.at(-1) ?? 0;
  const only = numbers.length < last ? ` --only ${numbers.join(",")}` : "";
  const named = subjects.map((name) => ` --subject "${name}"`).join("");
  return `node scripts/differential.ts --seed ${seed} --operations ${last}${only}${named}`;
}

/** What a person needs to see of it. */
export function describeDifference(difference: Difference): string {
  const { seed, operations, of, subjects, texts } = difference;
  const last = operations.at(-1);
  const [one, other] = around(of === "state" ? partingLines(texts) : texts);
  const width = Math.max(...subjects.map((name) => name.length));
  return [
    `seed ${seed}, operation ${last?.number}: ${subjects[0]} and ${subjects[1]} part in the ${of}`,
    `  ${subjects[0].padEnd(width)}  ${one}`,
    `  ${subjects[1].padEnd(width)}  ${other}`,
    `after ${operations.length === 1 ? "one operation" : `these ${operations.length} operations`}:`,
    ...operations.slice(-20).map(({ number, kind, args }) => `  ${number} ${kind} ${shown(args)}`),
    `again: ${commandFor(difference)}`,
  ].join("\n");
}

/** Of two states, the first lines that are not the same. */
function partingLines([a, b]: readonly [string, string]): [string, string] {
  const [ours, theirs] = [a.split("\n"), b.split("\n")];
  const at = ours.findIndex((line, index) => line !== theirs[index]);
  return [ours[at] ?? "nothing more", theirs[at < 0 ? ours.length : at] ?? "nothing more"];
}

const SHOWN = 400;

/** The part of the two texts where they part. */
function around([a, b]: readonly [string, string]): [string, string] {
  let from = 0;
  while (from < a.length && a[from] === b[from]) from++;
  from = Math.max(0, from - SHOWN / 4);
  const cut = (text: string) =>
    `${from > 0 ? "…" : ""}${text.slice(from, from + SHOWN)}${text.length > from + SHOWN ? "…" : ""}`;
  return [cut(a), cut(b)];
}

function shown(args: unknown): string {
  const inspected = inspect(args, {
    depth: 6,
    compact: true,
    breakLength: Number.POSITIVE_INFINITY,
    maxStringLength: 80,
  });
  const text = inspected.replaceAll(", run: [Function: run]", "");
  return text.length > 2 * SHOWN ? `${text.slice(0, 2 * SHOWN)}…` : text;
}
