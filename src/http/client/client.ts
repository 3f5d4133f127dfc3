/**
 * The client: the verbs of a `Pawl` over HTTP, with the same names and types, on `fetch` alone.
 *
 * It has no code of the library and nothing of Node, so it runs in Node, Deno, Bun, browsers and edge runtimes. What needs code on this side of the wire is not
 * in it: decisions (`transact`), workers (`work`), definitions. Verbs that take a decision in the library take none here.
 *
 * Every call that changes something carries an `Idempotency-Key` of its own and is sent again when the connection fails, the server is busy or restarts
 * (`decide.ts`), so that a restart of the server is not an error here as long as it takes less than `patience`.
 *
 * Guarantees: a call that is sent again has one effect, as long as the server keeps its key (G2); no call takes longer than `patience`, plus what it
 * was asked to wait for, plus one attempt.
 */

import type { DedupeOptions } from "../../idempotency/dedupe.ts";
import type { Duration } from "../../kernel/check.ts";
import type { AcquireOptions, LockOptions, SemaphoreOptions } from "../../lock/options.ts";
import type { Machine } from "../../machine/definition.ts";
import type { RateLimitOptions } from "../../rate/rate.ts";
import type { WithInput } from "../../workflow/definitions/context-types.ts";
import type { CheckedInput, Workflow } from "../../workflow/definitions/definition.ts";
import type { WaitReason, WaitSubject } from "../../workflow/locks/why.ts";
import type { StartOptions } from "../../workflow/runs/run.ts";
import { platform } from "../platform/platform.ts";
import { ClientActions } from "./actions.ts";
import { msOf } from "./duration.ts";
import { invalidArgument } from "./errors.ts";
import { ClientKeys } from "./keys.ts";
import { ACQUIRE, type ClientHold, ClientLock, LOCK } from "./locks.ts";
import { ClientMachine } from "./machines.ts";
import { abortSignal, own, plain, type Sendings, sent } from "./options.ts";
import { ClientProjection, ClientProjections } from "./projections.ts";
import { ClientRateLimit } from "./rates.ts";
import { ClientReactions } from "./reactions.ts";
import { ClientRun, ClientRuns, ClientWorkflows, type Named } from "./runs.ts";
import { ClientSchedules } from "./schedules.ts";
import { ClientSlot, ClientSlots } from "./slots.ts";
import { ClientEvents, ClientStream } from "./streams.ts";
import { ClientTasks } from "./tasks.ts";
import { path, Transport } from "./transport.ts";

export interface ClientOptions {
  /** Where the server is, with the prefix of a mount if there is one: "https://pawl.example.com". */
  readonly url: string | URL;
  /** The API key. Default: none, for a server without keys. */
  readonly key?: string | undefined;
  /** Sends the requests. Default: the global `fetch`. */
  readonly fetch?: ((url: string, init: RequestInit) => Promise<Response>) | undefined;
  /** How long a call is sent again while the server is unreachable or busy. 0 sends each once. Default: 1 min. */
  readonly patience?: Duration | undefined;
  /** When an attempt without a response is given up. Default: 30 s, and longer where the server is asked to wait. */
  readonly attemptTimeout?: Duration | undefined;
  /** Ends all calls. */
  readonly abortSignal?: AbortSignal | undefined;
}

/** What may differ between calls. */
export interface CallOptions {
  /** Ends the calls. */
  readonly abortSignal?: AbortSignal | undefined;
  readonly patience?: Duration | undefined;
}

const CALL: Sendings<CallOptions> = { patience: own, abortSignal };
const OPTIONS: Sendings<ClientOptions> = { url: own, key: own, fetch: own, attemptTimeout: own, ...CALL };
const INITIAL = { initial: own };
const LOCK_ACQUIRE: Sendings<AcquireOptions & LockOptions> = { ...LOCK, ...ACQUIRE };
const DEDUPE: Sendings<DedupeOptions> = { ttl: plain };

/** `fetch` leaves out what is around the value of a header. */
const KEY = /^[\t\n\r ]*[\x21-\x7e]*[\t\n\r ]*$/;

/** Longer than the lease of an idempotency key, which the call that a killed server had begun keeps. */
const PATIENCE = "1 min";
const ATTEMPT = "30s";

/** Makes a client. It opens no connection, and needs no closing. */
export function createClient(options: ClientOptions): Client {
  sent(options ?? null, OPTIONS);
  const { key, fetch = platform.fetch, patience = PATIENCE, attemptTimeout = ATTEMPT, abortSignal } = options;
  // What no header can have is refused here: the message of `fetch` would show the key.
  if (key !== undefined && !(typeof key === "string" && KEY.test(key)))
    throw invalidArgument("the key", "must be a string of visible ASCII characters: was it copied as a whole?");
  if (typeof fetch !== "function") throw invalidArgument("fetch", "must be a function");
  const transport = new Transport({
    url: checkUrl(options.url),
    key,
    fetch,
    platform,
    patienceMs: msOf(patience, "the patience"),
    attemptMs: msOf(attemptTimeout, "the attemptTimeout"),
    abortSignal,
  });
  return new Client(transport);
}

/** Without a slash at the end. A key in the address would end up in logs. */
function checkUrl(given: string | URL): string {
  let url: URL;
  try {
    url = new URL(given);
  } catch {
    throw invalidArgument("the url", "must be an address such as https://pawl.example.com");
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") throw invalidArgument("the url", "must begin with http");
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "")
    throw invalidArgument("the url", "must have no user, query or fragment");
  return `${url.origin}${url.pathname.replace(/\/+$/, "")}`;
}

export class Client {
  readonly #transport: Transport;
  /** All runs. */
  readonly runs: ClientRuns;
  /** Workflows whose runs do not begin for now. */
  readonly workflows: ClientWorkflows;
  /** All slots. */
  readonly slots: ClientSlots;
  /** HTTP calls that are made until they succeed. */
  readonly tasks: ClientTasks;
  /** One-time actions. */
  readonly actions: ClientActions;
  /** The events of all streams. */
  readonly events: ClientEvents;
  /** What reactions are doing, and how to change that. */
  readonly reactions: ClientReactions;
  /** All projections, and what they are doing. */
  readonly projections: ClientProjections;
  readonly schedules: ClientSchedules;
  /** API keys. */
  readonly keys: ClientKeys;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
    this.runs = new ClientRuns(transport);
    this.workflows = new ClientWorkflows(transport);
    this.slots = new ClientSlots(transport);
    this.tasks = new ClientTasks(transport);
    this.actions = new ClientActions(transport);
    this.events = new ClientEvents(transport);
    this.reactions = new ClientReactions(transport);
    this.projections = new ClientProjections(transport);
    this.schedules = new ClientSchedules(transport);
    this.keys = new ClientKeys(transport);
  }

  /** Returns a client whose calls end with this signal, or have another patience. */
  using(options: CallOptions): Client {
    sent(options, CALL);
    return new Client(this.#transport.with(options));
  }

  /**
   * Starts a run. The same id again is the same run. A workflow can be given by its name. Its schema is not applied: the input is what its function gets.
   */
  start<Input, Output, Checked = never>(
    workflow: Workflow<Input, Output, Checked>,
    ...rest: WithInput<CheckedInput<Input, Checked>, StartOptions>
  ): Promise<ClientRun<Output>>;
  start(workflow: string, input?: unknown, options?: StartOptions): Promise<ClientRun>;
  start(workflow: Named, input?: unknown, options?: StartOptions): Promise<ClientRun> {
    return this.runs.start(workflow, input, options);
  }

  /** Returns a handle on a run. With the workflow, its result has a type; the server does not check that the run is one of that workflow. */
  run<Output>(workflow: Workflow<never, Output>, id: string): ClientRun<Output>;
  run(workflow: string, id: string): ClientRun;
  run(id: string): ClientRun;
  run(...given: [id: string] | [workflow: Named, id: string]): ClientRun {
    return new ClientRun(this.#transport, given.length === 1 ? given[0] : given[1]);
  }

  /** Says why a run, or a waiter for a lock, does not continue. */
  whyWaiting(subject: WaitSubject): Promise<WaitReason> {
    return this.runs.whyWaiting(subject);
  }

  /** Returns a handle on one shared value. With `initial`, that is its value until something is stored. */
  slot<T>(name: string, options: { readonly initial: T }): ClientSlot<T, never>;
  slot<T>(name: string): ClientSlot<T>;
  slot<T>(name: string, options?: { readonly initial?: T }): ClientSlot<T, undefined> {
    sent(options, INITIAL);
    return new ClientSlot<T, undefined>(this.#transport, name, options?.initial);
  }

  /**
   * Runs the function while the lock is held, and releases it however the function ends. The lease is renewed meanwhile; pass the fence on to what
   * the lock protects.
   */
  async lock<T>(
    name: string,
    work: (hold: ClientHold) => T | PromiseLike<T>,
    options: AcquireOptions & LockOptions = {},
  ): Promise<Awaited<T>> {
    sent(options, LOCK_ACQUIRE);
    const { lease, ...acquiring } = options;
    return this.mutex(name, { lease }).with(work, acquiring);
  }

  /** A lock with one holder at a time. */
  mutex(name: string, options: LockOptions = {}): ClientLock {
    return new ClientLock(this.#transport, ["locks", name], options);
  }

  /** A lock that at most `permits` hold at the same time. Default: as many as were declared. */
  semaphore(name: string, options: SemaphoreOptions = {}): ClientLock {
    return new ClientLock(this.#transport, ["semaphores", name], options);
  }

  /** A handle on a rate limit. The figures that were used last count, in all processes. */
  rateLimit(name: string, options: RateLimitOptions): ClientRateLimit {
    return new ClientRateLimit(this.#transport, name, options);
  }

  /** Returns a handle on the instances of a machine that the server knows, by its definition or its name. */
  machine<State extends string, Data, Given>(machine: Machine<State, Data, Given>): ClientMachine<State, Data, Given>;
  machine(machine: string): ClientMachine;
  machine(machine: Named): ClientMachine {
    return new ClientMachine(this.#transport, machine);
  }

  /** Returns a handle on a projection by its name: what it is doing, and how to build it again. Its rows are not served. */
  projection(projection: string): ClientProjection {
    return new ClientProjection(this.#transport, projection);
  }

  /** Returns a handle on a stream, whether it has events or not. */
  stream(id: string): ClientStream {
    return new ClientStream(this.#transport, id);
  }

  /**
   * Marks a message as handled by a consumer, and says whether it was before. The mark is one commit and the effect, which is the caller's, is none of it: a caller
   * that dies in between has a message that is marked and was not handled. Where that matters, make the effect idempotent by the message's id.
   */
  async dedupe(
    consumer: string,
    messageId: string,
    options?: DedupeOptions,
  ): Promise<{ readonly deduplicated: boolean }> {
    const request = {
      method: "POST",
      path: path("dedupe", consumer),
      body: { messageId, ...sent(options, DEDUPE) },
    } as const;
    return (await this.#transport.call(request)) as { readonly deduplicated: boolean };
  }
}
