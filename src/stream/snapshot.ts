/**
 * Copies of the data of events, so that an event is what it was when it was made: lists and plain objects are copied and frozen; dates, maps, sets and
 * bytes, which cannot be frozen, are copied. What the codec may refuse is left as it is, so that it is refused with the same reason: also what is nested
 * so deeply that a copy would overflow the stack.
 */

/** The JSON codec takes 64. */
const MOST_LEVELS = 500;

/** A copy that the caller may change. */
export const copyOf = (value: unknown): unknown => new Copying(false).copy(value);

/** A frozen copy. `isFixed` says whether nothing in it can be changed. */
export function snapshot(value: unknown): { readonly value: unknown; readonly isFixed: boolean } {
  const copying = new Copying(true);
  return { value: copying.copy(value), isFixed: copying.isFixed };
}

class Copying {
  isFixed = true;
  #level = 0;
  readonly #freezes: boolean;
  /** By their original, also where that is in itself. Made with the first one. */
  #copies: Map<object, unknown> | undefined;

  constructor(freezes: boolean) {
    this.#freezes = freezes;
  }

  copy(value: unknown): unknown {
    if (typeof value !== "object" || value === null) return value;
    const known = this.#copies?.get(value);
    if (known !== undefined) return known;
    if (this.#level === MOST_LEVELS) return this.#left(value);
    this.#level += 1;
    const copy = this.#copyOf(value);
    this.#level -= 1;
    return copy;
  }

  #copyOf(value: object): unknown {
    if (Array.isArray(value)) return this.#list(value);
    const prototype: unknown = Object.getPrototypeOf(value);
    if (prototype === Object.prototype || prototype === null) return this.#object(value, prototype);
    this.isFixed = false;
    if (value instanceof Date) return new Date(value);
    if (prototype === Map.prototype) return this.#map(value as Map<unknown, unknown>);
    if (prototype === Set.prototype) return this.#set(value as Set<unknown>);
    return ArrayBuffer.isView(value) ? structuredClone(value) : value;
  }

  #list(value: readonly unknown[]): unknown {
    if (Object.keys(value).length !== value.length) return this.#left(value);
    const list: unknown[] = this.#copied(value, []);
    for (const item of value) list.push(this.copy(item));
    return this.#freezes ? Object.freeze(list) : list;
  }

  #object(value: object, prototype: unknown): unknown {
    if (Object.getOwnPropertySymbols(value).length > 0) return this.#left(value);
    const copy = this.#copied(value, prototype === null ? Object.create(null) : {});
    // Not assigned, which would set the prototype where the name is __proto__.
    for (const [name, item] of Object.entries(value))
      Object.defineProperty(copy, name, {
        value: this.copy(item),
        enumerable: true,
        writable: true,
        configurable: true,
      });
    return this.#freezes ? Object.freeze(copy) : copy;
  }

  #map(value: ReadonlyMap<unknown, unknown>): unknown {
    const map = this.#copied(value, new Map<unknown, unknown>());
    for (const [key, item] of value) map.set(this.copy(key), this.copy(item));
    return map;
  }

  #set(value: ReadonlySet<unknown>): unknown {
    const set = this.#copied(value, new Set<unknown>());
    for (const item of value) set.add(this.copy(item));
    return set;
  }

  #copied<T extends object>(original: object, copy: T): T {
    this.#copies ??= new Map();
    this.#copies.set(original, copy);
    return copy;
  }

  #left(value: unknown): unknown {
    this.isFixed = false;
    return value;
  }
}
