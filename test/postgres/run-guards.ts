/**
 * Removes the guards from the source, one for each copy of it, and runs the trap of each against its copy.
 *
 * All copies live in this one process: everything under a guard is loaded again, with the guard's number in its address, and its edits are
 * made while it is loaded. Several run concurrently, each on its own database.
 *
 * Prints a line of JSON for each guard: caught, not caught, or broken: failed for another reason than the trap, for instance because the
 * edit makes wrong SQL, or was never loaded. With arguments, only guards whose name contains one of them are removed.
 */

import { AssertionError } from "node:assert/strict";
import { plantCopies } from "../simulation/plant.ts";
import { type Guard, guards } from "./guards.ts";
import { freshDatabase, startPostgres } from "./server.ts";

// A trap that fails leaves calls behind that it no longer waits for; they fail when its handles are closed.
process.on("unhandledRejection", () => {});

export interface GuardReport {
  readonly guard: string;
  readonly is: "caught" | "not caught" | "broken";
  readonly message: string;
}

const LANES = 6;
const ATTEMPTS = 3;
const made = plantCopies(guards);

const names = process.argv.slice(2);
const wanted = guards.filter(({ name }) => names.length === 0 || names.some((part) => name.includes(part)));
const alone: Guard[] = [];
const together: Guard[] = [];
for (const guard of wanted) ((await trapOf(guard, "./traps/index.ts")).needsServer ? alone : together).push(guard);

await Promise.all([
  work(alone, async () => (await startPostgres()).url),
  ...Array.from({ length: LANES }, () => work(together, async () => (await freshDatabase()).url)),
]);
// Missing guards may leave calls that never end.
process.exit();

async function work(todo: Guard[], place: () => Promise<string>): Promise<void> {
  if (todo.length === 0) return;
  const url = await place();
  for (let guard = todo.shift(); guard !== undefined; guard = todo.shift())
    console.log(JSON.stringify(await playSome(guard, url)));
}

/**
 * Some traps need two things to happen at the same time, which a busy machine may not do the first time. That a trap closes once without its
 * guard is what is to be shown, so it gets three attempts.
 */
async function playSome(guard: Guard, url: string): Promise<GuardReport> {
  let report = await play(guard, url);
  for (let attempt = 2; attempt <= ATTEMPTS && report.is !== "caught"; attempt++) report = await play(guard, url);
  return report;
}

async function play(guard: Guard, url: string): Promise<GuardReport> {
  const number = guards.indexOf(guard);
  try {
    const trap = await trapOf(guard, `./traps/index.ts?guard=${number}`);
    const { Arena } = await import(`./traps/arena.ts?guard=${number}`);
    if (made[number] !== guard.edits.length)
      throw new Error(`${made[number]} of ${guard.edits.length} edits were made`);
    await Arena.play(url, trap);
    return { guard: guard.name, is: "not caught", message: "" };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return { guard: guard.name, is: isCatch(error) ? "caught" : "broken", message };
  }
}

async function trapOf({ name, trap }: Guard, place: string): Promise<import("./traps/arena.ts").Trap> {
  const { traps }: typeof import("./traps/index.ts") = await import(place);
  const found = traps.find((one) => one.name === trap);
  if (found === undefined) throw new Error(`there is no trap "${trap}" for the guard "${name}"`);
  return found;
}

/** An unexpected refusal is a catch, unless it says that the server did not understand the statement. */
function isCatch(error: unknown): boolean {
  if (error instanceof AssertionError) return true;
  if (!(error instanceof Error) || !("data" in error)) return false;
  const { cause } = error;
  return !(cause instanceof Error && "code" in cause && /^42/.test(String(cause.code)));
}
