/**
 * Tasks inside a decision: the same verbs, synchronous, on the records of the commit.
 */

import { checkId } from "../kernel/check.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Core } from "./core.ts";
import { checkTask, type TaskOptions } from "./options.ts";
import { cancelTask } from "./records.ts";
import { tokenAt } from "./stored.ts";
import {
  type CanceledTask,
  type CreatedTask,
  canceledAs,
  checkCancel,
  checkSignal,
  orThrow,
  type SignaledTask,
  signalIn,
  type TaskSignal,
  type TrySignal,
} from "./tasks.ts";
import { checkToken } from "./token.ts";

export class TxTasks {
  readonly #tx: Tx;
  readonly #core: Core;

  /** @internal */
  constructor(tx: Tx, core: Core) {
    this.#tx = tx;
    this.#core = core;
  }

  /** Creates a task, if this commit happens. */
  create(options: TaskOptions): CreatedTask {
    const tx = this.#tx;
    const checked = checkTask(options);
    this.#core.checkAllowed(checked.input);
    const uuid = (): string => tx.uuid();
    const prepared = this.#core.prepare(checked, uuid, uuid);
    const { started, task } = this.#core.create(tx, prepared);
    const token = prepared.token?.token ?? null;
    const signalToken = started.isNew || token === null ? token : this.#core.knownToken(tx, started.id);
    return { task, signalToken, isNew: started.isNew };
  }

  cancel(id: string, options: { readonly reason?: string | undefined } = {}): CanceledTask {
    checkId(id, "the task's id");
    return canceledAs(cancelTask(this.#tx, id, checkCancel(options)));
  }

  signal(token: string, signal: TaskSignal): SignaledTask {
    return orThrow(this.trySignal(token, signal));
  }

  trySignal(token: string, signal: TaskSignal): TrySignal {
    const body = checkSignal(signal);
    const tokenHash = checkToken(token);
    // What cannot be stored is refused before anything is written.
    this.#core.kernel.encode(tokenAt(tokenHash), body);
    return signalIn(this.#tx, tokenHash, body);
  }
}
