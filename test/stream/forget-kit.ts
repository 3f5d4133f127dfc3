/** What the tests of forgetting share: customers with personal fields, keys, and everything that a database has of them. */

import { readFileSync } from "node:fs";
import pg from "pg";
import {
  aggregate,
  event,
  type Forgotten,
  type ForgottenFields,
  type OpenOptions,
  type Pawl,
  type SubjectKeys,
} from "../../src/index.ts";
import type { Place } from "../workflow/kit.ts";

export interface Customer {
  readonly id: string;
  readonly email: string;
  readonly name: string;
  readonly plan: string;
}

export const Registered = event("Registered", {
  personal: { subject: (data: Customer) => data.id, fields: ["email", "name"] },
});
export const Moved = event<{ readonly id: string; readonly address: string }, "address">("Moved", {
  personal: { subject: ({ id }) => id, fields: ["address"] },
});
export const Upgraded = event<{ readonly plan: string }>("Upgraded");

export interface CustomerState {
  readonly email: string | Forgotten | null;
  readonly plan: string | null;
}

type CustomerRead = Customer | ForgottenFields<Customer, "email" | "name">;

export const customer = aggregate("customer", {
  initial: { email: null, plan: null } as CustomerState,
  on: [
    [Registered, (_: CustomerState, { email, plan }: CustomerRead): CustomerState => ({ email, plan })],
    [Upgraded, (state: CustomerState, { plan }: { readonly plan: string }): CustomerState => ({ ...state, plan })],
  ],
  commands: {
    register: (_, given: Customer, { emit }) => emit(Registered(given)),
    upgrade: (state, plan: string, { emit }) => {
      emit(Upgraded({ plan }));
      return state.email;
    },
    look: ({ email }) => email,
  },
});

export const KEY_1 = new Uint8Array(32).fill(1);
export const KEY_2 = new Uint8Array(32).fill(2);
export const KEYS = { actions: { keys: { current: "k1", ring: { k1: KEY_1 } } } } satisfies OpenOptions;

export const ann: Customer = { id: "c-ann", email: "ann@canary.example", name: "Ann Canary", plan: "basic" };
export const bob: Customer = { id: "c-bob", email: "bob@canary.example", name: "Bob Canary", plan: "basic" };

/** A key management service: keys by subject, and what was asked of it. */
export function vault(): SubjectKeys & {
  readonly asked: string[];
  readonly keys: Map<string, Uint8Array | "forgotten">;
} {
  const keys = new Map<string, Uint8Array | "forgotten">();
  const asked: string[] = [];
  return {
    asked,
    keys,
    get: async (subjects) => {
      asked.push(`get ${subjects.join()}`);
      return new Map([...keys].filter(([subject]) => subjects.includes(subject)));
    },
    create: async (subject) => {
      asked.push(`create ${subject}`);
      const had = keys.get(subject);
      if (had === "forgotten") throw new Error(`the key of ${subject} was destroyed`);
      const key = had ?? new Uint8Array(32).fill(keys.size + 10);
      keys.set(subject, key);
      return key;
    },
    destroy: async (subject) => {
      asked.push(`destroy ${subject}`);
      keys.set(subject, "forgotten");
    },
  };
}

/** Everything that these handles write from now on, as text. */
export function recordWrites(...handles: readonly Pawl[]): () => string {
  let written = "";
  for (const { kernel } of handles)
    kernel.listen((puts) => {
      written += `${JSON.stringify(puts ?? "")}\n`;
    });
  return () => written;
}

/** All that the database has, deleted rows and old pages included as far as they are in its files. */
export async function lootOf(place: Place): Promise<string> {
  if (place.store === "memory") return "";
  if (place.store === "SQLite")
    return [place.where, `${place.where}-wal`].map((path) => readFileSync(path, "latin1")).join("\n");
  const client = new pg.Client({ connectionString: place.where });
  await client.connect();
  try {
    const tables = await client.query<{ name: string }>(
      "select format('%I.%I', schemaname, tablename) as name from pg_tables where schemaname = 'pawl'",
    );
    let text = "";
    for (const { name } of tables.rows) {
      const { rows } = await client.query<{ row: string }>(`select t::text as row from ${name} t`);
      text += rows.map(({ row }) => row).join("\n");
    }
    return text;
  } finally {
    await client.end();
  }
}

/** A secret in all the forms in which it could lie in a file; in base64, what comes before it moves it. */
export function formsOf(secret: string | Uint8Array): readonly string[] {
  const bytes = Buffer.from(secret);
  const moved = [0, 1, 2].flatMap((before) =>
    (["base64", "base64url"] as const).map((form) =>
      Buffer.concat([Buffer.alloc(before), bytes])
        .toString(form)
        .slice(before === 0 ? 0 : 4, -4),
    ),
  );
  return [bytes.toString("latin1"), bytes.toString("utf8"), bytes.toString("hex"), ...moved];
}
