/**
 * A Map and a Set that are made when something is put into them. A run has a dozen of them for what few runs do, and an empty Map takes as much
 * memory as thirty numbers.
 */

export class LazyMap<K, V> {
  #map: Map<K, V> | undefined;

  get size(): number {
    return this.#map?.size ?? 0;
  }

  get(key: K): V | undefined {
    return this.#map?.get(key);
  }

  has(key: K): boolean {
    return this.#map?.has(key) === true;
  }

  set(key: K, value: V): void {
    this.#map ??= new Map();
    this.#map.set(key, value);
  }

  delete(key: K): boolean {
    return this.#map?.delete(key) === true;
  }

  clear(): void {
    this.#map = undefined;
  }

  keys(): Iterable<K> {
    return this.#map?.keys() ?? [];
  }

  values(): Iterable<V> {
    return this.#map?.values() ?? [];
  }

  [Symbol.iterator](): Iterator<[K, V]> {
    return this.#map?.entries() ?? [].values();
  }
}

export class LazySet<T> {
  #set: Set<T> | undefined;

  get size(): number {
    return this.#set?.size ?? 0;
  }

  has(item: T): boolean {
    return this.#set?.has(item) === true;
  }

  add(item: T): void {
    this.#set ??= new Set();
    this.#set.add(item);
  }

  delete(item: T): boolean {
    return this.#set?.delete(item) === true;
  }

  clear(): void {
    this.#set = undefined;
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#set?.values() ?? [].values();
  }
}
