/**
 * Removes the guards from the source, one for each copy of it, and runs the race of each on its copy, in memory.
 *
 * All copies live in this one process: everything under a guard is loaded again, with the guard's number in its address, and its edits are
 * made while it is loaded. Prints a line of JSON for each guard: the race failed, as it must, or passed, or it is broken, for instance
 * because the edit was never loaded. The last line is for a copy without a removed guard.
 */

import { AssertionError } from "node:assert/strict";
import { plantCopies } from "../simulation/plant.ts";
import { type Guard, guards } from "./guards.ts";

export interface GuardReport {
  readonly guard: string;
  readonly is: "lost" | "won" | "broken";
  readonly message: string;
}

const nothing: Guard = { name: "nothing", race: guards[0]?.race ?? "", edits: [] };
const copies = [...guards, nothing];
const made = plantCopies(copies);

async function play({ name, race, edits }: Guard, number: number): Promise<GuardReport> {
  try {
    const { Arena, races }: typeof import("./races.ts") = await import(`./races.ts?guard=${number}`);
    const memory = `../../src/stores/memory/memory.ts?guard=${number}`;
    const { MemoryDatabase }: typeof import("../../src/stores/memory/memory.ts") = await import(memory);
    if (made[number] !== edits.length) throw new Error(`${made[number]} of ${edits.length} edits were made`);
    const found = races.find((one) => one.name === race);
    if (found === undefined) throw new Error(`there is no race "${race}"`);
    const database = new MemoryDatabase(Date.now);
    const arena = new Arena(async (namespace) => database.connect(namespace), "race");
    await found.play(arena);
    return { guard: name, is: "won", message: "" };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return { guard: name, is: isLoss(error) ? "lost" : "broken", message };
  }
}

/** A refusal that the race did not expect is a loss as well; any other error is a mistake of the race, or of the edit. */
const isLoss = (error: unknown): boolean =>
  error instanceof AssertionError || (error instanceof Error && "code" in error && "data" in error);

const names = process.argv.slice(2);
for (const [number, guard] of copies.entries())
  if (names.length === 0 || names.some((part) => guard.name.includes(part)))
    console.log(JSON.stringify(await play(guard, number)));
// Whatever the missing guards left hanging.
process.exit();
