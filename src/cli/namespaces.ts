/**
 * The namespaces of `pawl serve` beside its own: a handle for each that has an API key, and a worker on it.
 *
 * Guarantees: with `work`, each namespace with a key that is not revoked is worked on, without any request; a key that another process creates is seen
 * within seconds. A namespace that never had a key is not opened, whatever request names it. After `close`, no handle is open, and none is opened.
 */

import type { ApiKeys } from "../http/server/keys/keys.ts";
import { ClosedError } from "../kernel/errors.ts";
import type { Pawl } from "../pawl.ts";
import type { Worker } from "../worker.ts";

export interface NamespacesOptions {
  /** The namespace of the server itself, which is not opened here. */
  readonly own: string;
  readonly keys: ApiKeys;
  readonly open: (namespace: string) => Promise<Pawl>;
  /** Puts a handle to work; undefined for a server that only serves. */
  readonly work: ((pawl: Pawl) => Worker) | undefined;
  /** A look at the keys, or opening a namespace, failed; it is tried again. */
  readonly failed: (error: unknown) => void;
}

export class Namespaces {
  readonly #options: NamespacesOptions;
  readonly #opened = new Map<string, Promise<Pawl>>();
  readonly #workers: Worker[] = [];
  readonly #stopping = new AbortController();
  #watching: Promise<void> | undefined;

  constructor(options: NamespacesOptions) {
    this.#options = options;
  }

  /** Begins to work on all namespaces that have keys, and on those that get one. */
  begin(): void {
    const { own, keys, work, failed } = this.#options;
    if (work === undefined) return;
    const seen = async (namespaces: ReadonlySet<string>): Promise<void> => {
      // One after the other: each opens connections.
      for (const namespace of namespaces)
        if (namespace !== own && !this.#stopping.signal.aborted) await this.#open(namespace).catch(failed);
    };
    this.#watching = keys.watchNamespaces({ seen, failed, abortSignal: this.#stopping.signal });
  }

  /** The handle of a namespace, for a request; undefined for one that never had a key: requests without a key can name any. */
  async of(namespace: string): Promise<Pawl | undefined> {
    const opened = this.#opened.get(namespace);
    if (opened !== undefined) return opened;
    const { keys } = await this.#options.keys.list({ namespace, limit: 1 });
    return keys.length === 0 ? undefined : this.#open(namespace);
  }

  #open(namespace: string): Promise<Pawl> {
    const before = this.#opened.get(namespace);
    if (before !== undefined) return before;
    if (this.#stopping.signal.aborted) return Promise.reject(new ClosedError());
    const opened = this.#options.open(namespace).then(async (pawl) => {
      try {
        if (this.#options.work !== undefined && !this.#stopping.signal.aborted)
          this.#workers.push(this.#options.work(pawl));
        return pawl;
      } catch (error) {
        await pawl.close();
        throw error;
      }
    });
    this.#opened.set(namespace, opened);
    opened.catch(() => this.#opened.delete(namespace));
    return opened;
  }

  /** Opens nothing more, and stops the workers. The handles stay open for requests. */
  async stop(timeout: number): Promise<void> {
    this.#stopping.abort();
    await Promise.all(this.#workers.map((worker) => worker.stop({ timeout })));
  }

  /** Closes all handles, also those that are being opened. */
  async close(): Promise<void> {
    this.#stopping.abort();
    const closing = Array.from(this.#opened.values(), (opened) =>
      opened.then(
        (pawl) => pawl.close(),
        () => {},
      ),
    );
    await Promise.all([this.#watching, ...closing]);
  }
}
