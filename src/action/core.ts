/**
 * What actions share inside and outside of decisions: the options, and how a caller's secrets are hashed or sealed before they are stored.
 */

import { checkDuration, checkId, checkOptions, type Duration, type OptionNames, optionNames } from "../kernel/check.ts";
import type { Address } from "../kernel/contract.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { bytesFrom } from "../kernel/seal/cipher.ts";
import { KeyUnavailableError } from "../kernel/seal/errors.ts";
import { KeyRing, type RingKeys } from "../kernel/seal/ring.ts";
import { HashGate } from "./gate.ts";
import { type Asking, type CompleteOptions, checkAsking, checkFence, refOfId } from "./options.ts";
import { type SlowHash, slowHash } from "./pepper.ts";
import { type PepperSecret, Peppers } from "./peppers.ts";
import type { ActionDeps, ClaimHolder, Taker } from "./records.ts";
import { ACTIONS, actionAt, payloadAt, useAt } from "./stored.ts";

export interface ActionsOptions {
  /**
   * A secret of 16 bytes or more that is not in the database. PINs and consumer keys need it. Several are for rotation, the newest first: what
   * is stored from now on is hashed with the newest, and what was stored with an older one is still recognized. Give the new one to all
   * processes at the end of the list before you move it to the front.
   */
  readonly pepper?: PepperSecret | readonly PepperSecret[] | undefined;
  /**
   * What happens if none of the peppers was used with this database before. "refuse" throws `pepper_changed`, from `open` on. "accept" is
   * for a lost pepper: PINs that were hashed with it cannot be checked any more, and earlier consumers are not recognized. Default:
   * "refuse".
   */
  readonly pepperChange?: "refuse" | "accept" | undefined;
  /** What payloads, and the personal fields of events, are sealed with. To rotate, add a key and name it current; keep the old ones for as long as they are needed. */
  readonly keys?: RingKeys | undefined;
  /** How long the outcome of an action is kept after it has expired. Default: 30 days. */
  readonly retention?: Duration | undefined;
}

/** @internal */
export const ACTIONS_OPTIONS = optionNames<ActionsOptions>({
  pepper: true,
  pepperChange: true,
  keys: true,
  retention: true,
});

/** What actions need besides the kernel's ports. */
export interface ActionPorts {
  /** Returns unguessable bytes. Default: made from the kernel's random numbers. */
  readonly randomBytes?: ((size: number) => Uint8Array) | undefined;
  /** Default: scrypt. */
  readonly slowHash?: SlowHash | undefined;
  /** Shared by all handles of a process, so that together they run at most two hashes concurrently. Default: a new one. */
  readonly gate?: HashGate | undefined;
}

const RETENTION_MS = 30 * 24 * 3_600_000;
/** How many actions are remembered as having several uses. */
const MAX_SHARED = 1000;
const ID_BYTES = 32;

/** A new id of 256 bits. */
export function newId(randomBytes: (size: number) => Uint8Array): string {
  const bytes = randomBytes(ID_BYTES);
  if (bytes.length !== ID_BYTES)
    throw new InvalidArgumentError("randomBytes", "must return the requested number of bytes");
  return Buffer.from(bytes).toString("base64url");
}

/** What `Actions` and `TxActions` share. */
export class Core {
  readonly kernel: Kernel;
  readonly deps: ActionDeps;
  readonly peppers: Peppers;
  readonly ring: KeyRing | undefined;
  readonly randomBytes: (size: number) => Uint8Array;
  readonly slowHash: SlowHash;
  readonly gate: HashGate;
  /** Actions that are known to have several uses: their consumers' records are read along with the action's. */
  readonly #shared = new Set<string>();

  constructor(kernel: Kernel, options: ActionsOptions, ports: ActionPorts) {
    const { pepper, pepperChange = "refuse", keys, retention } = options;
    if (pepperChange !== "refuse" && pepperChange !== "accept")
      throw new InvalidArgumentError("pepperChange", 'must be "refuse" or "accept"');
    this.kernel = kernel;
    this.randomBytes = ports.randomBytes ?? ((size) => bytesFrom(kernel.ports.chance.uuid, size));
    this.slowHash = ports.slowHash ?? slowHash;
    this.gate = ports.gate ?? new HashGate();
    this.peppers = new Peppers(pepper, kernel.namespace, pepperChange === "accept");
    this.ring =
      keys === undefined
        ? undefined
        : new KeyRing(keys, kernel.namespace, ACTIONS, (ref) => `the payload of action ${ref}`);
    this.deps = {
      retentionMs: retention === undefined ? RETENTION_MS : checkDuration(retention, "the retention"),
      open: (ref, sealed) => {
        if (this.ring === undefined) throw new KeyUnavailableError(sealed.keyId);
        return kernel.decodeFresh(actionAt(ref), this.ring.open(ref, sealed));
      },
    };
  }

  taker(id: unknown, options: Asking & { readonly consumerKey?: string | undefined }, known: OptionNames): Taker {
    const ref = refOfId(id);
    checkOptions(options, known);
    const { consumerKey } = options;
    const consumers =
      consumerKey === undefined
        ? []
        : this.peppers
            .for("a consumer key")
            .map((pepper) => pepper.consumer(ref, checkId(consumerKey, "the consumer key")));
    return { ref, consumers, ...checkAsking(options, known) };
  }

  holder(id: unknown, options: CompleteOptions, known: OptionNames): ClaimHolder {
    checkOptions(options ?? null, known);
    return { ...this.taker(id, options, known), fence: checkFence(options.fence) };
  }

  /** The records that taking the action is known to touch. */
  touches({ ref, consumers }: Taker): Address[] {
    const keys = [actionAt(ref)];
    if (!this.#shared.has(ref)) return keys;
    return [...keys, ...consumers.map((consumer) => useAt(ref, consumer)), payloadAt(ref)];
  }

  learn(ref: string, isShared: boolean): void {
    if (!isShared) return;
    if (this.#shared.size >= MAX_SHARED) this.#shared.clear();
    this.#shared.add(ref);
  }
}
