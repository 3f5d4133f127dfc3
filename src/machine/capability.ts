/** State machines as a capability of the handle. */

import type { Capability } from "../kernel/capability.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Origin } from "../kernel/origin.ts";
import type { Machine } from "./definition.ts";
import { type MachineHandle, Machines, type TxMachine } from "./machine.ts";

export interface MachineVerbs {
  /** Returns a handle on the instances of a machine. */
  machine<State extends string, Data, Given>(machine: Machine<State, Data, Given>): MachineHandle<State, Data, Given>;
}

export interface MachineTxVerbs {
  /** A machine, to move in this commit. */
  machine<State extends string, Data, Given>(machine: Machine<State, Data, Given>): TxMachine<State, Data, Given>;
}

export function machineCapability(kernel: Kernel): Capability {
  const machines = new Machines(kernel);
  const verbs: MachineVerbs = { machine: (machine) => machines.of(machine) };
  const scoped = (origin: Origin): MachineVerbs => ({ machine: (machine) => machines.of(machine, origin) });
  return { verbs, scoped, view: { machine: (tx: Tx, machine: Machine) => machines.within(tx, machine) } };
}
