/**
 * What `pawl serve --import` works on and serves: everything that the named files export and a worker can work on, and their state machines.
 *
 * This is the one place where a module is loaded whose name is only known at run time: code of the user, who named it on the command line.
 */

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { WorkDefinition } from "../capabilities.ts";
import { isMachine, type Machine } from "../machine/definition.ts";
import { scheduleRules } from "../schedule/definition.ts";
import { policyRules } from "../stream/policies/definition.ts";
import { projectionRules } from "../stream/projections/definition.ts";
import { reactionRules } from "../stream/reactions/definition.ts";
import { definitionOf } from "../workflow/definitions/definition.ts";
import { CliError } from "./exit-codes.ts";

const isDefinition = (value: unknown): value is WorkDefinition =>
  [definitionOf, scheduleRules, policyRules, projectionRules, reactionRules].some(
    (rules) => rules(value) !== undefined,
  );

export interface Imported {
  readonly definitions: readonly WorkDefinition[];
  readonly machines: readonly Machine[];
}

/** What the files export, also in lists. */
export async function importedFrom(files: readonly string[]): Promise<Imported> {
  const definitions = new Set<WorkDefinition>();
  const machines = new Set<Machine>();
  for (const file of files) {
    const before = definitions.size + machines.size;
    const exported = await load(file);
    for (const one of Object.values(exported).flat()) {
      if (isDefinition(one)) definitions.add(one);
      else if (isMachine(one)) machines.add(one);
    }
    if (definitions.size + machines.size === before)
      throw new CliError(
        "no_definitions",
        `${file} exports nothing to work on or to serve: export what workflow, reaction, projection, schedule or machine returned, made by this installation of pawl`,
      );
  }
  return { definitions: [...definitions], machines: [...machines] };
}

async function load(file: string): Promise<Record<string, unknown>> {
  try {
    return (await import(pathToFileURL(resolve(file)).href)) as Record<string, unknown>;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const where = placeIn(error);
    const says = where === undefined || reason.includes(where) ? reason : `${reason} (at ${where})`;
    throw new CliError("import_failed", `${file} cannot be imported: ${says}`, { cause: error });
  }
}

/** Where in the user's files it was thrown, as a path with a line. */
function placeIn(error: unknown): string | undefined {
  const stack = error instanceof Error ? (error.stack ?? "") : "";
  for (const line of stack.split("\n")) {
    const place = /(?:file:\/\/)?\/[^\s()]+:\d+(?::\d+)?/.exec(line)?.[0];
    if (place !== undefined && !place.includes("/node_modules/")) return place;
  }
  return undefined;
}
