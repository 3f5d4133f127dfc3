/**
 * The rows that events make, in Pawl's records: which rows each event changes, and what it makes of them.
 */

import type { Address } from "../../kernel/contract.ts";
import { refusePromise, runPure, type Tx } from "../../kernel/decision.ts";
import { deepFreeze } from "../../kernel/encoding.ts";
import type { Ports } from "../../kernel/ports.ts";
import type { StreamEvent } from "../event.ts";
import type { RowRules } from "./definition.ts";
import { rowAt } from "./stored.ts";

/** The rows that an event changes, or why that is not known. */
export type Keyed =
  | { readonly keys: readonly { readonly key: string; readonly at: Address }[] }
  | { readonly error: unknown };

/** The rows that an event changes. */
export function keysOf(ports: Ports, { name, key }: RowRules, event: StreamEvent, generation: number): Keyed {
  try {
    const found = runPure(ports, () => key(event));
    refusePromise(found);
    const all: readonly unknown[] = found === undefined ? [] : Array.isArray(found) ? found : [found];
    // Checked as every id is, so that a promise or a number is reported. A row that is named twice changes once.
    return {
      keys: Array.from(new Set(all), (one) => ({ key: one as string, at: rowAt(name, generation, one as string) })),
    };
  } catch (error) {
    return { error };
  }
}

/** Applies events in order. Returns the first that cannot be applied; what it did to rows is undone. */
export function applyAll(
  { apply }: RowRules,
  rows: Rows,
  events: readonly StreamEvent[],
  keyed: readonly Keyed[],
): { readonly index: number; readonly error: unknown } | undefined {
  for (const [index, event] of events.entries())
    try {
      const found = keyed[index];
      if (found === undefined) continue;
      if ("error" in found) throw found.error;
      for (const { key, at } of found.keys) {
        const after = apply(rows.get(at), event, key);
        refusePromise(after);
        rows.set(at, after);
      }
      rows.keep();
    } catch (error) {
      rows.undo();
      return { index, error };
    }
  return undefined;
}

/** The rows that a page of events changes: each is written once, with what the last of them made of it. */
export class Rows {
  readonly #tx: Tx;
  readonly #kept = new Map<string, { readonly at: Address; readonly value: unknown }>();
  /** What the event that is being applied did. */
  readonly #changed = new Map<string, { readonly at: Address; readonly value: unknown }>();

  constructor(tx: Tx, all: readonly { readonly at: Address }[]) {
    this.#tx = tx;
    const distinct = new Map(all.map(({ at }) => [at.text, at]));
    tx.load([...distinct.values()]);
  }

  get(at: Address): unknown {
    const found = this.#changed.get(at.text) ?? this.#kept.get(at.text);
    return found === undefined ? this.#tx.record(at).value : found.value;
  }

  /** A row that cannot be stored is the failure of its event, also if a later event would replace it. */
  set(at: Address, value: unknown): void {
    if (value !== undefined) this.#tx.record(at).encode(value);
    deepFreeze(value);
    this.#changed.set(at.text, { at, value });
  }

  keep(): void {
    for (const [text, change] of this.#changed) this.#kept.set(text, change);
    this.#changed.clear();
  }

  undo(): void {
    this.#changed.clear();
  }

  write(): void {
    for (const { at, value } of this.#kept.values()) {
      const record = this.#tx.record(at);
      if (value !== undefined) record.write({ value });
      else if (record.exists) record.remove();
    }
  }
}
