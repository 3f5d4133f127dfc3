/**
 * A backend on anything that has the verbs of the library: a `Pawl` on a store, or a client of a server, which has the same names. So no command is written twice.
 *
 * What only one of them has is given as `Own`.
 */

import { ActionNotFoundError } from "../action/errors.ts";
import type { ActionListOptions, ActionPage } from "../action/list.ts";
import { type ActionTarget, refOfTarget } from "../action/options.ts";
import type { ClientLockInfo } from "../http/client/index.ts";
import type { Scope } from "../http/server/keys/decide.ts";
import type { ApiKeyEntry, ApiKeyInfo, CreatedApiKey } from "../http/server/keys/keys.ts";
import type { LockEvent } from "../lock/lock.ts";
import type { Pawl } from "../pawl.ts";
import { ScheduleNotFoundError } from "../schedule/errors.ts";
import type { ScheduleHistoryPage, SchedulePage, Schedules } from "../schedule/schedules.ts";
import type { SlotListOptions, SlotPage } from "../slot/slot.ts";
import { StreamNotFoundError } from "../stream/errors.ts";
import type { StreamEvent } from "../stream/event.ts";
import type { ProjectionOperations } from "../stream/projections/projections.ts";
import type { Projections } from "../stream/projections/status.ts";
import type { DeadLetterInfo, Reactions, TargetListOptions, TargetPage } from "../stream/reactions/reactions.ts";
import type { TaskOptions } from "../task/options.ts";
import type { RedriveFilter, TaskListOptions, TaskPage, Tasks } from "../task/tasks.ts";
import { type Signal, signal } from "../workflow/definitions/definition.ts";
import type { WaitReason, WaitSubject } from "../workflow/locks/why.ts";
import type { Run, RunListOptions, RunPage, SignalOptions, StartOptions } from "../workflow/runs/run.ts";
import type { Backend, Intervention, LockName } from "./backend.ts";
import { type Plain, plain as plainOf } from "./values.ts";

/** A lock, as operators see it. */
export interface OperatedLock {
  inspect(): Promise<Omit<ClientLockInfo, "kind">>;
  history(): Promise<readonly LockEvent[]>;
  forceRelease(who: Intervention): Promise<{ readonly released: number }>;
}

interface DeadLetters {
  readonly letters: readonly DeadLetterInfo[];
  readonly next: string | null;
}

/** The verbs that both have. */
export interface Verbs {
  start(workflow: string, input?: unknown, options?: StartOptions): Promise<{ readonly id: string }>;
  run(id: string): Pick<Run, "status" | "history" | "cancel" | "retry" | "resolveStep"> & {
    signal(signal: Signal<unknown>, payload: unknown, options?: SignalOptions): Promise<{ readonly isNew: boolean }>;
    result(options?: { readonly timeout?: number }): Promise<unknown>;
  };
  readonly runs: { list(options?: RunListOptions): PromiseLike<RunPage>; delete(id: string): Promise<void> };
  readonly workflows: Pick<Pawl["workflows"], "pause" | "resume" | "paused">;
  whyWaiting(subject: WaitSubject): Promise<WaitReason>;
  readonly schedules: Pick<Schedules, "get" | "preview" | "pause" | "resume" | "trigger" | "delete"> & {
    list(options?: {
      readonly prefix?: string | undefined;
      readonly after?: string | undefined;
      readonly limit?: number | undefined;
    }): PromiseLike<SchedulePage>;
    history(name: string, options: { readonly limit: number }): PromiseLike<ScheduleHistoryPage>;
  };
  readonly slots: { list(options?: SlotListOptions): PromiseLike<SlotPage> };
  stream(id: string): {
    read(options: {
      readonly from?: number | "kept" | undefined;
      readonly backwards?: boolean | undefined;
    }): AsyncGenerator<StreamEvent>;
    head(): Promise<number>;
  };
  readonly reactions: Pick<
    Reactions,
    "list" | "get" | "unblock" | "reset" | "prioritize" | "pause" | "resume" | "redrive"
  > & {
    targets(reaction: string, options?: TargetListOptions): PromiseLike<TargetPage>;
    deadLetters(
      reaction: string,
      options?: { readonly after?: string | undefined; readonly limit?: number | undefined },
    ): PromiseLike<DeadLetters>;
    skip(
      reaction: string,
      target: string,
      who: { readonly actor: string | undefined; readonly reason: string },
    ): Promise<DeadLetterInfo>;
  };
  readonly projections: Pick<Projections, "list">;
  projection(name: string): Pick<ProjectionOperations, "status" | "rebuild" | "delete">;
  readonly actions: {
    list(options?: ActionListOptions): PromiseLike<ActionPage>;
    get(target: ActionTarget): ReturnType<Pawl["actions"]["get"]>;
    history(target: ActionTarget): ReturnType<Pawl["actions"]["history"]>;
    cancel(
      target: ActionTarget,
      who: { readonly by?: string | undefined; readonly reason?: string | undefined },
    ): Promise<unknown>;
  };
  readonly tasks: Pick<
    Tasks,
    "create" | "get" | "cancel" | "signal" | "redrive" | "redriveAll" | "attempts" | "deliveries"
  > & {
    list(options?: TaskListOptions): PromiseLike<TaskPage>;
  };
}

/** API keys; who does it is known to a server by the key that it is asked with. */
export interface Keys {
  create(request: {
    readonly name: string;
    readonly scopes: readonly Scope[];
    readonly namespace?: string | undefined;
    readonly expiresAt?: number | undefined;
    readonly by?: string | undefined;
  }): Promise<CreatedApiKey>;
  list(options: {
    readonly namespace?: string | undefined;
    readonly after?: string | undefined;
    readonly limit: number;
  }): PromiseLike<{ readonly keys: readonly ApiKeyInfo[]; readonly next: string | null }>;
  get(id: string): Promise<ApiKeyInfo>;
  rotate(
    id: string,
    options: { readonly grace?: string | undefined; readonly by?: string | undefined },
  ): Promise<CreatedApiKey>;
  revoke(id: string, options: { readonly by?: string | undefined }): Promise<ApiKeyInfo>;
  history(id: string): Promise<readonly ApiKeyEntry[]>;
}

/** What differs between a store and a server. */
export interface Own {
  readonly place: string;
  readonly keys: Keys;
  readonly lock: (lock: LockName) => OperatedLock;
  readonly listLocks: Backend["locks"]["list"];
  readonly listStreams: Backend["streams"]["list"];
  readonly exportStreams: Backend["streams"]["export"];
  /** A value of the user in the form that it has over HTTP: both know it by what they use in place of forgotten data. */
  readonly toWire: (value: unknown) => unknown;
  /** Where an error was thrown; a server does not send it. */
  readonly framesOf: (error: unknown) => string | undefined;
  readonly close: () => Promise<void>;
}

/** The prefix by which an action is named by its ref, as lists show those whose ids only their creators know. */
const REF = "ref:";

const targetOf = (action: string): string | { readonly ref: string } =>
  action.startsWith(REF) ? { ref: action.slice(REF.length) } : action;

export function backendOn(pawl: Verbs, own: Own): Backend {
  const plain = <T>(result: T, ...values: readonly string[]): Plain<T> => plainOf(result, own.toWire, values);
  return {
    place: own.place,
    runs: {
      list: async ({ status, order, ...filter }) => {
        const page = await pawl.runs.list({
          ...filter,
          ...({ status, order } as Pick<RunListOptions, "status" | "order">),
        });
        return { items: plain(page.runs, "error"), next: page.next };
      },
      get: async (id) => {
        const info = await pawl.run(id).status();
        const stack = own.framesOf(info.error);
        return { ...plain(info, "error"), ...(stack === undefined ? {} : { stack }) };
      },
      history: async (id, options) => plain(await pawl.run(id).history(options), "data"),
      start: async ({ workflow, input, ...options }) => ({ id: (await pawl.start(workflow, input, options)).id }),
      signal: (id, { name, payload, id: signalId }) =>
        pawl.run(id).signal(signal<unknown>(name), payload, { id: signalId }),
      cancel: async (id, options) => plain(await pawl.run(id).cancel(options)),
      retry: (id, options) => pawl.run(id).retry(options),
      resolve: (id, step, answer) => pawl.run(id).resolveStep(step, answer),
      delete: (id) => pawl.runs.delete(id),
      result: async (id, { timeoutMs }) =>
        plain({ result: await pawl.run(id).result({ timeout: timeoutMs }) }, "result").result,
    },
    workflows: {
      paused: async () => plain(await pawl.workflows.paused()),
      pause: (name, reason) => pawl.workflows.pause(name, { reason }),
      resume: (name) => pawl.workflows.resume(name),
    },
    why: (subject) => pawl.whyWaiting(subject),
    locks: {
      list: own.listLocks,
      get: async (lock) => ({ ...plain(await own.lock(lock).inspect()), kind: lock.kind }),
      history: async (lock) => plain(await own.lock(lock).history(), "data"),
      forceRelease: (lock, who) => own.lock(lock).forceRelease(who),
    },
    schedules: {
      list: async (options) => {
        const { schedules, unreadable, next } = await pawl.schedules.list(options);
        return { items: plain(schedules), unreadable, next };
      },
      get: async (name) => {
        const found = await pawl.schedules.get(name);
        if (found === null) throw new ScheduleNotFoundError(name);
        return plain(found);
      },
      history: async (name, limit) => plain((await pawl.schedules.history(name, { limit })).entries),
      preview: async (name, count) => plain(await pawl.schedules.preview(name, { count })),
      pause: async (name, reason) => plain(await pawl.schedules.pause(name, { reason })),
      resume: async (name) => plain(await pawl.schedules.resume(name)),
      trigger: (name) => pawl.schedules.trigger(name),
      delete: (name) => pawl.schedules.delete(name),
    },
    streams: {
      list: own.listStreams,
      read: async (id, { from, backwards, limit }) => {
        const stream = pawl.stream(id);
        const events: unknown[] = [];
        for await (const event of stream.read({ from: from ?? (backwards ? undefined : "kept"), backwards })) {
          events.push(plain(event, "data"));
          if (events.length === limit) break;
        }
        if (events.length === 0 && (await stream.head()) === 0) throw new StreamNotFoundError(id);
        return events as Awaited<ReturnType<Backend["streams"]["read"]>>;
      },
      export: own.exportStreams,
    },
    slots: {
      list: async (options) => {
        const { slots, unreadable, next } = await pawl.slots.list(options);
        return { items: plain(slots, "value"), unreadable, next };
      },
    },
    reactions: {
      list: async () => plain(await pawl.reactions.list()),
      targets: async (reaction, options) => {
        // Throws for a reaction that no worker knows.
        await pawl.reactions.get(reaction);
        const { targets, next } = await pawl.reactions.targets(reaction, options);
        return { items: plain(targets), next };
      },
      change: async (verb, reaction, filter) => {
        await pawl.reactions.get(reaction);
        return pawl.reactions[verb](reaction, filter);
      },
      skip: async (reaction, target, who) => plain(await pawl.reactions.skip(reaction, target, who)),
      pause: (reaction) => pawl.reactions.pause(reaction),
      resume: (reaction) => pawl.reactions.resume(reaction),
      deadLetters: async (reaction, options) => {
        await pawl.reactions.get(reaction);
        const { letters, next } = await pawl.reactions.deadLetters(reaction, options);
        return { items: plain(letters), next };
      },
      redrive: (reaction, letter) => pawl.reactions.redrive(reaction, letter),
    },
    projections: {
      list: async () => plain(await pawl.projections.list()),
      get: async (name) => ({ name, ...plain(await pawl.projection(name).status()) }),
      rebuild: (name, options) => pawl.projection(name).rebuild(options),
      delete: (name) => pawl.projection(name).delete(),
    },
    actions: {
      list: async ({ state, ...options }) => {
        const { actions, unreadable, next } = await pawl.actions.list({
          ...options,
          ...(state === undefined ? {} : ({ state } as ActionListOptions)),
        });
        return { items: plain(actions), unreadable, next };
      },
      get: async (action) => {
        const target = targetOf(action);
        const found = await pawl.actions.get(target);
        if (found === null)
          throw new ActionNotFoundError({ id: typeof target === "string" ? target : null, ref: refOfTarget(target) });
        return plain(found);
      },
      history: async (action) => plain(await pawl.actions.history(targetOf(action)), "data"),
      cancel: async (action, who) => void (await pawl.actions.cancel(targetOf(action), who)),
    },
    tasks: {
      list: async ({ status, order, ...filter }) => {
        const options = { ...filter, ...({ status, order } as Pick<TaskListOptions, "status" | "order">) };
        const { tasks, unreadable, next } = await pawl.tasks.list(options);
        return { items: plain(tasks, "value"), unreadable, next };
      },
      get: async (id) => plain(await pawl.tasks.get(id), "value"),
      create: async (request) => plain(await pawl.tasks.create(request as TaskOptions), "value"),
      signal: async (token, outcome) => plain(await pawl.tasks.signal(token, outcome), "value"),
      cancel: async (id, reason) => plain(await pawl.tasks.cancel(id, { reason }), "value"),
      redrive: async (id) => plain(await pawl.tasks.redrive(id), "value"),
      redriveAll: (filter) => pawl.tasks.redriveAll(filter as RedriveFilter),
      attempts: async (id) => plain(await pawl.tasks.attempts(id)),
      deliveries: async (id) => plain(await pawl.tasks.deliveries(id)),
    },
    keys: {
      create: async ({ scopes, ...request }) =>
        plain(await own.keys.create({ ...request, scopes: scopes as readonly Scope[] })),
      list: async (options) => {
        const { keys, next } = await own.keys.list(options);
        return { items: plain(keys), next };
      },
      get: async (id) => plain(await own.keys.get(id)),
      rotate: async (id, options) => plain(await own.keys.rotate(id, options)),
      revoke: async (id, by) => plain(await own.keys.revoke(id, { by })),
      history: async (id) => plain(await own.keys.history(id)),
    },
    close: own.close,
  };
}
