/**
 * The options of the app, checked and with their defaults.
 */

import type { BlockList } from "node:net";
import {
  checkCount,
  checkFunction,
  checkId,
  checkList,
  checkOptions,
  type Duration,
  optionNames,
} from "../../kernel/check.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import { checkLogger, Log, type Logger } from "../../kernel/log.ts";
import type { Clock } from "../../kernel/ports.ts";
import type { Machine } from "../../machine/definition.ts";
import { checkFigures } from "../../rate/rate.ts";
import { proxyList } from "./addresses.ts";
import type { RunMetrics } from "./counts.ts";
import type { ServedPawl } from "./handle.ts";

/** Limits of requests. */
export interface ServerLimits {
  /** The longest body, in bytes. Default: 1 MiB. */
  readonly bodyBytes?: number | undefined;
  /** The deepest nesting of a body. Default: 64. */
  readonly depth?: number | undefined;
  /** The most members that the objects and arrays of a body may have together. Default: 50,000. */
  readonly members?: number | undefined;
  /** Requests of each API key; `false` for no limit. Default: 1,000 per second. */
  readonly requests?: { readonly max: number; readonly per: Duration } | false | undefined;
  /** Requests of each address without a valid API key; `false` for no limit. Default: 100 per 10 s. */
  readonly keyless?: { readonly max: number; readonly per: Duration } | false | undefined;
  /** Requests that wait for something at the same time: long polls and event streams, shared by namespaces. Default: 1,000. */
  readonly waiting?: number | undefined;
  /** The most of them that one API key may have, so that it cannot keep others from waiting. Default: a quarter of `waiting`. */
  readonly waitingPerKey?: number | undefined;
  /**
   * What all event streams together may hold for clients that have not read it, in bytes, beside one chunk: beyond it the slowest client of the
   * namespace that holds the most is disconnected. Default: 64 MiB.
   */
  readonly unreadBytes?: number | undefined;
}

export interface AppOptions {
  /** Returns the handle of another namespace than that of `pawl`, for keys of it, and for signals whose token or query names it, which need no key; undefined if it has none. Default: keys of other namespaces are refused. */
  readonly namespaces?: ((namespace: string) => ServedPawl | undefined | Promise<ServedPawl | undefined>) | undefined;
  /** "none" lets everyone do everything, for a server that only its machine can reach. Default: "required". */
  readonly keys?: "required" | "none" | undefined;
  readonly limits?: ServerLimits | undefined;
  /**
   * Addresses or networks ("10.0.0.0/8") of proxies, whose `X-Forwarded-For` is believed: requests without a valid key are limited for each
   * address. Default: none.
   */
  readonly trustedProxies?: readonly string[] | undefined;
  /**
   * The path at which the app is mounted, such as "/pawl": for links, for `Location`, and for requests that still have it. Default: none, for an app that is
   * not mounted.
   */
  readonly prefix?: string | undefined;
  /** State machines whose instances can be used over HTTP. Default: none. */
  readonly machines?: readonly { readonly name: string }[] | undefined;
  /** What `runMetrics()` returned, and the workers of this process got as `on`: its counts are in `/metrics`, too. */
  readonly metrics?: RunMetrics | undefined;
  /** Where lines go about errors that clients do not see. `false` for none. Default: stderr. */
  readonly logger?: Logger | false | undefined;
}

/** The names of the options. */
export const APP_OPTIONS = optionNames<AppOptions>({
  namespaces: true,
  keys: true,
  limits: true,
  trustedProxies: true,
  prefix: true,
  machines: true,
  metrics: true,
  logger: true,
});
const LIMITS = optionNames<ServerLimits>({
  bodyBytes: true,
  depth: true,
  members: true,
  requests: true,
  keyless: true,
  waiting: true,
  waitingPerKey: true,
  unreadBytes: true,
});

export interface Settings {
  readonly namespaces: (namespace: string) => ServedPawl | undefined | Promise<ServedPawl | undefined>;
  readonly hasKeys: boolean;
  readonly bodyBytes: number;
  readonly depth: number;
  readonly members: number;
  readonly requests: { readonly max: number; readonly per: Duration } | undefined;
  readonly keyless: { readonly max: number; readonly perMs: number } | undefined;
  readonly waiting: number;
  readonly waitingPerKey: number;
  readonly unreadBytes: number;
  readonly prefix: string;
  readonly proxies: BlockList;
  readonly machines: ReadonlyMap<string, Machine>;
  readonly metrics: RunMetrics | undefined;
  readonly log: Log | undefined;
}

export function checkApp(options: AppOptions, clock: Clock): Settings {
  checkOptions(options, APP_OPTIONS);
  const { keys = "required", limits = {}, logger, machines = [], namespaces, prefix = "", trustedProxies } = options;
  checkOptions(limits, LIMITS, "the limits");
  if (keys !== "required" && keys !== "none") throw new InvalidArgumentError("keys", 'must be "required" or "none"');
  if (namespaces !== undefined) checkFunction(namespaces, "namespaces");
  if (options.metrics !== undefined) checkFunction(options.metrics, "metrics");
  if (trustedProxies !== undefined) checkList(trustedProxies, "the trusted proxies");
  for (const proxy of trustedProxies ?? []) checkId(proxy, "a trusted proxy");
  const proxies = proxyList(trustedProxies ?? []);
  checkList(machines, "the machines");
  const { requests = { max: 1000, per: "1s" }, keyless = { max: 100, per: "10s" } } = limits;
  if (requests !== false) checkFigures(checkedFigures(requests, "requests"), "requests: ");
  const waiting = checkCount(limits.waiting ?? 1000, "waiting", 1_000_000);
  return {
    namespaces: namespaces ?? (() => undefined),
    hasKeys: keys === "required",
    bodyBytes: checkCount(limits.bodyBytes ?? 2 ** 20, "bodyBytes", 2 ** 30),
    depth: checkCount(limits.depth ?? 64, "the depth", 1000),
    members: checkCount(limits.members ?? 50_000, "the members", 10_000_000),
    requests: requests === false ? undefined : { max: requests.max, per: requests.per },
    keyless: keyless === false ? undefined : keylessOf(keyless),
    waiting,
    waitingPerKey: checkCount(limits.waitingPerKey ?? Math.ceil(waiting / 4), "waitingPerKey", 1_000_000),
    unreadBytes: checkCount(limits.unreadBytes ?? 64 * 2 ** 20, "unreadBytes", 2 ** 40),
    prefix: checkPath(prefix),
    proxies,
    machines: new Map(machines.map((machine) => [checkId(machine?.name, "the machine"), machine as Machine])),
    metrics: options.metrics,
    log: logOf(checkLogger(logger), clock),
  };
}

function keylessOf(given: { readonly max: number; readonly per: Duration }): { max: number; perMs: number } {
  const { max, perMs } = checkFigures(checkedFigures(given, "keyless"), "keyless: ");
  return { max, perMs };
}

const FIGURES = optionNames<{ max: unknown; per: unknown }>({ max: true, per: true });

function checkedFigures<T>(given: T, what: string): T {
  checkOptions(given ?? null, FIGURES, what);
  return given;
}

function checkPath(prefix: unknown): string {
  if (prefix === "") return "";
  if (typeof prefix !== "string" || !/^(?:\/[A-Za-z0-9._~-]+)+$/.test(prefix))
    throw new InvalidArgumentError("the prefix", 'must be a path such as "/pawl", without a slash at its end');
  return prefix;
}

function logOf(logger: Logger | false | undefined, clock: Clock): Log | undefined {
  return logger === false ? undefined : new Log(logger ?? STDERR, clock, logger === undefined);
}

const STDERR: Logger = {
  warn: (message) => void process.stderr.write(`${message}\n`),
  error: (message) => void process.stderr.write(`${message}\n`),
};
