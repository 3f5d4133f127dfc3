/**
 * Locks and semaphores, for programs in other languages: `pawl.mutex`, `pawl.semaphore`.
 *
 * What `acquire` returns is a grant for the length of a lease, which the client renews; no process of the server renews it. The grant is the ticket of the
 * hold, so it is shown to operators only.
 */

import { z } from "@hono/zod-openapi";
import { checkId, checkLease } from "../../../kernel/check.ts";
import { LockBusyError, LockLostError } from "../../../lock/errors.ts";
import type { LockInfo, LockParty } from "../../../lock/inspect.ts";
import { leave, renew } from "../../../lock/line.ts";
import type { Lock } from "../../../lock/lock.ts";
import { type LockRef, lockAt, lockOf, shownLock } from "../../../lock/stored.ts";
import { runHooks } from "../../../workflow/locks/locks.ts";
import type { Caller } from "../auth.ts";
import { kernelOf, type ServedVerbs } from "../handle.ts";
import { idSchema } from "../ids.ts";
import { mayDo } from "../keys/decide.ts";
import { given, pageOf, pageQuery, readEntries } from "../pages.ts";
import { Problem, STATUS_OF } from "../problem.ts";
import { add, type Routing } from "../route.ts";
import { anyValue, count, duration, list, text, time, timeOrNull } from "../schemas.ts";
import { toWire } from "../values.ts";
import { longPoll } from "../wait.ts";
import { Why } from "./why.ts";

const LEASE = "30s";

/** Over HTTP one waits with `wait`. */
const busy = (name: string): Problem =>
  new Problem(
    STATUS_OF.lock_busy,
    "lock_busy",
    `${name} is held by another, or another waits for it: give "wait", or more of it, or try again later`,
    { data: { name } },
  );

const Party = {
  ticket: z.string().optional().openapi({ description: "Only with the scope `operate`: it is the grant." }),
  by: z.string().nullable(),
  run: z.string().nullable(),
  mode: z.enum(["exclusive", "shared"]),
  since: time,
  until: timeOrNull,
};

const Info = z
  .object({
    name: z.string(),
    kind: z.string(),
    permits: z.number().int().nullable(),
    holders: list(z.object({ ...Party, fence: z.number().int() })),
    waiting: z.number().int(),
    waiters: list(z.object(Party)),
  })
  .openapi("Lock");

const Grant = z
  .object({
    grant: z.string().openapi({ description: "Renews and releases the hold." }),
    fence: z.number().int().openapi({ description: "Above the fences of all earlier holders." }),
    expiresAt: time,
  })
  .openapi("LockGrant");

const Renewed = z.object({ fence: z.number().int(), expiresAt: time }).openapi("RenewedLock");

const Entry = z
  .object({ version: z.number().int(), name: z.string(), at: time, data: anyValue.optional() })
  .openapi("LockEntry");

const TICKET = "0b9f0b62-3f5c-4b4e-9df0-1c2b3a4d5e6f";
const grant = idSchema("What `acquire` returned.", TICKET);
const lease = duration.optional().openapi({ description: "From 10 ms to 24 hours. Default: 30 s." });

export function locks(routing: Routing): void {
  addLocks(routing, "mutex", "locks", "Lock");
  addLocks(routing, "semaphore", "semaphores", "Semaphore");
}

function addLocks(routing: Routing, kind: "mutex" | "semaphore", tag: string, called: string): void {
  const name = idSchema(`The name of the ${kind}.`, "account/42");
  const params = { name };
  const path = `/v1/${tag}/{name}`;
  const isMutex = kind === "mutex";
  const handleOn = (
    pawl: ServedVerbs,
    lock: string,
    options: { lease?: number | string; permits?: number } = {},
  ): Lock => {
    if (!isMutex) return pawl.semaphore(lock, options);
    const { permits: _, ...rest } = options;
    return pawl.mutex(lock, rest);
  };
  const refOf = (lock: string): LockRef => ({ kind, name: checkId(lock, "the lock's name") });

  /** The end of a hold by the store's clock. */
  const endOf = async ({ root }: Caller, ref: LockRef, ticket: string): Promise<Date> => {
    const at = lockAt(ref);
    const kernel = kernelOf(root);
    const [row] = await kernel.read([at]);
    const value = row?.value == null ? undefined : lockOf(kernel.decode(row, row.value));
    const untilMs = value?.holders.find((one) => one.ticket === ticket)?.untilMs;
    if (untilMs == null) throw new LockBusyError(shownLock(ref));
    return new Date(untilMs);
  };

  add(routing, {
    method: "get",
    path,
    tag,
    operation: `get${called}`,
    summary: `Says who holds a ${kind}, and who waits for it`,
    scope: "read",
    params,
    query: { limit: pageQuery.limit },
    returns: { 200: Info },
    refuses: ["invalid_id"],
    handle: async (call) => {
      const info = await handleOn(call.pawl, call.params.name).inspect(given(call.query));
      return { status: 200, json: mayDo(call, "operate") ? info : withoutTickets(info) };
    },
  });

  add(routing, {
    method: "post",
    path: `${path}/acquire`,
    tag,
    operation: `acquire${called}`,
    summary: `Acquires a ${kind} for the length of a lease, and waits for it if asked to`,
    description:
      "Without `wait` it never waits. A caller that was not served within `wait` has left the line. The response has the grant, and the fence to pass on to what the lock protects.",
    scope: "write",
    params,
    body: z.strictObject({
      lease,
      wait: duration.optional().openapi({ description: "At most 60 s. Default: 0." }),
      by: idSchema("Who asks, for `get`.", "nightly-report").optional(),
      ...(isMutex ? {} : { permits: z.number().optional().openapi({ type: "integer", minimum: 1 }) }),
    }),
    returns: { 200: Grant },
    refuses: ["lock_busy", "lock_removed", "permits_undeclared", "invalid_id", "invalid_duration", "invalid_argument"],
    handle: async (call) => {
      const { wait = 0, by, ...options } = call.body as AcquireBody;
      const { name } = call.params;
      const lock = handleOn(call.pawl, name, given(options));
      const got = await longPoll(call, wait, "lock_timeout", async ({ timeout, abortSignal }) => {
        if (timeout > 0) return lock.acquire(given({ by, timeout, abortSignal }));
        const tried = await lock.tryAcquire(given({ by }));
        return tried.ok ? tried.hold : undefined;
      });
      const hold = got.isThere ? got.value : undefined;
      if (hold === undefined) throw busy(shownLock(refOf(name)));
      // From now on the client renews it.
      hold.drop();
      const { ticket, fence } = hold;
      return { status: 200, json: { grant: ticket, fence, expiresAt: await endOf(call, refOf(name), ticket) } };
    },
  });

  add(routing, {
    method: "post",
    path: `${path}/renew`,
    tag,
    operation: `renew${called}`,
    summary: "Renews the lease of a grant, from now on",
    scope: "write",
    params,
    body: z.strictObject({ grant, lease }),
    returns: { 200: Renewed },
    refuses: ["lock_lost", "invalid_id", "invalid_duration"],
    handle: async (call) => {
      const { grant, lease = LEASE } = call.body;
      const ticket = checkId(grant, "the grant");
      const ref = refOf(call.params.name);
      const leaseMs = checkLease(lease, "the lease");
      const at = lockAt(ref);
      const holder = await kernelOf(call.root).transact(
        (tx) => {
          if (!renew(tx, runHooks, [ref], ticket, leaseMs)) return undefined;
          return lockOf(tx.record(at).value).holders.find((one) => one.ticket === ticket);
        },
        [at],
      );
      if (holder?.untilMs == null) throw new LockLostError(shownLock(ref), holder?.fence ?? 0);
      return { status: 200, json: { fence: holder.fence, expiresAt: new Date(holder.untilMs) } };
    },
  });

  add(routing, {
    method: "post",
    path: `${path}/release`,
    tag,
    operation: `release${called}`,
    summary: "Releases a grant; the same commit grants the lock to the first in line",
    scope: "write",
    params,
    body: z.strictObject({ grant }),
    returns: { 200: z.object({ released: z.boolean() }).openapi("ReleasedLock") },
    refuses: ["invalid_id"],
    handle: async (call) => {
      const ref = refOf(call.params.name);
      const ticket = checkId(call.body.grant, "the grant");
      const at = lockAt(ref);
      const left = await kernelOf(call.root).transact((tx) => leave(tx, runHooks, [ref], ticket), [at]);
      return { status: 200, json: left };
    },
  });

  add(routing, {
    method: "post",
    path: `${path}/force-release`,
    tag,
    operation: `forceRelease${called}`,
    summary: "Releases it for one holder, or for all, with an entry in its history",
    scope: "operate",
    params,
    body: z.strictObject({
      reason: text,
      ticket: z.string().optional().openapi({ description: "Default: all holders." }),
    }),
    returns: { 200: z.object({ released: z.number().int() }).openapi("ForcedLock") },
    refuses: ["invalid_id"],
    handle: async (call) => {
      const by = call.keyId === null ? "http" : `key:${call.keyId}`;
      const released = await handleOn(call.pawl, call.params.name).forceRelease({ by, ...given(call.body) });
      return { status: 200, json: released };
    },
  });

  add(routing, {
    method: "get",
    path: `${path}/history`,
    tag,
    operation: `get${called}History`,
    summary: "Lists forced releases, removed waiters and changed permits",
    scope: "operate",
    params,
    query: {
      limit: pageQuery.limit,
      after: count(Number.MAX_SAFE_INTEGER, "The version to continue after.").optional(),
    },
    returns: { 200: pageOf(Entry).openapi(`${called}History`) },
    refuses: ["invalid_id"],
    handle: async ({ pawl, params, query }) => {
      const lock = handleOn(pawl, params.name);
      const page = await readEntries(query, async (part) => {
        const entries = await lock.history(part);
        return entries.map((entry, i) => ({ ...entry, version: part.after + i + 1, data: toWire(entry.data) }));
      });
      return { status: 200, json: page };
    },
  });

  add(routing, {
    method: "get",
    path: `${path}/why`,
    tag,
    operation: `why${called}Waits`,
    summary: `Says why a ${kind} is not free`,
    scope: "read",
    params,
    query: { waiter: idSchema("The ticket of one who waits, to ask about it.", TICKET).optional() },
    returns: { 200: Why },
    refuses: ["invalid_id"],
    handle: async ({ pawl, params, query }) => ({
      status: 200,
      json: await pawl.whyWaiting(given({ lock: params.name, kind, waiter: query.waiter })),
    }),
  });
}

interface AcquireBody {
  readonly lease?: number | string | undefined;
  readonly wait?: number | string | undefined;
  readonly by?: string | undefined;
  readonly permits?: number | undefined;
}

function withoutTickets({ holders, waiters, ...info }: LockInfo) {
  const hide = <Party extends LockParty>({ ticket: _, ...party }: Party) => party;
  return { ...info, holders: holders.map(hide), waiters: waiters.map(hide) };
}
