/** Slots as a capability of the handle. */

import type { Capability, View } from "../kernel/capability.ts";
import { checkId, checkOptions, optionNames } from "../kernel/check.ts";
import type { Address } from "../kernel/contract.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { type AnySlot, listSlots, Slot, type SlotListOptions, type SlotPage, slotSpace, type TxSlot } from "./slot.ts";

export interface SlotOptions {
  /** The slot that `ctx.slot` gives to this run and its children, instead of the one that all share. */
  readonly run?: string | undefined;
  /** The slot that `ctx.slot` gives to all runs of this workflow. */
  readonly workflow?: string | Workflow | undefined;
}

/** The definition of a workflow, of which only the name counts here. */
type Workflow = { readonly name: string };

const SLOT_OPTIONS = optionNames<SlotOptions & { initial?: unknown }>({ run: true, workflow: true, initial: true });

export interface SlotVerbs {
  /** Returns a handle on one shared value. With `initial`, that is its value until something is stored. */
  slot<T>(name: string, options: SlotOptions & { readonly initial: T }): Slot<T, never>;
  slot<T>(name: string, options?: SlotOptions): Slot<T>;
  /** All slots. */
  readonly slots: { list(options?: SlotListOptions): Promise<SlotPage> };
}

export interface SlotTxVerbs {
  /** A slot, to read and write in this commit. */
  slot<T, Empty>(slot: Slot<T, Empty>): TxSlot<T, Empty>;
}

export function slotCapability(kernel: Kernel): Capability {
  function slot<T>(name: string, options: SlotOptions & { readonly initial: T }): Slot<T, never>;
  function slot<T>(name: string, options?: SlotOptions): Slot<T>;
  function slot<T>(name: string, options: SlotOptions & { readonly initial?: T } = {}): Slot<T, undefined> {
    checkOptions(options, SLOT_OPTIONS);
    return new Slot<T, undefined>(kernel, name, options.initial, spaceOf(options));
  }
  const verbs: SlotVerbs = { slot, slots: { list: (options) => listSlots(kernel, options) } };
  const view: View<SlotTxVerbs> = {
    slot: (tx, slot) => {
      checkSlot(kernel, slot);
      return slot.within(tx);
    },
  };
  return { verbs, view };
}

/** The records of the slots that a decision says it touches. */
export function touchedSlots(kernel: Kernel, slots: readonly AnySlot[]): Address[] {
  const touched: Address[] = [];
  // By index, so that a hole in the list is refused; `Array.from` would see it too, but is slow.
  for (let i = 0; i < slots.length; i++) touched.push(checkSlot(kernel, slots[i] as AnySlot).touches);
  return touched;
}

/** A slot of another handle would be written to this one's database, under its name. */
function checkSlot(kernel: Kernel, slot: AnySlot): Slot<unknown, unknown> {
  if (!(slot instanceof Slot)) throw new InvalidArgumentError("the slot", "must be a handle, as pawl.slot gives it");
  if (!slot.isOn(kernel))
    throw new InvalidArgumentError("the slot", `"${slot.name}" must be of the handle whose transact this is`);
  return slot;
}

function spaceOf({ run, workflow }: SlotOptions): string | undefined {
  if (run !== undefined) return slotSpace("run", checkId(run, "the run's id"));
  if (workflow === undefined) return undefined;
  return slotSpace("workflow", checkId(typeof workflow === "string" ? workflow : workflow?.name, "the workflow"));
}
