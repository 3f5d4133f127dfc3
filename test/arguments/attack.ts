/**
 * Attacks on one function: each argument, and each field of each option, gets every bad value of its kind, while all others are good. What comes back must be a
 * refusal with a code, soon; everything that is stored is compared before and after.
 */

import { PawlHttpError } from "../../src/http/client/index.ts";
import { machine, open, PawlError, type Tx, workflow } from "../../src/index.ts";
import { wallMs } from "../../src/node/ports.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import type { Context } from "../../src/workflow/execution/context.ts";
import { isOptions, type Kind, type Owner, type Row, type Stage } from "./table.ts";
import { badValues, REFUSALS } from "./values.ts";

/** One attack: these arguments, where one is bad. */
export interface Attack {
  readonly name: string;
  readonly args: readonly unknown[];
  /** What the message of the refusal must have. */
  readonly says?: readonly string[];
}

function* attacksOn(row: Row, stage: Stage, rules: Rules): Generator<Attack> {
  for (const overload of row.overloads ?? []) yield* attacksOn(overload, stage, rules);
  const good = row.good?.(stage) ?? [];
  const kinds = Object.entries(row.takes);
  for (const [index, [parameter, kind]] of kinds.entries()) {
    const withArgument = (value: unknown): unknown[] => {
      const args = kinds.map((_, at) => good[at]);
      args[index] = value;
      return args;
    };
    yield* attacksOf(parameter, kind, typeof good[index] === "object" ? good[index] : undefined, withArgument, rules);
  }
}

function* attacksOf(
  path: string,
  kind: Kind,
  good: object | null | undefined,
  args: (value: unknown) => unknown[],
  rules: Rules,
): Generator<Attack> {
  const own = typeof kind === "string" ? kind : kind.kind;
  if (own !== null && own !== "unchecked")
    for (const [name, value] of badValues(own))
      if (rules.isAttack(own, value)) yield { name: `${path}: ${name}`, args: args(value) };
  if (typeof kind === "string") return;
  if (rules.knowsOptions && isOptions(kind)) {
    const misspelt = { ...kind.good, ...good, misspelt: undefined };
    const says = [`must not have "misspelt": there is no such option`, ...Object.keys(kind.fields)];
    yield { name: `${path}: an option that does not exist`, args: args(misspelt), says };
  }
  for (const [field, fieldKind] of Object.entries(kind.fields)) {
    const withField = (value: unknown): unknown[] => args({ ...kind.good, ...good, [field]: value });
    yield* attacksOf(`${path}.${field}`, fieldKind, undefined, withField, rules);
  }
}

/** Returns what is wrong with a call; "" if it is refused as it should be. */
async function outcomeOf(rules: Rules, call: () => unknown, says: readonly string[] = []): Promise<string> {
  const { promise: hangs, resolve } = Promise.withResolvers<typeof HANGS>();
  const timer = setTimeout(resolve, HANGS_AFTER_MS, HANGS);
  try {
    const waited = await Promise.race([call(), hangs]);
    return waited === HANGS ? "does not settle" : "is accepted";
  } catch (error) {
    if (error instanceof PawlError || error instanceof PawlHttpError) {
      if (!rules.isRefusal(error.code)) return `is refused with ${error.code}`;
      return says.every((part) => error.message.includes(part)) ? "" : `is refused with "${error.message}"`;
    }
    return `throws ${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}`;
  } finally {
    clearTimeout(timer);
  }
}

const HANGS: unique symbol = Symbol("hangs");
/** A refusal takes no time, but a machine may stand still. */
const HANGS_AFTER_MS = 60_000;

interface Setting extends Stage {
  readonly database: MemoryDatabase;
  close(): Promise<void>;
}

async function staged(): Promise<Setting> {
  const database = new MemoryDatabase(wallMs);
  const pawl = await open({
    store: database.connect("default"),
    actions: { pepper: "p".repeat(32), keys: { current: "a", ring: { a: new Uint8Array(32).fill(1) } } },
  });
  const echo = workflow("echo", async (_ctx, input: unknown) => input);
  const light = machine("light", { initial: "red", transitions: { red: ["green"], green: [] }, initialData: 1 });
  const slot = pawl.slot<number>("there");
  await slot.set(1);
  await pawl.start(echo, 1, { id: "there", delay: "1 hour" });
  await pawl.machine(light).create("there");
  await pawl.actions.create({ id: "there", payload: 1 });
  // Not renewed while a test takes its time.
  await pawl.mutex("door", { lease: "1 hour" }).acquire();
  return { pawl, echo, light, slot, database, close: () => pawl.close() };
}

/** Everything that is stored, except one run. */
function stored({ database }: Setting, { isAside }: Rules, run?: string): readonly string[] {
  const rows = [...database.backup().namespaces.values()].flatMap(({ rows }) => [...rows.values()]);
  return rows
    .filter(({ space, key }) => !(space === "run" && key === run) && !isAside(space))
    .map(({ space, key, version }) => `${space} ${key} ${version}`)
    .sort();
}

const apply = (target: unknown, name: string, args: readonly unknown[]): unknown => {
  const method: unknown = Reflect.get(target as object, name);
  return Reflect.apply(method as () => unknown, target, args);
};

/** Functions of the module; a workflow is defined by its name or by options, so one of two parameters is left out. */
function applyFree(module: object, name: string, args: readonly unknown[]): unknown {
  return apply(module, name, name === "workflow" ? [args[1] ?? args[0], args[2]] : args);
}

/** What is attacked with what, and what counts as a refusal. */
export interface Rules {
  /** Whether an argument of this kind is attacked with this value. */
  isAttack(kind: string, value: unknown): boolean;
  /** Whether options are attacked with one that does not exist. */
  readonly knowsOptions: boolean;
  isRefusal(code: string): boolean;
  /** Whether a record of this space may be written by a call that is refused. */
  isAside(space: string): boolean;
}

/** Those of the library: everything bad is refused because of the argument, and leaves nothing at all. */
export const LIBRARY: Rules = {
  isAttack: () => true,
  knowsOptions: true,
  isRefusal: (code) => REFUSALS.has(code),
  isAside: () => false,
};

/** All attacks on one function, and what they found. */
export async function attack(
  module: object,
  owner: Owner,
  name: string,
  row: Row,
  rules: Rules = LIBRARY,
): Promise<string[]> {
  const setting = await staged();
  const found: string[] = [];
  const note = (attack: Attack, outcome: string): void => {
    if (outcome !== "") found.push(`${attack.name} ${outcome}`);
  };
  const written = (before: readonly string[], after: readonly string[]): void => {
    const left = after.filter((one) => !before.includes(one));
    if (left.length > 0) found.push(`wrote ${left.join(", ")}`);
  };
  const nothing = {} as { readonly tx: Tx; readonly ctx: Context };
  let before: readonly string[] = [];
  if (owner.where === "ctx") {
    const attacker = workflow("attacker", async (ctx) => {
      const on = await owner.on(setting, { ...nothing, ctx });
      before = stored(setting, rules, "attacker");
      for (const attack of attacksOn(row, setting, rules))
        note(attack, await outcomeOf(rules, () => apply(on, name, attack.args), attack.says));
      // The end of the run releases what it holds.
      written(before, stored(setting, rules, "attacker"));
    });
    setting.pawl.work([attacker], { warm: 0 });
    const run = await setting.pawl.start(attacker, undefined, { id: "attacker" });
    await run.result({ timeout: "30s" });
  } else {
    const on = owner.where === "plain" ? await owner.on(setting, nothing) : undefined;
    before = stored(setting, rules);
    for (const attack of attacksOn(row, setting, rules)) {
      const call = (): unknown => {
        if (owner.where === "plain")
          return on === undefined ? applyFree(module, name, attack.args) : apply(on, name, attack.args);
        return setting.pawl.transact((tx) => apply(owner.on(setting, { ...nothing, tx }), name, attack.args) as never);
      };
      note(attack, await outcomeOf(rules, call, attack.says));
    }
    written(before, stored(setting, rules));
  }
  await setting.close();
  return found;
}
