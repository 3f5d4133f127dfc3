/**
 * Defects that workflows once had, or nearly had, each as an edit that puts it back into the source. Generated programs must find every one.
 *
 * A number is the seed of the first program that finds it today, counted from program 1, and `rule` the promise that it breaks. The hunt begins
 * there, so that it is short, and draws on: a change of the generator or of the source costs more programs, not the defect. A few need such a
 * coincidence that 3,000 programs do not find them: those are hunted with a program that was kept (`regressions.ts`), and are found by no drawn one.
 */

import { attempts } from "./planted/attempts.ts";
import { cancellations } from "./planted/cancellations.ts";
import { children } from "./planted/children.ts";
import type { Planted } from "./planted/defect.ts";
import { histories } from "./planted/histories.ts";
import { mistakes } from "./planted/mistakes.ts";
import { retries } from "./planted/retries.ts";

/** All of them. */
export const PLANTED: readonly Planted[] = [
  ...attempts,
  ...retries,
  ...children,
  ...cancellations,
  ...mistakes,
  ...histories,
];
