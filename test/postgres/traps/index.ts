/**
 * Every trap that the kernel's notes name for the PostgreSQL store or for the kernel on it.
 */

import { absent } from "./absent.ts";
import type { Trap } from "./arena.ts";
import { fences } from "./fences.ts";
import { locks } from "./locks.ts";
import { moved } from "./moved.ts";
import { notifications } from "./notifications.ts";
import { outcome } from "./outcome.ts";
import { planned } from "./plans.ts";
import { poison } from "./poison.ts";
import { session } from "./session.ts";

export const traps: readonly Trap[] = [
  ...absent,
  ...moved,
  ...locks,
  ...poison,
  ...outcome,
  ...fences,
  ...session,
  ...notifications,
  ...planned,
];
