/**
 * Preparing an action: everything that is checked, hashed or sealed before the decision that creates it.
 */

import { checkOptions } from "../kernel/check.ts";
import { NONCE_BYTES } from "../kernel/seal/cipher.ts";
import { KeysMissingError } from "../kernel/seal/errors.ts";
import { type Core, newId } from "./core.ts";
import { ACTION_OPTIONS, type ActionOptions, checkRequest, checkTries, refOfId } from "./options.ts";
import { checkPin, type Pepper } from "./pepper.ts";
import type { ActionPlan } from "./records.ts";
import { type ActionRequest, actionAt, compact, type PinMark } from "./stored.ts";

/** An action that is ready to be created inside a decision: its PIN is hashed and its payload sealed. */
export class PreparedAction {
  readonly id: string;
  readonly ref: string;
  /** @internal */
  readonly plan: ActionPlan;
  readonly #owner: unknown;

  /** @internal */
  constructor(owner: unknown, id: string, plan: ActionPlan) {
    this.#owner = owner;
    this.id = id;
    this.ref = plan.ref;
    this.plan = plan;
  }

  /** Whether it was prepared by the handle that creates it: only that one can open what it sealed. @internal */
  isOf(owner: unknown): boolean {
    return this.#owner === owner;
  }
}

/** The checked options, before the slow work. */
export interface Checked {
  readonly id: string;
  readonly ref: string;
  readonly ownId: string | null;
  readonly request: ActionRequest;
  /** With the peppers to hash it with: the newest, and the older ones if the action may have been created before. */
  readonly pin:
    | { readonly text: string; readonly maxTries: number; readonly peppers: readonly [Pepper, ...Pepper[]] }
    | undefined;
  readonly text: string | undefined;
}

export function checkAction(core: Core, options: ActionOptions): Checked {
  checkOptions(options ?? null, ACTION_OPTIONS, "the action");
  const { pin, payload } = options;
  const id = options.id ?? newId(core.randomBytes);
  const ref = refOfId(id);
  const maxTries = checkTries(options);
  return {
    id,
    ref,
    ownId: options.id ?? null,
    request: checkRequest(options),
    pin: pin === undefined ? undefined : { text: checkPin(pin), maxTries, peppers: peppersFor(core, options.id) },
    text: payload === undefined ? undefined : encode(core, ref, payload),
  };
}

/** An action with a new id cannot have been created before, with an older pepper. */
function peppersFor({ peppers }: Core, ownId: string | undefined): readonly [Pepper, ...Pepper[]] {
  const [newest, ...older] = peppers.for("a PIN");
  return ownId === undefined ? [newest] : [newest, ...older];
}

/** Encodes the payload as it is stored; throws if it cannot be stored, or not without a key. */
function encode({ ring, kernel }: Core, ref: string, payload: unknown): string {
  if (ring === undefined) throw new KeysMissingError("a payload");
  return kernel.encode(actionAt(ref), payload);
}

export async function sealAction(core: Core, checked: Checked): Promise<PreparedAction> {
  const { id, ref, ownId, text } = checked;
  const { ring, kernel, randomBytes } = core;
  const payload =
    text === undefined || ring === undefined
      ? undefined
      : {
          value: kernel.decodeFresh(actionAt(ref), text),
          sealed: ring.seal(ref, text, randomBytes(NONCE_BYTES)),
        };
  const [pin, ...olderPins] = await hashPin(core, checked);
  const request = compact({ ...checked.request, pin });
  return new PreparedAction(core, id, { ref, id: ownId, request, olderPins, payload });
}

async function hashPin(core: Core, { ref, pin }: Checked): Promise<readonly PinMark[]> {
  if (pin === undefined) return [];
  const { gate, slowHash, peppers, kernel } = core;
  await peppers.check(kernel);
  const marks: PinMark[] = [];
  for (const pepper of pin.peppers) {
    const hash = await gate.run(() => pepper.pin(ref, pin.text, slowHash));
    marks.push({ pepper: pepper.id, hash, maxTries: pin.maxTries });
  }
  return marks;
}
