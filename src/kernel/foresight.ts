/**
 * Foresight: which records a decision will ask for that named none.
 *
 * A store that is a round trip away would be asked for them one after the other. So the decision is run before, on what is known and
 * what may be guessed, until it asks for something else; what it comes to is thrown away.
 */

import { runDecision } from "./decision.ts";
import { Cell } from "./draft.ts";
import { type Airspace, type Submission, sceneOf } from "./flight.ts";

/** How often a decision that named no records is run to see which it asks for. */
const MAX_REHEARSALS = 4;
/** After so many that asked for nothing more than at first, so many are run only once. */
const VAIN = 16;
const VAIN_REST = 512;

export class Foresight {
  readonly #air: Airspace;
  #vain = 0;
  #rest = 0;

  constructor(air: Airspace) {
    this.#air = air;
  }

  foresee(submission: Submission): void {
    const { known } = this.#air;
    const cells = new Map<string, Cell>();
    const most = this.#rest > 0 ? 1 : MAX_REHEARSALS;
    if (this.#rest > 0) this.#rest -= 1;
    for (let runs = 1; runs <= most; runs++) {
      const outcome = runDecision(submission.decide, sceneOf(this.#air, cells, null, 0), submission.tape, true);
      if (outcome.is !== "void" || outcome.wanted === "lock") {
        if (runs === 2) this.#wasVain();
        return;
      }
      if (runs > 1) this.#vain = 0;
      submission.keys = submission.keys.concat(outcome.wanted);
      for (const at of outcome.wanted) {
        const row = known.get(at.text);
        if (row === undefined && at.isNew !== true) return;
        cells.set(at.text, new Cell(at, row ?? null, true));
      }
    }
  }

  #wasVain(): void {
    this.#vain += 1;
    if (this.#vain < VAIN) return;
    this.#vain = 0;
    this.#rest = VAIN_REST;
  }
}
