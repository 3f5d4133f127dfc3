// Goal: a slot behaves like one value in one place: there is an order of all operations that explains every answer (G10), and
// a definite no had no effect (G2).
// Method: three processes read, set with an expected version, update and delete two slots; a search looks for that order.

import { StoreError } from "../../../src/index.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import { History, isLinearizable, type Model, type World } from "../../../src/testing/index.ts";

type Input =
  | { readonly op: "get" }
  | { readonly op: "set"; readonly value: number }
  | { readonly op: "trySet"; readonly value: number; readonly expectedVersion: number }
  | { readonly op: "update"; readonly add: number }
  | { readonly op: "delete" };

interface State {
  readonly value: number | null;
  /** The record's own version, which deletion does not set back. */
  readonly version: number;
}

const visible = (state: State): number => (state.value === null ? 0 : state.version);

export const register: Model<State, Input, unknown> = {
  initial: { value: null, version: 0 },
  apply(state, input) {
    const written = (value: number | null) => ({ value, version: state.version + 1 });
    switch (input.op) {
      case "get":
        return { state, output: { value: state.value ?? 0, version: visible(state) } };
      case "set": {
        const next = written(input.value);
        return { state: next, output: { version: next.version } };
      }
      case "trySet": {
        const current = visible(state);
        if (current !== input.expectedVersion)
          return { state, output: { ok: false, code: "version_conflict", current } };
        const next = written(input.value);
        return { state: next, output: { ok: true, version: next.version } };
      }
      case "update": {
        const next = written((state.value ?? 0) + input.add);
        return { state: next, output: { value: next.value, version: next.version } };
      }
      case "delete":
        if (state.value === null) return { state, output: { deleted: false } };
        return { state: written(null), output: { deleted: true } };
    }
  },
};

export const registers = {
  name: "a slot is one value in one place",
  async scenario(world: World): Promise<void> {
    const histories = new Map(["x", "y"].map((name) => [name, new History<Input, unknown>()]));
    for (const name of ["p", "q", "r"]) {
      let left = 5;
      world.process(name, async ({ pawl, random }) => {
        let seen = 0;
        while (left > 0) {
          left -= 1;
          const key = random() < 0.7 ? "x" : "y";
          const slot = pawl.slot<number>(key, { initial: 0 });
          const history = histories.get(key) as History<Input, unknown>;
          const input = draw(random, seen);
          const operation = history.begin(input);
          try {
            const output = await perform(slot, input);
            history.end(operation, output);
            if ("version" in output) seen = output.version;
          } catch (error) {
            if (!(error instanceof StoreError)) throw error;
            if (error.code !== "outcome_unknown") history.refused(operation);
          }
        }
      });
    }
    await world.finish();
    checkCommits(world);
    for (const [name, { operations }] of histories)
      world.check(
        isLinearizable(operations, register),
        `no order explains what ${name} answered: ${JSON.stringify(operations)}`,
      );
  },
};

function draw(random: () => number, seen: number): Input {
  const value = Math.floor(random() * 100);
  const kind = random();
  if (kind < 0.25) return { op: "get" };
  if (kind < 0.35) return { op: "set", value };
  if (kind < 0.6) return { op: "trySet", value, expectedVersion: random() < 0.8 ? seen : 0 };
  if (kind < 0.85) return { op: "update", add: value };
  return { op: "delete" };
}

interface Target {
  get(): Promise<{ value: number; version: number }>;
  set(value: number): Promise<{ version: number }>;
  trySet(value: number, options: { expectedVersion: number }): Promise<object>;
  update(change: (value: number) => number): Promise<{ value: number; version: number }>;
  delete(): Promise<{ deleted: boolean }>;
}

function perform(slot: Target, input: Input): Promise<object & { version?: number }> {
  switch (input.op) {
    case "get":
      return slot.get();
    case "set":
      return slot.set(input.value);
    case "trySet":
      return slot.trySet(input.value, { expectedVersion: input.expectedVersion });
    case "update":
      return slot.update((value) => value + input.add);
    case "delete":
      return slot.delete();
  }
}
