/**
 * Linearizability: is there an order of the operations in which an operation that ended before another began comes first, and each returns
 * the result that it returned?
 *
 * It searches all orders (after Wing and Gong), and remembers which sets of applied operations were tried in which state. It is for histories
 * of some dozens of operations on one key. An operation whose outcome is unknown may have taken effect at any time after it began, or never.
 */

export interface Operation<Input, Output> {
  readonly input: Input;
  readonly startedAt: number;
  /** Null while unknown: it may still take effect. */
  endedAt: number | null;
  output: Output | undefined;
}

/** The specification of one key: a pure function from a state and an input to the next state and the result. */
export interface Model<State, Input, Output> {
  readonly initial: State;
  readonly apply: (state: State, input: Input) => { readonly state: State; readonly output: Output };
}

/** Records operations as they begin and end. */
export class History<Input, Output> {
  readonly #operations: Operation<Input, Output>[] = [];
  #events = 0;

  get operations(): readonly Operation<Input, Output>[] {
    return this.#operations;
  }

  begin(input: Input): Operation<Input, Output> {
    this.#events += 1;
    const operation = { input, startedAt: this.#events, endedAt: null, output: undefined };
    this.#operations.push(operation);
    return operation;
  }

  end(operation: Operation<Input, Output>, output: Output): void {
    this.#events += 1;
    operation.endedAt = this.#events;
    operation.output = output;
  }

  /** Removes an operation that was refused: it never took effect. */
  refused(operation: Operation<Input, Output>): void {
    this.#operations.splice(this.#operations.indexOf(operation), 1);
  }
}

export function isLinearizable<State, Input, Output>(
  operations: readonly Operation<Input, Output>[],
  model: Model<State, Input, Output>,
): boolean {
  const count = operations.length;
  const tried = new Set<string>();
  const isDone = new Array<boolean>(count).fill(false);

  const search = (state: State, left: number): boolean => {
    if (left === 0) return true;
    const place = isDone.map((done) => (done ? 1 : 0)).join("") + JSON.stringify(state);
    if (tried.has(place)) return false;
    tried.add(place);
    // Only an operation that began before the first end of the others can be next.
    let firstEnd = Number.POSITIVE_INFINITY;
    operations.forEach((operation, i) => {
      if (!isDone[i] && operation.endedAt !== null) firstEnd = Math.min(firstEnd, operation.endedAt);
    });
    for (let i = 0; i < count; i++) {
      const operation = operations[i] as Operation<Input, Output>;
      if (isDone[i] || operation.startedAt > firstEnd) continue;
      const next = model.apply(state, operation.input);
      const isKnown = operation.endedAt !== null;
      if (isKnown && JSON.stringify(next.output) !== JSON.stringify(operation.output)) continue;
      isDone[i] = true;
      if (search(next.state, left - (isKnown ? 1 : 0))) return true;
      isDone[i] = false;
    }
    return false;
  };
  return search(model.initial, operations.filter((operation) => operation.endedAt !== null).length);
}
