/** `pawl migrate`: what this release would change in the database's schema, and doing so. */

import { declare, option, type Place } from "../program.ts";

export function migrateCommand(place: Place): void {
  declare<{ plan?: boolean }>(place, {
    usage: "migrate",
    summary: "bring the database up to the schema of this release",
    options: [option("--plan", "print the statements, and change nothing")],
    help: "Opening a database does the same. With --plan one sees beforehand what it would do.",
    run: async (session, _, { plan }) => {
      const where = await session.place();
      const { lookAt, nothingThere, openPlace } = await import("../store.ts");
      const { isThere, schema, known, missing } = await lookAt(where);
      if (!isThere || schema === 0) throw nothingThere(where);
      const state = { schema, known, missing };
      if (missing.length === 0) return session.done(`${where.shown} has schema ${schema}: nothing to do`, state);
      if (plan === true) {
        if (session.isJson) return session.json(state);
        return session.print([
          `-- ${where.shown}: from schema ${schema} to ${known}`,
          ...missing.flatMap((statements, at) => [
            "",
            `-- ${schema + at + 1}`,
            ...statements
              .split("\n")
              .map((line) => line.trimEnd())
              .filter((line) => line !== ""),
          ]),
        ]);
      }
      await (await openPlace(where, { to: "write", namespace: session.namespace })).close();
      session.done(`${where.shown} was migrated from schema ${schema} to ${known}`, { from: schema, to: known });
    },
  });
}
