/** The large slots that two processes agree on. */

import type { Pawl } from "../../src/pawl.ts";
import type { Slot } from "../../src/slot/slot.ts";

export const largeSlots = (pawl: Pawl, count: number): Slot<string>[] =>
  Array.from({ length: count }, (_, i) => pawl.slot<string>(`large/${i}`));
