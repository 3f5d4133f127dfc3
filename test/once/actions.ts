/** What the processes that want the same one-time actions agree on. */

import { createHash } from "node:crypto";
import type { ActionsOptions } from "../../src/index.ts";

export const PROCESSES = 8;
export const CLIENTS_EACH = 8;

export const OPTIONS: ActionsOptions = {
  pepper: "a pepper that all processes have",
  keys: { current: "k1", ring: { k1: new Uint8Array(32).fill(7) } },
};

export const nameOf = (process: number, client: number): string => `p${process}c${client}`;
export const processOf = (client: string): number => Number(client.slice(1, client.indexOf("c")));

/** A client that was killed and started anew has the secret that it had. */
export const secretOf = (client: string): string => createHash("sha256").update(client).digest("hex");

export interface Asked {
  readonly action: string;
  readonly client: string;
}

export type Wish =
  | {
      readonly take: readonly string[];
      /** Dies silently when this many were won, or at the end. */
      readonly diesAfter?: number;
    }
  | { readonly ask: readonly Asked[] };

export type Heard = Asked &
  (
    | { readonly ok: true; readonly atMs: number; readonly replayed: boolean; readonly payload: unknown }
    | { readonly ok: false; readonly code: string; readonly by: string | null }
  );
