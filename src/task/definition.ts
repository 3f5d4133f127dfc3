/**
 * `httpTasks()`, which makes a process call the targets of tasks, and `httpTask`, the workflow whose runs tasks are.
 *
 * The workflow has the same name and the same limits in every process. What a process adds by working on it, its secrets and the addresses
 * that it may call, is bound to the code when it begins to work (`worker.ts`).
 */

import { checkCount, checkList, checkObject, checkOptions, optionNames } from "../kernel/check.ts";
import { PawlError } from "../kernel/errors.ts";
import { hash } from "../kernel/fingerprint.ts";
import type { StandardSchema } from "../kernel/schema.ts";
import {
  type Body,
  builtInWorkflow,
  type Definition,
  internalWorkflow,
  type Workflow,
} from "../workflow/definitions/definition.ts";
import type { Flow, OfInput } from "../workflow/definitions/flow.ts";
import { ownLimit } from "../workflow/definitions/flow.ts";
import { checkRetention, type Retention, type RetentionPolicy } from "../workflow/definitions/retention.ts";
import { DEFAULT_RETRY } from "./decide.ts";
import { checkTaskRequest, REQUEST_OPTIONS, type TaskRequest } from "./options.ts";
import type { TaskResponse } from "./outcome.ts";
import { checkSecrets, type SigningKeys, type WebhookSecret } from "./signing.ts";
import { DELIVERIES, type DeliveryInput, TASKS, type TaskInput } from "./stored.ts";
import { type Allowed, parsePorts, parseRanges } from "./target.ts";

export interface HttpTasksOptions {
  /**
   * What calls are signed with, as Standard Webhooks describes it: "whsec_" and base64, or bytes. Several are for rotation: each call has
   * a signature of each of them. Default: calls are not signed.
   */
  readonly secrets?: WebhookSecret | readonly WebhookSecret[] | undefined;
  /**
   * Private ranges that may be called, as in ["10.0.0.0/8"]. Default: none. Addresses of this machine, of private networks and of clouds' metadata
   * services are refused otherwise.
   */
  readonly allow?: readonly string[] | undefined;
  /** Ports that may be called although they are those of a database or another service that trusts its network, as in [9200]. Default: none. */
  readonly allowPorts?: readonly number[] | undefined;
  /** A longer response is cut off there, and the attempt has failed. Default: 1 MiB. */
  readonly maxResponseBytes?: number | undefined;
  /** How long tasks are kept after they have ended, as for a workflow. Default: as `open` says, otherwise forever. */
  readonly retention?: Retention | undefined;
}

const OPTIONS = optionNames<HttpTasksOptions>({
  secrets: true,
  allow: true,
  allowPorts: true,
  maxResponseBytes: true,
  retention: true,
});

/** This process calls the targets of tasks: for `pawl.work`. */
export interface HttpTasks {
  readonly name: string;
}

/** What a process needs to call targets. */
export interface TaskSettings extends Allowed {
  readonly keys: SigningKeys;
  readonly mostBytes: number;
  readonly retention: RetentionPolicy;
}

const settings = new WeakMap<object, TaskSettings>();
const RESPONSE_BYTES = 1024 * 1024;
const MOST_RESPONSE_BYTES = 64 * 1024 * 1024;

/** Makes a process call the targets of tasks: `pawl.work([httpTasks({ secrets, allow })])`. */
export function httpTasks(options: HttpTasksOptions = {}): HttpTasks {
  checkOptions(options ?? null, OPTIONS);
  const { secrets, allow = [], allowPorts = [], maxResponseBytes = RESPONSE_BYTES, retention } = options;
  checkList(allow, "allow");
  const defined: HttpTasks = Object.freeze({ name: TASKS });
  settings.set(defined, {
    keys: checkSecrets(secrets),
    allow: parseRanges(allow, "allow"),
    allowPorts: parsePorts(allowPorts, "allowPorts"),
    mostBytes: checkCount(maxResponseBytes, "maxResponseBytes", MOST_RESPONSE_BYTES),
    retention: checkRetention(retention, "the retention"),
  });
  return defined;
}

/** What `httpTasks` was given; undefined for anything else. @internal */
export const taskSettings = (definition: unknown): TaskSettings | undefined =>
  typeof definition === "object" && definition !== null ? settings.get(definition) : undefined;

/** The request as it is stored: a schedule and a workflow give it as `pawl.tasks.create` takes it. */
export function inputOf(given: unknown): TaskInput {
  checkObject(given, "the task");
  if ("url" in given) return given as TaskInput;
  checkOptions(given, REQUEST_OPTIONS, "the task");
  return checkTaskRequest(given as TaskRequest);
}

/** What is given from outside is always a request: the form in which it is stored has passed these checks. */
const REQUEST_SCHEMA: StandardSchema<unknown, TaskInput> = {
  "~standard": {
    version: 1,
    vendor: "pawl",
    validate(value) {
      try {
        checkObject(value, "the task");
        checkOptions(value, REQUEST_OPTIONS, "the task");
        return { value: checkTaskRequest(value as TaskRequest) };
      } catch (error) {
        if (error instanceof PawlError) return { issues: [{ message: error.message }] };
        throw error;
      }
    },
  },
};

/** The limits that a task names itself. */
function limitsOfTask(given: unknown): OfInput {
  const { concurrency, rateLimit } = inputOf(given);
  return {
    places:
      concurrency === undefined
        ? []
        : [{ ref: [ownLimit(TASKS, true), concurrency.key], max: concurrency.max, excess: "queue" }],
    rates:
      rateLimit === undefined
        ? []
        : [
            {
              name: `workflow:${TASKS}:${hash(rateLimit.key)}`,
              figures: { max: rateLimit.max, per: rateLimit.perMs },
            },
          ],
  };
}

/** The notifications of a task are sent one after the other. */
const limitsOfDelivery = (given: unknown): OfInput => ({
  places: [{ ref: [ownLimit(DELIVERIES, true), hash((given as DeliveryInput).task)], max: 1, excess: "queue" }],
  rates: [],
});

const flowOf = (workflow: string, ofInput: (input: unknown) => OfInput): Flow => ({
  workflow,
  limits: [],
  fairness: undefined,
  pools: undefined,
  rates: [],
  collect: undefined,
  priority: undefined,
  ttlMs: null,
  ofInput,
});

const FLOWS = { [TASKS]: flowOf(TASKS, limitsOfTask), [DELIVERIES]: flowOf(DELIVERIES, limitsOfDelivery) };

/** Nothing in this code ends its process: a task is never parked because its worker was killed during an attempt, however often. */
const MAX_TRIES = 1_000_000_000;
const GRACE_MS = 60_000;

/** The definition of one of the two workflows. */
export const definitionFor = (
  name: typeof TASKS | typeof DELIVERIES,
  body: Body<unknown, unknown>,
  retention: RetentionPolicy = {},
): Definition => ({
  name,
  body,
  input: name === TASKS ? (REQUEST_SCHEMA as StandardSchema) : undefined,
  output: undefined,
  retry: { ...DEFAULT_RETRY, attempts: 1, when: undefined },
  timeoutMs: null,
  graceMs: GRACE_MS,
  maxTries: MAX_TRIES,
  retention,
  flow: FLOWS[name],
});

/** Its code is in the processes that work on `httpTasks()`. */
const elsewhere: Body<unknown, unknown> = () => {
  throw new Error("a task needs httpTasks()");
};

/**
 * The workflow whose runs are tasks, `pawl.task` by name: for a schedule, `schedule("hourly", { cron: "0 * * * *" }, httpTask, { targetUrl })`, and for `ctx.call` in
 * the code of another workflow. Its runs are made by processes that work on `httpTasks()`.
 */
export const httpTask = builtInWorkflow(definitionFor(TASKS, elsewhere)) as Workflow<TaskRequest, HttpTaskResult>;

/** What a task that needs no signal returns to the workflow that called it. */
export interface HttpTaskResult {
  readonly by: "response" | "signal";
  readonly value?: TaskResponse;
}

/** The workflow whose runs are notifications. */
export const delivery = internalWorkflow(definitionFor(DELIVERIES, elsewhere));
