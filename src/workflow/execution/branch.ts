/**
 * Branches: parts of a run's code that can be canceled, or shielded from a cancellation, on their own.
 *
 * The root is the code as a whole. `ctx.shield`, the functions of `ctx.race`, locks and steps under a semaphore make further ones. Each
 * operation belongs to one branch, and a cancellation of a branch reaches every operation within it, down to a shielded branch.
 */

/** A part of the code that can be canceled, or kept from being canceled, by itself. The root is the code as a whole. */
export class Branch {
  readonly parent: Branch | undefined;
  readonly isShielded: boolean;
  /** It is shielded, or all of it is one step. */
  readonly #isWhole: boolean;
  /** Its code has ended: what it left waiting is not wanted any more. */
  isOver = false;
  /** How often it was canceled, without what is around it. */
  cancelCount = 0;

  constructor(parent: Branch | undefined, is: "plain" | "shielded" | "step" = "plain") {
    this.parent = parent;
    this.isShielded = is === "shielded";
    this.#isWhole = is !== "plain";
  }

  /** It is part of what comes to its end in any case: what it waits for is waited for even if the code has returned. */
  get isKept(): boolean {
    return (this.#isWhole && !this.isOver) || this.parent?.isKept === true;
  }

  /** How often it was canceled, by itself or with a branch around it. */
  get interruptions(): number {
    const around = this.isShielded || this.parent === undefined ? 0 : this.parent.interruptions;
    return this.cancelCount + around;
  }

  /** Whether a cancellation of `other` reaches this branch. */
  isWithin(other: Branch): boolean {
    for (let branch: Branch | undefined = this; branch !== undefined; branch = branch.parent) {
      if (branch === other) return true;
      if (branch.isShielded) return false;
    }
    return false;
  }
}
