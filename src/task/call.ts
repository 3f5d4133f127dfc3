/**
 * One attempt at a call: the name is resolved once, every address is checked, and the request goes to the first of them.
 *
 * What comes of it is a value, also when it fails, and is recorded. When its time is over, the connection is closed and the attempt is over: what
 * comes later reaches nothing. Only an abort from outside (cancellation, a lost lease, shutdown) rejects: then nothing is recorded.
 */

import { InvalidArgumentError } from "../kernel/errors.ts";
import type { HttpClient, HttpReply } from "../kernel/http.ts";
import type { Clock } from "../kernel/ports.ts";
import { parseRetryAfter } from "./decide.ts";
import { InvalidTargetError, TargetForbiddenError } from "./errors.ts";
import type { StoredAttempt } from "./stored.ts";
import { type Allowed, checkTarget, hostOf, literalOf, refusalOf, refusalOfUrl } from "./target.ts";

/** What attempts need of this process. */
export interface Caller extends Allowed {
  readonly http: HttpClient;
  readonly clock: Clock;
  /** A longer response is cut off, and the attempt has failed. */
  readonly mostBytes: number;
}

export interface Call {
  readonly url: string;
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array | undefined;
  readonly timeoutMs: number;
  /** The store's clock, as well as it is known here. */
  nowMs(): number;
}

/** How much of a response is kept. */
const KEPT_BODY = 16 * 1024;
const KEPT_HEADERS = { count: 50, chars: 1000 };

export type Made = Omit<StoredAttempt, "number" | "fence">;

export async function makeCall(caller: Caller, call: Call, abortSignal: AbortSignal): Promise<Made> {
  const { clock } = caller;
  const atMs = call.nowMs();
  const beganMs = clock.nowMs();
  const over = new AbortController();
  let stop: (reason: unknown) => void = () => {};
  const abort = (): void => stop(abortSignal.reason);
  const cancel = clock.after(call.timeoutMs, () => stop(new TimedOut(call.timeoutMs)));
  const durationMs = (): number => Math.max(0, Math.round(clock.nowMs() - beganMs));
  try {
    const reply = await new Promise<HttpReply>((resolve, reject) => {
      stop = (reason) => {
        reject(reason);
        over.abort(reason);
      };
      if (abortSignal.aborted) abort();
      else abortSignal.addEventListener("abort", abort);
      send(caller, call, over.signal).then(resolve, reject);
    });
    return kept(reply, atMs, durationMs(), call.nowMs());
  } catch (error) {
    if (abortSignal.aborted) throw abortSignal.reason;
    return { atMs, durationMs: durationMs(), error: errorOf(error) };
  } finally {
    cancel();
    abortSignal.removeEventListener("abort", abort);
  }
}

async function send(caller: Caller, call: Call, abortSignal: AbortSignal): Promise<HttpReply> {
  const { http, mostBytes } = caller;
  // It was checked when the task was created, perhaps by another release.
  const url = checkTarget(call.url);
  const refusal = refusalOfUrl(url, caller);
  if (refusal !== undefined) throw new TargetForbiddenError(hostOf(url), refusal);
  // An address that the URL names itself was judged with it.
  const address = literalOf(url) ?? (await resolved(caller, url));
  abortSignal.throwIfAborted();
  const { method, headers, body } = call;
  return http.send({ url, address, method, headers, body, mostBytes, abortSignal });
}

/** The first address of a name, after all of them were checked. */
async function resolved({ http, allow }: Caller, { hostname }: URL): Promise<string> {
  const addresses = await http.resolve(hostname);
  for (const address of addresses) {
    const refusal = refusalOf(address, allow);
    if (refusal !== undefined) throw new TargetForbiddenError(hostname, `has the address ${address}, which ${refusal}`);
  }
  const [address] = addresses;
  if (address === undefined) throw new Error(`${hostname} has no address`);
  return address;
}

/** What is recorded of a reply. */
function kept(reply: HttpReply, atMs: number, durationMs: number, nowMs: number): Made {
  const { status, headers, body } = reply;
  const made = { atMs, durationMs, status, headers: keptHeaders(headers), body: textOf(body) };
  const isCut = reply.isCut || body.length > KEPT_BODY;
  const retryAfterMs = parseRetryAfter(headers["retry-after"], nowMs);
  if (!isCut && retryAfterMs === undefined) return made;
  return {
    ...made,
    ...(isCut ? { isCut } : {}),
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    ...(reply.isCut
      ? { error: { code: "body_too_large", message: `the response was longer than ${body.length} bytes` } }
      : {}),
  };
}

const WHOLE = new TextDecoder();

/** Bytes that are not UTF-8 are replaced; a character that the cut divides is left out. */
function textOf(body: Uint8Array): string {
  const text =
    body.length > KEPT_BODY
      ? new TextDecoder().decode(body.subarray(0, KEPT_BODY), { stream: true })
      : WHOLE.decode(body);
  return text.toWellFormed();
}

function keptHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  const some: Record<string, string> = {};
  for (const name of Object.keys(headers).slice(0, KEPT_HEADERS.count))
    some[name] = (headers[name] ?? "").slice(0, KEPT_HEADERS.chars).toWellFormed();
  return some;
}

class TimedOut extends Error {
  constructor(timeoutMs: number) {
    super(`there was no whole response within ${timeoutMs} ms`);
  }
}

function errorOf(error: unknown): { readonly code: string; readonly message: string } {
  if (error instanceof TimedOut) return { code: "timeout", message: error.message };
  if (
    error instanceof TargetForbiddenError ||
    error instanceof InvalidTargetError ||
    error instanceof InvalidArgumentError
  )
    return { code: error.code, message: error.message };
  return { code: "network", message: error instanceof Error ? messageOf(error) : String(error) };
}

/** An error of several connections has no message of its own. */
function messageOf(error: Error): string {
  const text = error.message !== "" ? error.message : ((error as NodeJS.ErrnoException).code ?? error.name);
  return text.slice(0, 500).toWellFormed();
}
