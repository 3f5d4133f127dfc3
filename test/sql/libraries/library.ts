/**
 * A shop: the same order through each library that people use beside Pawl.
 *
 * Each file of this folder is one library, named as it is, with its own transaction, its own insert, and the two or three lines that make an
 * executor of it, as in its example. The table `orders (id, item)` is there already.
 */

import type { SqlExecutor } from "../../../src/index.ts";

export interface Shop {
  /** Inserts the order in a transaction of the library's, does the rest in it, and lets the library commit. */
  order<T>(id: string, rest: (executor: SqlExecutor) => Promise<T>, options?: OrderOptions): Promise<T>;
  /** An executor that is in no transaction. */
  readonly loose: SqlExecutor;
  close(): Promise<void>;
}

export interface OrderOptions {
  readonly isSerializable?: boolean;
}

/** Opens the shop on a database: a URL, or the path of an SQLite file. */
export type Connect = (where: string) => Promise<Shop>;

const SHOPS = {
  pg: () => import("./pg.ts"),
  drizzle: () => import("./drizzle.ts"),
  kysely: () => import("./kysely.ts"),
  knex: () => import("./knex.ts"),
  typeorm: () => import("./typeorm.ts"),
  prisma: () => import("./prisma.ts"),
  "node:sqlite": () => import("./node-sqlite.ts"),
} as const satisfies Record<string, () => Promise<{ connect: Connect }>>;

export type LibraryName = keyof typeof SHOPS;

export const postgresLibraries = ["pg", "drizzle", "kysely", "knex", "typeorm", "prisma"] as const;

/** Loads the library only now: a process that uses one pays for no other. */
export async function connectShop(name: LibraryName, where: string): Promise<Shop> {
  const { connect } = await SHOPS[name]();
  return connect(where);
}
