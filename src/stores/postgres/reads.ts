/**
 * Reads that share round trips: those of one moment go in one train, and so do those that come while others are under way.
 *
 * Each is a statement with a snapshot of its own, taken after it was asked for, so it sees what it would see alone. One that fails takes
 * those behind it along; then each goes again by itself.
 */

import { StoreError } from "../../kernel/errors.ts";
import { failure, isFatal, isServerError } from "./failure.ts";
import type { LinePool } from "./lines.ts";
import type { Answer, Call } from "./train.ts";

/** So many trains may be under way, and so many reads in one. */
const MOST_TRAINS = 3;
const LONGEST_TRAIN = 32;

interface Wanted {
  readonly call: Call;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}

export class Reads {
  readonly #lines: LinePool;
  /** Goes first, and answers whether the server is a standby. */
  readonly #pinned: Call;
  readonly #answered: (pinned: Answer | undefined) => void;
  #waiting: Wanted[] = [];
  #underWay = 0;

  constructor(lines: LinePool, pinned: Call, answered: (pinned: Answer | undefined) => void) {
    this.#lines = lines;
    this.#pinned = pinned;
    this.#answered = answered;
  }

  ask(call: Call): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ call, resolve, reject });
      // The others of this moment come first.
      if (this.#waiting.length === 1) queueMicrotask(() => this.#depart());
    });
  }

  #depart(): void {
    while (this.#waiting.length > 0 && this.#underWay < MOST_TRAINS) {
      this.#underWay += 1;
      void this.#send(this.#waiting.splice(0, LONGEST_TRAIN)).then(() => {
        this.#underWay -= 1;
        this.#depart();
      });
    }
  }

  async #send(wanted: readonly Wanted[]): Promise<void> {
    try {
      const [pinned, ...answers] = await this.#lines.use((line) =>
        line.send([this.#pinned, ...wanted.map(({ call }) => call)]),
      );
      // It may lag behind, so it is not asked.
      if (pinned?.rows[0]?.[0] !== "f" || answers.length !== wanted.length)
        throw new StoreError("store_readonly", "retry", "the server is a standby: connect to the primary");
      this.#answered(pinned);
      wanted.forEach(({ resolve }, index) => {
        resolve(answers[index] as Answer);
      });
    } catch (error) {
      if (wanted.length > 1 && isServerError(error) && !isFatal(error))
        await Promise.all(wanted.map((one) => this.#send([one])));
      else for (const { reject } of wanted) reject(failure(error, false));
    }
  }
}
