/**
 * Cursors of all events, and of lists in the order of their records, as clients see them.
 *
 * A cursor of the library is a position in the store, which all namespaces share: from two of them a client could count what others append or write. So clients
 * get it sealed, for their namespace only. The cursor of an event is the same whenever the event is read, and so is that of a record. The `next` of a page of
 * events also moves with what others append, so it is another text each time, also where nothing has changed.
 *
 * The key is a record of the server's own namespace: random, made by the first server that needs it, and the same for all of them.
 *
 * Guarantees: no client learns from a cursor how much others append or write (G26). Out of scope: those who can read the database.
 */

import { address } from "../../kernel/contract.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { bytesFrom, KEY_BYTES, nonceFor, openText, placeOf, sealText } from "../../kernel/seal/cipher.ts";

const AT = address("cursor_key", "http");
/** All positions have as many digits. */
const DIGITS = 16;

/** Seals and opens the cursors of one namespace. */
export interface Cursors {
  /** The cursor of an event. */
  ofEvent(position: string): string;
  /** The cursor of a record in a list. */
  ofRecord(position: string): string;
  /** The cursor of a place that depends on what is appended in other namespaces. */
  ofPlace(position: string): string;
  /** The position of a cursor that a client has sent. Throws `invalid_argument`. */
  open(cursor: string): string;
}

/** The key of one server, and what it seals. */
export class CursorKey {
  readonly #kernel: Kernel;
  #key: Promise<Uint8Array> | undefined;

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
  }

  async of(namespace: string): Promise<Cursors> {
    this.#key ??= this.#load();
    let key: Uint8Array;
    try {
      key = await this.#key;
    } catch (error) {
      this.#key = undefined;
      throw error;
    }
    const { chance } = this.#kernel.ports;
    const place = placeOf("cursor", namespace);
    const seal = (text: string): string => sealText(key, place, text, nonceFor(key, place, text));
    const ofRecord = (position: string): string => seal(position.padStart(DIGITS, "0"));
    return {
      ofEvent: ofRecord,
      ofRecord,
      ofPlace: (position) => seal(position.padStart(DIGITS, "0") + chance.uuid()),
      open: (cursor) => {
        try {
          return String(Number(openText(key, place, cursor).slice(0, DIGITS)));
        } catch {
          throw new InvalidArgumentError("after", "must be a cursor, as a response of this API has it");
        }
      },
    };
  }

  #load(): Promise<Uint8Array> {
    return this.#kernel.transact(
      (tx) => {
        const record = tx.record(AT);
        if (!record.exists) record.write({ value: bytesFrom(() => tx.uuid(), KEY_BYTES) });
        return record.value as Uint8Array;
      },
      [AT],
    );
  }
}
