/**
 * A store whose calls can be intercepted: each is reported, and the process can crash at any of them.
 *
 * After a crash, no call returns, and no later call of the process reaches the store.
 */

import type { Store } from "../../kernel/contract.ts";
import { WrappedStore } from "../wrapped-store.ts";

/** Intercepts the store calls of one process. */
export interface CallInterceptor {
  /** False after the crash. */
  readonly isAlive: boolean;
  /** Performs the call, or never settles. */
  pass<T>(call: string, effect: () => Promise<T>): Promise<T>;
}

export const never = <T>(): Promise<T> => new Promise<T>(() => {});

export class InterceptedStore extends WrappedStore {
  readonly #interceptor: CallInterceptor | undefined;
  readonly #noticed: () => void;

  constructor(store: Store, interceptor: CallInterceptor | undefined, noticed: () => void) {
    super(store);
    this.#interceptor = interceptor;
    this.#noticed = noticed;
  }

  protected override async call<T>(name: string, effect: () => Promise<T>): Promise<T> {
    this.#noticed();
    return this.#interceptor === undefined ? effect() : this.#interceptor.pass(name, effect);
  }

  override watch(changed: () => void): () => void {
    return super.watch(() => {
      this.#noticed();
      changed();
    });
  }
}
