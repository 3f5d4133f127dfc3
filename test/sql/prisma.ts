/**
 * Prisma without its generator, which cannot run before it has fetched a program from the network.
 *
 * What runs is Prisma's own client and query compiler, from the package `@prisma/client`, on a schema of one model; what the generator
 * would have written is written here by hand. The driver adapter is a small one of our own around `pg`, with the answers and errors of
 * the official one: rows as arrays with the names of their columns, and server errors under `cause`.
 *
 * Out of scope: all column types but text, and whatever the official adapter does for other providers.
 */

import { getPrismaClient, type SqlDriverAdapterFactory } from "@prisma/client/runtime/client";
import pg from "pg";

/** What the tests and the example use of a generated client. */
export interface PrismaTransaction {
  readonly order: {
    create(args: { data: { id: string; item: string } }): PromiseLike<unknown>;
    findMany(args: { select: { id: true } }): PromiseLike<unknown>;
  };
  $queryRawUnsafe(query: string, ...values: unknown[]): PromiseLike<unknown>;
  $executeRawUnsafe(query: string, ...values: unknown[]): PromiseLike<number>;
}

export interface PrismaClient extends PrismaTransaction {
  $transaction<T>(
    work: (transaction: PrismaTransaction) => Promise<T>,
    options?: { isolationLevel?: "ReadCommitted" | "RepeatableRead" | "Serializable" },
  ): Promise<T>;
  $disconnect(): Promise<void>;
}

const SCHEMA = `
  generator client {
    provider = "prisma-client"
    output   = "generated"
  }

  datasource db {
    provider = "postgresql"
  }

  model Order {
    id   String @id
    item String
    @@map("orders")
  }
`;

/** Where the query compiler is in the package; its files come without types. */
const COMPILER = "@prisma/client/runtime/query_compiler_small_bg.postgresql";

const { WebAssembly } = globalThis as unknown as { WebAssembly: { Module: new (bytes: Uint8Array) => unknown } };

const Generated = getPrismaClient({
  previewFeatures: [],
  clientVersion: "7.10.0",
  engineVersion: "",
  activeProvider: "postgresql",
  inlineSchema: SCHEMA,
  runtimeDataModel: {
    models: {
      Order: {
        dbName: "orders",
        schema: null,
        fields: ["id", "item"].map((name) => ({
          name,
          kind: "scalar",
          type: "String",
          isId: name === "id",
          isRequired: true,
          isList: false,
          isUnique: false,
          isReadOnly: false,
          hasDefaultValue: false,
        })),
        primaryKey: null,
        uniqueFields: [],
        uniqueIndexes: [],
      },
    },
    enums: {},
    types: {},
  },
  // Says which values of a query may become parameters; so much emptiness is no graph at all, and then none do.
  parameterizationSchema: { strings: [], graph: Buffer.alloc(8).toString("base64") },
  compilerWasm: {
    getRuntime: () => import(`${COMPILER}.mjs`),
    async getQueryCompilerWasmModule() {
      const { wasm } = (await import(`${COMPILER}.wasm-base64.mjs`)) as { wasm: string };
      return new WebAssembly.Module(Buffer.from(wasm, "base64"));
    },
    importName: "./query_compiler_small_bg.js",
  },
});

export function connectPrisma(url: string): PrismaClient {
  return new Generated({ adapter: adapterFor(url) }) as unknown as PrismaClient;
}

type Adapter = Awaited<ReturnType<SqlDriverAdapterFactory["connect"]>>;
type Queries = Pick<Adapter, "provider" | "adapterName" | "queryRaw" | "executeRaw">;

const TEXT = 7;

function adapterFor(url: string): SqlDriverAdapterFactory {
  return {
    provider: "postgres",
    adapterName: "a small adapter for tests",
    async connect() {
      const pool = new pg.Pool({ connectionString: url });
      pool.on("error", () => {});
      pool.on("connect", (client) => client.on("error", () => {}));
      return {
        ...queriesOn(pool),
        executeScript: async (script) => void (await pool.query(script)),
        dispose: () => pool.end(),
        async startTransaction(isolationLevel) {
          const client = await pool.connect();
          const mode = isolationLevel === undefined ? "" : ` isolation level ${isolationLevel}`;
          await client.query(`begin${mode}`);
          const release = async () => client.release();
          // Prisma sends COMMIT and ROLLBACK itself.
          return { ...queriesOn(client), options: { usePhantomQuery: false }, commit: release, rollback: release };
        },
      };
    },
  };
}

function queriesOn(client: Pick<pg.ClientBase, "query">): Queries {
  const run = async (text: string, values: unknown[]): Promise<pg.QueryArrayResult<unknown[]>> => {
    try {
      return await client.query<unknown[]>({ text, values, rowMode: "array" });
    } catch (error) {
      throw asDriverError(error);
    }
  };
  return {
    provider: "postgres",
    adapterName: "a small adapter for tests",
    async queryRaw({ sql, args }) {
      const { fields, rows } = await run(sql, args);
      return { columnNames: fields.map(({ name }) => name), columnTypes: fields.map(() => TEXT), rows };
    },
    executeRaw: async ({ sql, args }) => (await run(sql, args)).rowCount ?? 0,
  };
}

function asDriverError(error: unknown): unknown {
  if (!(error instanceof pg.DatabaseError)) return error;
  const { code, severity, message } = error;
  const cause = { kind: "postgres", originalCode: code, originalMessage: message, code, severity, message };
  return Object.assign(new Error(message, { cause }), { name: "DriverAdapterError" });
}
