/**
 * One-time actions over HTTP: `pawl.actions`.
 *
 * A use without a `consumerKey` has the call's idempotency key as one, so that a call whose response was lost gets the same result when it is sent again.
 */

import type { ActionEntry, ActionInfo } from "../../action/info.ts";
import type { ActionListOptions, ActionPage } from "../../action/list.ts";
import type {
  ActionOptions,
  ActionTarget,
  Asking,
  ClaimOptions,
  CompleteOptions,
  ConsumeOptions,
  HeldOptions,
} from "../../action/options.ts";
import type { Abandoned, ActionClaim, Canceled, Consumed, Created, Tried } from "../../action/results.ts";
import { isPawlError, PawlHttpError } from "./errors.ts";
import { moment, own, PAGE, plain, type Sendings, sent, value } from "./options.ts";
import { entriesOf, type Paged, paged } from "./pages.ts";
import { shown } from "./shapes.ts";
import type { WirePage } from "./slots.ts";
import { path, type Transport } from "./transport.ts";

/** What a refusal to use an action has as its code. */
const REFUSALS: ReadonlySet<string> = new Set([
  "action_not_found",
  "already_used",
  "canceled",
  "claimed",
  "expired",
  "fenced",
  "invalid_pin",
  "locked",
  "not_active",
]);

const CREATE: Sendings<ActionOptions> = {
  id: plain,
  owner: plain,
  reason: plain,
  tags: plain,
  activeAt: moment,
  expiresAt: moment,
  expiresIn: plain,
  uses: plain,
  pin: plain,
  maxPinTries: plain,
  payload: value,
};
const LIST: Sendings<ActionListOptions> = {
  ...PAGE,
  owner: plain,
  state: plain,
  tag: plain,
  createdAfter: moment,
  createdBefore: moment,
};
const ASKING: Sendings<Asking> = { by: plain, reason: plain };
const CONSUME: Sendings<ConsumeOptions> = { ...ASKING, consumerKey: plain, pin: plain };
const CLAIM: Sendings<ClaimOptions> = { ...CONSUME, lease: plain };
/** With what else a claim has, because it may be handed in as it was returned. */
const HELD: Sendings<HeldOptions & ActionClaim> = { ...ASKING, fence: plain, leaseEndsAt: own, replayed: own };
const COMPLETE: Sendings<CompleteOptions & ActionClaim> = { ...HELD, consumerKey: plain };

/** By id, or by the ref that a list returned. */
const idOf = (target: ActionTarget): string => (typeof target === "string" ? target : `ref:${String(target.ref)}`);

export class ClientActions {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates an action. The same id with the same request is the same action. Throws `action_conflict` for another request. */
  async create(options: ActionOptions = {}): Promise<Created> {
    const body = sent(options, CREATE);
    const isRepeatable = options.id !== undefined;
    return (await this.#transport.post(path("actions"), body, isRepeatable)) as Created;
  }

  /** Returns the action as it is now, or null. */
  async get(target: ActionTarget): Promise<ActionInfo | null> {
    try {
      return shown(await this.#transport.get(path("actions", idOf(target))));
    } catch (error) {
      if (isPawlError(error, "action_not_found")) return null;
      throw error;
    }
  }

  /** Lists actions, the newest first: awaited, a page; iterated, all of them. */
  list(options: ActionListOptions = {}): Paged<ActionPage, ActionInfo> {
    return paged<ActionPage, ActionInfo>(
      async (after = options.after) => {
        const query = { ...sent(options, LIST), after };
        const json = await this.#transport.get(path("actions"), query);
        const { items, unreadable = [], next } = shown<WirePage<ActionInfo>>(json);
        return { actions: items, unreadable, next };
      },
      ({ actions }) => actions,
    );
  }

  /** The audit trail, the oldest entry first. Default: the first 100 entries. */
  async history(
    target: ActionTarget,
    options: { readonly after?: number | undefined; readonly limit?: number | undefined } = {},
  ): Promise<readonly ActionEntry[]> {
    return entriesOf(this.#transport, path("actions", idOf(target), "history"), options);
  }

  /** Uses an action. Throws the reason why it cannot be used. */
  async consume<Payload = unknown>(id: string, options: ConsumeOptions = {}): Promise<Consumed<Payload>> {
    return this.#use(id, "consume", sent(options, CONSUME));
  }

  async tryConsume<Payload = unknown>(id: string, options: ConsumeOptions = {}): Promise<Tried<Consumed<Payload>>> {
    return tried(this.consume<Payload>(id, options));
  }

  /** Reserves an action for the length of a lease. */
  async claim(id: string, options: ClaimOptions = {}): Promise<ActionClaim> {
    return this.#use(id, "claim", sent(options, CLAIM));
  }

  async tryClaim(id: string, options: ClaimOptions = {}): Promise<Tried<ActionClaim>> {
    return tried(this.claim(id, options));
  }

  /** Uses an action that was claimed. */
  async complete<Payload = unknown>(id: string, options: CompleteOptions): Promise<Consumed<Payload>> {
    return this.#use(id, "complete", sent(options, COMPLETE));
  }

  async tryComplete<Payload = unknown>(id: string, options: CompleteOptions): Promise<Tried<Consumed<Payload>>> {
    return tried(this.complete<Payload>(id, options));
  }

  /** Releases an action that was claimed. */
  async abandon(id: string, options: HeldOptions): Promise<Abandoned> {
    return this.#use(id, "abandon", sent(options, HELD));
  }

  async tryAbandon(id: string, options: HeldOptions): Promise<Tried<Abandoned>> {
    return tried(this.abandon(id, options));
  }

  /** Cancels an action: it cannot be used any more. */
  async cancel(target: ActionTarget, options: Asking = {}): Promise<Canceled> {
    return this.#use(idOf(target), "cancel", sent(options, ASKING));
  }

  async tryCancel(target: ActionTarget, options: Asking = {}): Promise<Tried<Canceled>> {
    return tried(this.cancel(target, options));
  }

  async #use<T>(id: string, verb: string, body: object): Promise<T> {
    const request = { method: "POST", path: path("actions", id, verb), body } as const;
    const used = shown<T & object>(await this.#transport.call(request), ["payload"]);
    // As in the library, an action without a payload has one that is undefined.
    return verb === "consume" || verb === "complete" ? { payload: undefined, ...used } : used;
  }
}

/** A refusal as a result. */
async function tried<T>(use: Promise<T>): Promise<Tried<T>> {
  try {
    return { ok: true, ...(await use) };
  } catch (error) {
    if (!(error instanceof PawlHttpError) || !REFUSALS.has(error.code)) throw error;
    return { ok: false, ...error.data, code: error.code } as unknown as Tried<T>;
  }
}
