/**
 * Closing a stream: a tombstone, the archive, the removal of the events, and the restart with an opening event, if there is one.
 *
 * Each step that `decide.ts` asks for is a commit here, which leaves in the stream's value what the next one needs. A call that was interrupted is repeated
 * with the same arguments, and does the rest.
 *
 * Guarantees: no event follows a tombstone until the restart, also in a race (the check is under the record's lock). Versions continue after a restart.
 */

import type { Address } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { Origin } from "../../kernel/origin.ts";
import { pause } from "../../kernel/ports.ts";
import { ConcurrencyError, StreamInUseError, StreamNotFoundError } from "../errors.ts";
import type { NewEvent } from "../event.ts";
import { SubjectForgottenError } from "../personal/errors.ts";
import { putAside } from "../reactions/routing.ts";
import { deadAt, reactionAt } from "../reactions/stored.ts";
import { toEntries, writeEntries } from "../records.ts";
import { CLOSED_EVENT, type StoredEvent, type StreamValue, statusOf } from "../stored.ts";
import { type Archive, archiveOf, canReadArchive } from "./archive.ts";
import { type CloseRequest, decideClose, type StreamState, withRemoved, withTombstone } from "./decide.ts";
import { PAGE, readStreamValue } from "./entries.ts";
import { checkNotNeeded, type EventAt, routersOf, unrouted } from "./needs.ts";
import { markRemoved, passEvents, removeEvents } from "./removing.ts";

export interface ClosedStream {
  /** The version of the tombstone. */
  readonly version: number;
  /** How many events were archived. */
  readonly archived: number;
  /** The version of the opening event, if the stream was restarted. */
  readonly restartedAt?: number;
}

/** What the commits of a closing write. */
export interface Closing extends CloseRequest {
  readonly archive: Archive | undefined;
  readonly opening: NewEvent | undefined;
  /** Of the tombstone and of the opening event. */
  readonly origin: Origin;
  readonly reason: string | undefined;
  readonly isForced: boolean;
}

/**
 * How often a closing begins again because events were appended before the tombstone. After that the tombstone is written wherever the stream ends, and
 * reactions may have to handle the last events before they are removed.
 */
const MOST_ROUNDS = 5;

export async function closeStream(kernel: Kernel, at: Address, closing: Closing): Promise<ClosedStream> {
  let isRehearsed = false;
  for (let round = 1, tombstone: number | undefined; ; ) {
    const state = await readStreamValue(kernel, at);
    const step = decideClose(state, { ...closing, tombstone });
    if (!isRehearsed && closing.opening !== undefined && (step.is === "close" || step.is === "archive")) {
      await orStaysClosed(state, at, () => rehearse(kernel, at, closing.opening as NewEvent, closing));
      isRehearsed = true;
    }
    switch (step.is) {
      case "missing":
        throw new StreamNotFoundError(at.key);
      case "conflict":
        throw new ConcurrencyError(at.key, closing.expectedVersion ?? tombstone ?? 0, state?.head ?? 0);
      case "close": {
        const head = state?.head ?? 0;
        if (!closing.isForced) await checkNotNeeded(kernel, at, head);
        const isAnywhere = closing.expectedVersion === undefined && round > MOST_ROUNDS;
        tombstone = await writeTombstone(kernel, at, isAnywhere ? undefined : head, closing);
        round += 1;
        break;
      }
      case "archive":
        tombstone = step.version;
        await archiveEvents(kernel, at, step, closing);
        break;
      case "remove": {
        const { version, archived } = step;
        tombstone = version;
        await removeEvents(kernel, at, version - 1);
        if (closing.opening === undefined) return { version, archived };
        await orStaysClosed(state, at, () => restartStream(kernel, at, version, closing.opening as NewEvent, closing));
        break;
      }
      case "restarted": {
        const { version, archived, restartedAt } = step;
        return { version, archived, restartedAt };
      }
    }
  }
}

/** Returns the version of the tombstone; undefined, with nothing written, if the stream has moved on since it was looked at. */
function writeTombstone(
  kernel: Kernel,
  at: Address,
  head: number | undefined,
  closing: Closing,
): Promise<number | undefined> {
  const { origin, reason } = closing;
  const { actor, correlationId, causationId } = origin;
  return kernel.transact(
    (tx) => {
      const record = tx.record(at);
      const value = record.value as StreamValue | undefined;
      if (value === undefined || value.closed !== undefined || record.head !== (head ?? record.head)) return undefined;
      const tombstone: StoredEvent = {
        id: tx.uuid(),
        data: reason === undefined ? {} : { reason },
        ...(actor === undefined ? {} : { actor }),
        ...(correlationId === undefined ? {} : { correlation: correlationId }),
        ...(causationId === undefined ? {} : { causation: causationId }),
      };
      const version = record.append(CLOSED_EVENT, tombstone, { isFollowed: true });
      const closed = withTombstone(value, version);
      record.write({ value: closed, status: statusOf(closed) });
      return version;
    },
    [at],
  );
}

async function archiveEvents(
  kernel: Kernel,
  at: Address,
  range: { readonly version: number; readonly from: number; readonly to: number },
  closing: Closing,
): Promise<void> {
  const { version, to } = range;
  const passed = await passEvents(kernel, at, range, closing.archive);
  // Another call has archived and removed them meanwhile.
  if (passed === undefined) return;
  if (closing.isForced) await putUnroutedAside(kernel, at, to, closing);
  else await untilNotNeeded(kernel, at, to, closing);
  const { archived, position } = passed;
  await markRemoved(kernel, at, ({ value }) => {
    const { closed } = value;
    if (closed?.version !== version || closed.archived !== undefined) return undefined;
    return {
      value: { ...withRemoved(value, version, passed), closed: { ...closed, archived } },
      removedUpTo: position,
    };
  });
}

/**
 * Archiving may have taken long: a reaction may have been reset or have begun since, or a projection is built again. The stream is closed by now, so this does
 * not refuse, but waits for them. A projection that is being built reads the events from the archive, where it can. Throws `stream_in_use` with
 * `isClosed` where they do not come to an end.
 */
async function untilNotNeeded(kernel: Kernel, at: Address, upTo: number, { archive }: Closing): Promise<void> {
  const { clock } = kernel.ports;
  const giveUpAtMs = clock.nowMs() + kernel.patienceMs;
  const isReadable = archive !== undefined && archive === archiveOf(kernel) && canReadArchive(kernel);
  for (let waitMs = 10; ; waitMs = Math.min(2 * waitMs, 1_000))
    try {
      return await checkNotNeeded(kernel, at, upTo, { isClosed: true, areBuilt: !isReadable });
    } catch (error) {
      if (!(error instanceof StreamInUseError) || clock.nowMs() >= giveUpAtMs) throw error;
      await pause(clock, waitMs);
    }
}

/** Events that reactions have not routed become dead letters, so that none is left out silently. */
async function putUnroutedAside(
  kernel: Kernel,
  at: Address,
  upTo: number,
  { origin: { actor }, reason }: Closing,
): Promise<void> {
  const why = {
    message: "its stream was closed by force before it was routed",
    ...(actor === undefined ? {} : { actor }),
    ...(reason === undefined ? {} : { reason }),
  };
  let page: { readonly reaction: string; readonly event: EventAt }[] = [];
  const write = async (): Promise<void> => {
    const byReaction = Map.groupBy(page, ({ reaction }) => reaction);
    const records = [
      ...Array.from(byReaction.keys(), reactionAt),
      ...page.map(({ reaction, event }) => deadAt(reaction, at.key, event.version)),
    ];
    await kernel.transact((tx) => {
      for (const [reaction, found] of byReaction) {
        const events = found.map(({ event }) => event);
        putAside(tx, reaction, at.key, events, why);
      }
    }, records);
    page = [];
  };
  for await (const found of unrouted(kernel, at, upTo, await routersOf(kernel))) {
    page.push(found);
    if (page.length === PAGE) await write();
  }
  if (page.length > 0) await write();
}

/** Throws what the restart would throw, while the stream has all of its events: too large a value, a person who was forgotten, keys that are missing. */
async function rehearse(kernel: Kernel, at: Address, opening: NewEvent, { origin }: Closing): Promise<void> {
  const rehearsed = new Error("nothing is written");
  const decide = (tx: Tx): never => {
    toEntries(tx, tx.record(at), [opening], origin);
    throw rehearsed;
  };
  try {
    await kernel.mending(() => kernel.transact(decide, [at]));
  } catch (error) {
    if (error !== rehearsed) throw error;
  }
}

async function restartStream(
  kernel: Kernel,
  at: Address,
  tombstone: number,
  opening: NewEvent,
  { restart, origin }: Closing,
): Promise<void> {
  const reopen = (tx: Tx): void => {
    const record = tx.record(at);
    const { closed, ...value } = (record.value ?? {}) as StreamValue;
    if (closed?.version !== tombstone) return;
    const { version, archived = 0 } = closed;
    const restarted = { version, archived, at: record.head + 1, hash: restart ?? "" };
    const open: StreamValue = { ...value, restarted };
    record.write({ value: open, status: statusOf(open) });
    writeEntries(record, toEntries(tx, record, [opening], origin));
  };
  await kernel.mending(() => kernel.transact(reopen, [at]));
}

/** A person may be forgotten while the events are archived: then the opening event is refused, and the stream is closed already. */
async function orStaysClosed(state: StreamState | undefined, at: Address, act: () => Promise<void>): Promise<void> {
  try {
    await act();
  } catch (error) {
    if (!(error instanceof SubjectForgottenError) || state?.value.closed === undefined) throw error;
    throw new SubjectForgottenError(error.data.subject, at.key);
  }
}
