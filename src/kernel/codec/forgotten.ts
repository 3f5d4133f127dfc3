/**
 * The value in place of data that was forgotten. It is one object, equal only to itself, also after it was stored and read again: the JSON codec
 * has a tag for it. `JSON.stringify` gives the same text: `{"$forgotten":true}`.
 */

/** The type of `FORGOTTEN`. */
export class Forgotten {
  /** Keeps other objects from having this type. */
  readonly #isForgotten = true;

  toJSON(): { readonly $forgotten: boolean } {
    return { $forgotten: this.#isForgotten };
  }

  toString(): string {
    return "[forgotten]";
  }

  /** What `console.log` shows. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return "FORGOTTEN";
  }
}

/** Stands in place of the personal fields of a person who was forgotten. */
export const FORGOTTEN: Forgotten = new Forgotten();
Object.freeze(FORGOTTEN);

/** Whether this is `FORGOTTEN`: what is left is the data. */
export const isForgotten = (value: unknown): value is Forgotten => value === FORGOTTEN;
