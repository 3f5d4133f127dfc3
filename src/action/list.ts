/**
 * Lists of actions, the newest first, in pages.
 *
 * Actions of an owner are found by the owner's own list of names. Without an owner, all actions are scanned. Some filters are on the
 * value, not on a column, so pages are read until enough actions match.
 */

import { checkCount, checkId, checkOptions, optionNames } from "../kernel/check.ts";
import type { Row } from "../kernel/contract.ts";
import { showReadable, type Unreadable } from "../kernel/encoding.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { type ActionInfo, showAction } from "./info.ts";
import { checkMoment } from "./options.ts";
import {
  ACTIONS,
  type ActionState,
  type ActionValue,
  actionAt,
  isOwnedKey,
  KIND,
  ownedBefore,
  ownerSpace,
  refOwned,
  STATUS_OF,
} from "./stored.ts";

export interface ActionListOptions {
  readonly owner?: string | undefined;
  readonly state?: ActionState | readonly ActionState[] | undefined;
  /** Only actions with this tag. */
  readonly tag?: string | undefined;
  /** Only actions created at this time or later. */
  readonly createdAfter?: Date | number | undefined;
  /** Only actions created before this time. */
  readonly createdBefore?: Date | number | undefined;
  /** The `next` of the page before, with the same options. */
  readonly after?: string | null | undefined;
  readonly limit?: number | undefined;
}

const LIST_OPTIONS = optionNames<ActionListOptions>({
  owner: true,
  state: true,
  tag: true,
  createdAfter: true,
  createdBefore: true,
  after: true,
  limit: true,
});

export interface ActionPage {
  readonly actions: readonly ActionInfo[];
  /** Actions in the scanned range that cannot be read, by their refs: written with another codec key, or damaged. */
  readonly unreadable: readonly Unreadable[];
  /** The `after` of the next page; null at the end. */
  readonly next: string | null;
}

/** One row, and the cursor to continue after it. */
interface ListedRow {
  readonly cursor: string;
  readonly row: Row;
}

/** The store's clock, without a lock. */
export async function clockOf(kernel: Kernel): Promise<number> {
  return (await kernel.due({ kinds: [KIND], limit: 1 })).nowMs;
}

export async function listActions(kernel: Kernel, options: ActionListOptions): Promise<ActionPage> {
  checkOptions(options, LIST_OPTIONS);
  const limit = checkCount(options.limit ?? 100, "the limit", 1000);
  const { tag, after = null } = options;
  const owner = options.owner === undefined ? undefined : checkId(options.owner, "the owner");
  if (tag !== undefined) checkId(tag, "the tag");
  const states = checkStates(options.state);
  const fromMs = checkMoment(options.createdAfter, "createdAfter") ?? 0;
  const untilMs = checkMoment(options.createdBefore, "createdBefore") ?? Number.POSITIVE_INFINITY;
  if (after !== null && typeof after !== "string")
    throw new InvalidArgumentError("after", "must be the `next` of a page with the same options");
  if (after !== null && !(owner === undefined ? /^\d{1,15}$/.test(after) : isOwnedKey(after)))
    throw new InvalidArgumentError("after", "must be the `next` of a page with the same options");
  const nowMs = await clockOf(kernel);
  const rows =
    owner === undefined
      ? allRows(kernel, { after, limit, statuses: states?.map((state) => STATUS_OF[state]) })
      : ownedRows(kernel, owner, { after, limit, fromMs, untilMs });
  const actions: ActionInfo[] = [];
  const unreadable: Unreadable[] = [];
  let next: string | null = null;
  let last: string | null = null;
  for await (const { cursor, row } of rows) {
    const read = showReadable([row], () => kernel.decodeFresh(row, row.value ?? "null") as ActionValue);
    const [action] = read.shown;
    if (action === undefined) {
      unreadable.push(...read.unreadable);
      continue;
    }
    if (action.createdAtMs < fromMs || action.createdAtMs >= untilMs) continue;
    if (tag !== undefined && action.request.tags?.includes(tag) !== true) continue;
    const info = showAction(row.key, action, row, nowMs);
    if (states?.includes(info.state) === false) continue;
    if (actions.length === limit) {
      next = last;
      break;
    }
    actions.push(info);
    last = cursor;
  }
  return { actions, unreadable, next };
}

function checkStates(state: ActionListOptions["state"]): readonly ActionState[] | undefined {
  if (state === undefined) return undefined;
  const states = typeof state === "string" ? [state] : state;
  const known = Object.keys(STATUS_OF);
  if (!Array.isArray(states) || !states.every((one) => known.includes(one)))
    throw new InvalidArgumentError("the state", `must be one of ${known.join(", ")}`);
  return states;
}

interface Range {
  readonly after: string | null;
  readonly limit: number;
}

async function* allRows(
  kernel: Kernel,
  { after, limit, statuses }: Range & { readonly statuses: readonly string[] | undefined },
): AsyncGenerator<ListedRow> {
  for (let from = after; ; ) {
    const query = { space: ACTIONS, prefix: "", order: "newest", after: from, limit: limit + 1, statuses } as const;
    const rows = await kernel.list(query);
    for (const row of rows) {
      from = String(row.id);
      yield { cursor: from, row };
    }
    if (rows.length <= limit) return;
  }
}

async function* ownedRows(
  kernel: Kernel,
  owner: string,
  { after, limit, fromMs, untilMs }: Range & { readonly fromMs: number; readonly untilMs: number },
): AsyncGenerator<ListedRow> {
  const space = ownerSpace(owner);
  const first = Number.isFinite(untilMs) ? ownedBefore(untilMs) : null;
  // Actions that are too new come first in the order, and are skipped.
  let from = first !== null && (after === null || after < first) ? first : after;
  const end = ownedBefore(fromMs);
  for (;;) {
    const names = await kernel.list({ space, prefix: "", after: from, limit: limit + 1 });
    const rows = await kernel.read(names.map(({ key }) => actionAt(refOwned(key))));
    for (const [i, { key }] of names.entries()) {
      from = key;
      if (key > end) return;
      const row = rows[i];
      if (row != null && row.value !== null) yield { cursor: key, row };
    }
    if (names.length <= limit) return;
  }
}
