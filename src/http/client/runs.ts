/**
 * Runs over HTTP: the verbs of `pawl.start`, `pawl.run`, `pawl.runs`, `pawl.workflows` and `pawl.whyWaiting`.
 *
 * Definitions are used for their types and their names only. Where importing them would bring the code of the workflow along, as in a browser, `named`
 * makes one of a type: `client.start(named<typeof fulfil>("fulfil"), order)`.
 */

import type { Duration } from "../../kernel/check.ts";
import type { WithInput } from "../../workflow/definitions/context-types.ts";
import type { AnyWorkflow, Signal } from "../../workflow/definitions/definition.ts";
import type { PausedWorkflow } from "../../workflow/flow/paused.ts";
import type { WaitReason, WaitSubject } from "../../workflow/locks/why.ts";
import type {
  CanceledRun,
  CancelOptions,
  HistoryEntry,
  RetryRunOptions,
  RunInfo,
  RunListOptions,
  RunPage,
  SignalOptions,
  StartOptions,
} from "../../workflow/runs/run.ts";
import { msOf } from "./duration.ts";
import { invalidArgument, PawlHttpError } from "./errors.ts";
import { ABORTED, abortSignal, moment, nested, own, PAGE, plain, type Sendings, sent, value } from "./options.ts";
import { entriesOf, type Paged, paged } from "./pages.ts";
import { shown } from "./shapes.ts";
import { follow } from "./sse.ts";
import { path, sleep, type Transport } from "./transport.ts";
import { fromWire, toWire } from "./values.ts";

/** Less than what proxies allow a request to take. */
const POLL_MS = 25_000;
/** A server that has no place to wait responds immediately. */
const PAUSE_MS = 500;

/**
 * A definition by its type and name, for code that must not import it: `named<typeof fulfil>("fulfil")`. That of an event makes events, in the first shape and
 * without a schema's check. The compiler cannot compare the name with that of the definition, except where it is part of its type.
 */
export function named<Definition extends { readonly name: string }>(name: Definition["name"]): Definition {
  const make = (data?: unknown): ClientEventData => Object.freeze({ name, data });
  // Of an event, and of a signal that was received.
  const is = (
    given: { readonly name?: unknown; readonly ok?: unknown; readonly signal?: unknown } | undefined,
  ): boolean => given?.name === name || (given?.ok === true && given.signal === name);
  Object.defineProperty(make, "name", { value: name });
  return Object.assign(make, { is }) as unknown as Definition;
}

interface ClientEventData {
  readonly name: string;
  readonly data: unknown;
}

export type Named = string | { readonly name: string };

export function nameOf(given: Named, what: string): string {
  const name = typeof given === "string" ? given : given?.name;
  if (typeof name !== "string" || name === "") throw invalidArgument(what, "must be a definition or its name");
  return name;
}

const workflowName = (given: Named, name: string): unknown => plain(nameOf(given, "the workflow"), name);

const FILTER: Sendings<RunChange["filter"] & object> = {
  workflow: workflowName,
  status: plain,
  tag: plain,
  prefix: plain,
};
const LIST: Sendings<RunListOptions> = {
  ...PAGE,
  ...FILTER,
  startedAfter: moment,
  startedBefore: moment,
  endedAfter: moment,
  endedBefore: moment,
  order: plain,
};
const CHANGE: Sendings<RunChange> = {
  ...PAGE,
  action: plain,
  ids: plain,
  filter: nested(FILTER),
  all: plain,
  reason: plain,
};
const START: Sendings<StartOptions> = {
  id: plain,
  ifExists: plain,
  delay: plain,
  at: moment,
  priority: plain,
  ttl: plain,
  tags: plain,
};
const SIGNAL: Sendings<SignalOptions> = { id: plain };
const CANCEL: Sendings<CancelOptions> = { reason: plain, force: plain };
const RETRY: Sendings<RetryRunOptions> = { steps: plain };
const RESULT = { timeout: own, abortSignal };
const ANSWER = { done: plain, value };
const PAUSE = { reason: plain };
const SUBJECT: Sendings<WaitSubject> = { run: own, lock: own, kind: own, waiter: plain };

/** A value in a body; left out where it is undefined. */
export const valueIn = (name: string, value: unknown): Record<string, unknown> =>
  value === undefined ? {} : { [name]: toWire(value) };

/**
 * Waits in polls until one of them has a result, or the time is over. `poll` gets how long the server may wait, and returns undefined if there is
 * no result yet.
 */
export async function longPoll<T>(
  transport: Transport,
  timeoutMs: number,
  abortSignal: AbortSignal | undefined,
  poll: (waitMs: number) => Promise<T | undefined>,
): Promise<T | undefined> {
  const { platform } = transport;
  const untilMs = platform.runningMs() + timeoutMs;
  for (;;) {
    const sentMs = platform.runningMs();
    const found = await poll(Math.max(0, Math.min(POLL_MS, untilMs - sentMs)));
    if (found !== undefined) return found;
    const nowMs = platform.runningMs();
    if (nowMs >= untilMs) return undefined;
    const pauseMs = Math.min(untilMs - nowMs, PAUSE_MS - (nowMs - sentMs));
    if (pauseMs > 0) await sleep(platform, pauseMs, abortSignal);
  }
}

const showRun = (json: unknown): RunInfo => shown<RunInfo>(json, ["error"]);

/** A handle on one run. */
export class ClientRun<Output = unknown> {
  readonly id: string;
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport, id: string) {
    this.#transport = transport;
    this.id = id;
  }

  /**
   * Waits for the run to end and returns its result. Default: no timeout. Throws `run_failed`, `run_canceled`, `run_timed_out`, `run_expired`,
   * `run_parked`, `run_not_found`, or `result_timeout`.
   */
  async result(
    options: { readonly timeout?: Duration | undefined; readonly abortSignal?: AbortSignal | undefined } = {},
  ): Promise<Output> {
    sent(options, RESULT);
    const { timeout, abortSignal } = options;
    const timeoutMs = timeout === undefined ? Number.POSITIVE_INFINITY : msOf(timeout, "the timeout");
    const ended = await longPoll(this.#transport, timeoutMs, abortSignal, async (waitMs) => {
      const { status, json } = await this.#transport.send({
        method: "GET",
        path: path("runs", this.id, "result"),
        query: { wait: `${waitMs}ms` },
        waitMs,
        abortSignal,
      });
      return status === 202 ? undefined : { value: fromWire((json as { readonly value?: unknown }).value) };
    });
    if (ended !== undefined) return ended.value as Output;
    throw new PawlHttpError({
      status: 0,
      code: "result_timeout",
      message: `run "${this.id}" did not end within ${timeoutMs} ms`,
      data: { run: this.id, timeoutMs },
    });
  }

  /** Returns the run as it is now. Throws `run_not_found`. */
  async status(): Promise<RunInfo> {
    return showRun(await this.#transport.get(path("runs", this.id)));
  }

  /** Returns the facts of its history so far. Default: all. */
  async history(
    options: { readonly after?: number | undefined; readonly limit?: number | undefined } = {},
  ): Promise<readonly HistoryEntry[]> {
    return entriesOf(this.#transport, path("runs", this.id, "history"), options, Number.POSITIVE_INFINITY);
  }

  /** Follows its history: the facts so far, then each as it is recorded, until the run has ended or the signal aborts. */
  async *follow(options: { readonly abortSignal?: AbortSignal | undefined } = {}): AsyncGenerator<HistoryEntry> {
    sent(options, ABORTED);
    const request = { path: path("runs", this.id, "events") };
    for await (const { data } of follow(this.#transport, request, options.abortSignal)) {
      const entry = shown<HistoryEntry | { readonly status: string }>(data, ["data"]);
      // A fact has a version; what says that the run has ended has none.
      if (!("version" in entry)) return;
      yield entry;
    }
  }

  /** Sends a signal, by its definition or its name. It is kept until the run receives it. Throws `run_ended` for a run that has ended. */
  signal<Payload>(
    signal: Signal<Payload>,
    ...[payload, options]: WithInput<Payload, SignalOptions>
  ): Promise<{ readonly isNew: boolean }>;
  signal(signal: string, payload?: unknown, options?: SignalOptions): Promise<{ readonly isNew: boolean }>;
  async signal(signal: Named, payload?: unknown, options?: SignalOptions): Promise<{ readonly isNew: boolean }> {
    const body = {
      name: nameOf(signal, "the signal"),
      // Sent again after an unknown outcome, it counts once.
      id: this.#transport.platform.uuid(),
      ...sent(options, SIGNAL),
      ...valueIn("payload", payload),
    };
    const json = await this.#transport.post(path("runs", this.id, "signals"), body, true);
    return json as { readonly isNew: boolean };
  }

  /** Asks the run to stop; `result` settles when it has ended. With `force`, the run ends immediately. */
  async cancel(options?: CancelOptions): Promise<CanceledRun> {
    const body = sent(options, CANCEL);
    return shown<CanceledRun>(await this.#transport.post(path("runs", this.id, "cancel"), body, true));
  }

  /** Lets a run that failed or is parked continue. */
  async retry(options?: RetryRunOptions): Promise<void> {
    await this.#transport.post(path("runs", this.id, "retry"), sent(options, RETRY));
  }

  /** Resolves a step that runs at most once, for a run that is parked because its outcome is unknown; then the run resumes. */
  async resolveStep(
    step: string,
    answer: { readonly done: true; readonly value: unknown } | { readonly done: false },
  ): Promise<void> {
    const body = { ...sent(answer ?? null, ANSWER, "the answer"), step };
    await this.#transport.post(path("runs", this.id, "resolve"), body);
  }
}

export interface RunChange {
  readonly action: "cancel" | "retry" | "delete";
  /** Up to 1,000 runs. Not together with `filter`. */
  readonly ids?: readonly string[] | undefined;
  readonly filter?: Pick<RunListOptions, "workflow" | "status" | "tag" | "prefix"> | undefined;
  /** Must be true where the filter has no condition: all runs are changed then. */
  readonly all?: true | undefined;
  /** The `next` of the call before, with the same filter. */
  readonly after?: string | undefined;
  /** How many runs of the filter. Default: 100. */
  readonly limit?: number | undefined;
  /** Why they are canceled. */
  readonly reason?: string | undefined;
}

export interface ChangedRuns {
  readonly items: readonly {
    readonly id: string;
    readonly ok: boolean;
    readonly code?: string;
    readonly detail?: string;
  }[];
  readonly next: string | null;
}

/** What is done to all runs. */
export class ClientRuns {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Lists runs: awaited, a page; iterated, all of them. */
  list(options: RunListOptions = {}): Paged<RunPage, RunInfo> {
    return paged<RunPage, RunInfo>(
      async (after = options.after) => {
        const query = { ...sent(options, LIST), after };
        const json = await this.#transport.get(path("runs"), query);
        const page = json as { readonly items: readonly unknown[]; readonly next: string | null };
        return { runs: page.items.map(showRun), next: page.next };
      },
      ({ runs }) => runs,
    );
  }

  /**
   * Cancels, retries or deletes many runs: those with these ids, or one page of those that the filter lets through. What is refused for one run does
   * not stop the others.
   */
  async change(change: RunChange): Promise<ChangedRuns> {
    const body = sent(change, CHANGE, "the change");
    // A run that is canceled, retried or deleted already is left as it is.
    const request = { method: "POST", path: path("runs", "bulk"), body, isRepeatable: true } as const;
    return (await this.#transport.call(request)) as ChangedRuns;
  }

  /** Deletes a run that has ended. Throws `run_alive` and `run_not_found`. */
  async delete(id: string): Promise<void> {
    await this.#transport.call({ method: "DELETE", path: path("runs", id) });
  }

  /** @internal */
  async start(workflow: Named, input: unknown, options: StartOptions = {}): Promise<ClientRun> {
    const body = {
      workflow: nameOf(workflow, "the workflow"),
      ...valueIn("input", input),
      id: this.#transport.platform.uuid(),
      ...sent(options, START),
    };
    // The same id is the same run, unless that is what is refused or started again.
    const isRepeatable = (options.ifExists ?? "join") === "join";
    const json = await this.#transport.post(path("runs"), body, isRepeatable);
    return new ClientRun(this.#transport, (json as { readonly id: string }).id);
  }

  /** @internal */
  async whyWaiting(subject: WaitSubject): Promise<WaitReason> {
    const { waiter } = sent(subject ?? null, SUBJECT, "what to ask about") as { readonly waiter?: string };
    if ("run" in subject) return (await this.#transport.get(path("runs", subject.run, "why"))) as WaitReason;
    const { lock, kind = "mutex" } = subject;
    if (kind !== "mutex" && kind !== "semaphore")
      throw invalidArgument("the kind", 'must be "mutex" or "semaphore": a server has no locks of another kind');
    const of = path(kind === "semaphore" ? "semaphores" : "locks", lock, "why");
    return (await this.#transport.get(of, { waiter })) as WaitReason;
  }
}

/** Workflows whose runs do not begin for now. */
export class ClientWorkflows {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Lets no more runs of a workflow begin, in all processes. */
  async pause(workflow: string | AnyWorkflow, options?: { readonly reason?: string | undefined }): Promise<void> {
    await this.#change(workflow, "pause", sent(options, PAUSE));
  }

  /** Lets them begin again. Returns whether it was paused. */
  async resume(workflow: string | AnyWorkflow): Promise<boolean> {
    const json = await this.#change(workflow, "resume", undefined);
    return (json as { readonly wasPaused: boolean }).wasPaused;
  }

  /** Those that are paused. */
  async paused(): Promise<readonly PausedWorkflow[]> {
    const json = await this.#transport.get(path("workflows", "paused"));
    return shown<{ items: PausedWorkflow[] }>(json).items;
  }

  #change(workflow: Named, verb: string, body: unknown): Promise<unknown> {
    const at = path("workflows", nameOf(workflow, "the workflow"), verb);
    return this.#transport.post(at, body, true);
  }
}
