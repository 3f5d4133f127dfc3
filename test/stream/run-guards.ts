/**
 * Removes the guards from the source, one for each copy of it, and plays the failure of each on its copy: in memory, or on PostgreSQL where it
 * needs a server.
 *
 * All copies live in this one process: everything under a guard is loaded again, with the guard's number in its address, and its edits are
 * made while it is loaded. Prints a line of JSON for each guard: the failure was seen, as it must be, or not, or it is broken, for instance
 * because the edit was never loaded. The last line is for a copy without a removed guard.
 */

import { AssertionError } from "node:assert/strict";
import { plantCopies } from "../simulation/plant.ts";
import { type Guard, guards } from "./guards.ts";

// A failure that is seen leaves calls behind that nothing waits for any more.
process.on("unhandledRejection", () => {});

export interface GuardReport {
  readonly guard: string;
  readonly is: "seen" | "not seen" | "broken";
  readonly message: string;
}

/** What has not happened by then never does. */
const PATIENCE_MS = 5_000;

const nothing: Guard = { name: "nothing", failure: guards[0]?.failure ?? "", edits: [] };
const copies = [...guards, nothing];
const made = plantCopies(copies);

async function play({ name, failure, edits }: Guard, number: number): Promise<GuardReport> {
  try {
    const { Arena, failures }: typeof import("./failures.ts") = await import(`./failures.ts?guard=${number}`);
    const { grounds }: typeof import("../once/stores.ts") = await import(`../once/stores.ts?guard=${number}`);
    if (made[number] !== edits.length) throw new Error(`${made[number]} of ${edits.length} edits were made`);
    const found = failures.find((one) => one.name === failure);
    if (found === undefined) throw new Error(`there is no failure "${failure}"`);
    const [, make] = grounds[found.needsServer === true ? 2 : 0];
    const ground = await make();
    await found.play(new Arena(ground.connect, "failure", PATIENCE_MS));
    return { guard: name, is: "not seen", message: "" };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return { guard: name, is: error instanceof AssertionError ? "seen" : "broken", message };
  }
}

const names = process.argv.slice(2);
for (const [number, guard] of copies.entries())
  if (names.length === 0 || names.some((part) => guard.name.includes(part)))
    console.log(JSON.stringify(await play(guard, number)));
// Whatever the missing guards left hanging.
process.exit();
