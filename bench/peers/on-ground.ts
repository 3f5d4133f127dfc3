/** A place for one turn of one contender. */

import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Ground } from "./peer.ts";
import type { Postgres } from "./postgres.ts";

/** A folder of its own and, where it is for PostgreSQL, a database of its own; both are gone afterwards. */
export async function onGround(
  { id, store }: { readonly id: string; readonly store: string },
  postgres: Postgres | null,
  home: string,
  use: (ground: Ground) => Promise<void>,
): Promise<void> {
  const folder = join(home, id);
  mkdirSync(folder);
  const database = store === "postgres" ? ((await postgres?.create()) ?? null) : null;
  try {
    await use({
      folder,
      get database() {
        if (database === null) throw new Error(`${id} is not one that stores in PostgreSQL`);
        return database;
      },
    });
  } finally {
    if (database !== null) await postgres?.drop(database);
    rmSync(folder, { recursive: true, force: true });
  }
}
