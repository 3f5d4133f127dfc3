/** One-time actions as a capability of the handle. */

import type { Capability, View } from "../kernel/capability.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { Actions } from "./actions.ts";
import type { ActionPorts, ActionsOptions } from "./core.ts";
import { PepperChangedError } from "./errors.ts";
import type { TxActions } from "./tx-actions.ts";

export interface ActionVerbs {
  /** One-time actions: coupons, login links, tickets. One winner for each, ever. */
  readonly actions: Actions;
}

export interface ActionTxVerbs {
  /** One-time actions: created, used and canceled in this commit. */
  readonly actions: TxActions;
}

/** The options of the user, and what actions need from the process. */
export interface ActionSetup {
  readonly options?: ActionsOptions | undefined;
  readonly ports?: ActionPorts | undefined;
}

export function actionCapability(kernel: Kernel, setup: ActionSetup = {}): Capability {
  const actions = new Actions(kernel, setup.options, setup.ports);
  const verbs: ActionVerbs = { actions };
  const properties: View<ActionTxVerbs> = { actions: (tx) => actions.within(tx) };
  return {
    verbs,
    properties,
    queues: actions.queues,
    check: async () => {
      try {
        await actions.checkPepper();
      } catch (error) {
        // The first use of an action reports any other error.
        if (error instanceof PepperChangedError) throw error;
      }
    },
  };
}
