/**
 * Forgetting a person: `pawl.forget`, and `pawl.forgotten` for those who were.
 *
 * The first commit destroys the key and leaves who asked for it, when and why; from then on no personal event of the subject can be appended, so the
 * list of its streams is complete. Then the folded states of these streams are dropped, some streams in each commit, and projections that may have
 * personal data begin to be built again. If the process ends in between, any worker finishes it, and so does the same call again.
 */

import type { Queue } from "../../kernel/capability.ts";
import {
  checkCount,
  checkDate,
  checkId,
  checkList,
  checkObject,
  checkOptions,
  checkText,
  optionNames,
} from "../../kernel/check.ts";
import type { Row } from "../../kernel/contract.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { refreshAll } from "../projections/generations.ts";
import { type StreamValue, streamAt } from "../stored.ts";
import { decideForget, type ForgetRequest, withoutFolds } from "./decide.ts";
import {
  FORGETTING,
  FORGOTTEN_STATUS,
  SUBJECTS,
  type SubjectValue,
  streamOfAt,
  streamsOf,
  subjectAt,
} from "./stored.ts";
import type { Subjects } from "./subjects.ts";

export interface ForgetOptions {
  /** Who asks for it, and why: kept with the subject. Default of the actor: that of the handle (`pawl.with`). */
  readonly actor?: string | undefined;
  readonly reason?: string | undefined;
}

export interface ForgetResult {
  readonly forgotten: true;
  /** When it was forgotten first. */
  readonly at: Date;
  /**
   * Whether it had a key when it was forgotten first. False for a subject that never had a personal event in this store, as where its id is misspelled: nothing
   * of anyone was forgotten then. That id is forgotten all the same.
   */
  readonly hadKey: boolean;
}

/** A person who was forgotten. */
export interface ForgottenSubject {
  readonly subject: string;
  readonly at: Date;
  readonly actor: string | null;
  readonly reason: string | null;
}

export interface ForgottenListOptions {
  /** `next` of the page before. */
  readonly after?: string | undefined;
  /** Default: 100. */
  readonly limit?: number | undefined;
}

export interface ForgottenPage {
  readonly subjects: readonly ForgottenSubject[];
  readonly next: string | null;
}

const FORGET_OPTIONS = optionNames<ForgetOptions>({ actor: true, reason: true });
const LIST_OPTIONS = optionNames<ForgottenListOptions>({ after: true, limit: true });
const SUBJECT = optionNames<ForgottenSubject>({ subject: true, at: true, actor: true, reason: true });

/** How many streams lose their folded states in one commit. */
const PAGE = 100;
/** A worker finishes what was not finished after this time, and tries again after the same. */
const UNFINISHED_MS = 30_000;
/** How many subjects are forgotten concurrently. */
const TOGETHER = 50;

/** `pawl.forgotten` */
export class ForgottenSubjects {
  readonly #kernel: Kernel;
  readonly #subjects: Subjects;
  readonly queue: Queue;

  /** @internal */
  constructor(kernel: Kernel, subjects: Subjects) {
    this.#kernel = kernel;
    this.#subjects = subjects;
    this.queue = { kind: FORGETTING, isUrgent: true, chore: ({ key }) => this.#resume(key) };
  }

  /** Those who were forgotten, in pages, in the order of their ids. */
  async list(options: ForgottenListOptions = {}): Promise<ForgottenPage> {
    checkOptions(options, LIST_OPTIONS);
    const { after = null } = options;
    if (after !== null) checkText(after, "after");
    const limit = checkCount(options.limit ?? 100, "the limit", 1000);
    const statuses = [FORGOTTEN_STATUS];
    const rows = await this.#kernel.list({ space: SUBJECTS, prefix: "", statuses, after, limit: limit + 1 });
    const page = rows.slice(0, limit);
    return {
      subjects: page.flatMap((row) => this.#shown(row)),
      next: rows.length > limit ? (page.at(-1)?.key ?? null) : null,
    };
  }

  /**
   * Forgets these again, after a backup was restored that is older than that: ids, or what `list` returned before the restore, which also keeps who
   * asked for it, when and why.
   */
  async reapply(subjects: readonly (string | ForgottenSubject)[]): Promise<void> {
    checkList(subjects, "the subjects");
    const requests = Array.from(subjects, (one) => requestOf(one));
    for (let i = 0; i < requests.length; i += TOGETHER)
      await Promise.all(requests.slice(i, i + TOGETHER).map(([subject, request]) => this.#forget(subject, request)));
  }

  /** @internal */
  async forget(subject: string, options: ForgetOptions = {}, by?: string): Promise<ForgetResult> {
    const at = subjectAt(subject);
    checkOptions(options, FORGET_OPTIONS);
    const { actor = by, reason } = options;
    return this.#forget(at.key, checkRequest({ actor, reason }));
  }

  async #forget(subject: string, request: ForgetRequest): Promise<ForgetResult> {
    const at = subjectAt(subject);
    const { atMs, hadKey, isDone } = await this.#kernel.transact(
      (tx) => {
        const record = tx.record(at);
        const before = record.value as SubjectValue | undefined;
        const value = decideForget(before, request, tx.nowMs);
        if (before?.forgotten === undefined)
          record.write({ value, status: FORGOTTEN_STATUS, kind: FORGETTING, dueMs: tx.nowMs + UNFINISHED_MS });
        const { atMs, isUnknown = false } = value.forgotten;
        return { atMs, hadKey: !isUnknown, isDone: record.kind !== FORGETTING };
      },
      [at],
    );
    if (!isDone) await this.#finish(subject);
    return { forgotten: true, at: new Date(atMs), hadKey };
  }

  /** What the process that began it did not finish. */
  async #resume(subject: string): Promise<void> {
    const at = subjectAt(subject);
    const isMine = await this.#kernel.transact(
      (tx) => {
        const record = tx.record(at);
        if (record.kind !== FORGETTING || (record.dueMs ?? 0) > tx.nowMs) return false;
        record.write({ dueMs: tx.nowMs + UNFINISHED_MS });
        return true;
      },
      [at],
    );
    if (isMine) await this.#finish(subject);
  }

  async #finish(subject: string): Promise<void> {
    await this.#subjects.fetched?.destroy(subject);
    const space = streamsOf(subject);
    for (let rows: readonly Row[]; ; ) {
      rows = await this.#kernel.list({ space, prefix: "", after: null, limit: PAGE });
      if (rows.length === 0) break;
      await this.#erase(
        subject,
        rows.map(({ key }) => key),
      );
    }
    await refreshAll(this.#kernel);
    const at = subjectAt(subject);
    await this.#kernel.transact(
      (tx) => {
        const record = tx.record(at);
        if (record.kind === FORGETTING) record.write({ kind: null, dueMs: null });
      },
      [at],
    );
  }

  /** Drops the folded states of streams with events of the subject, and what says that it has events there. */
  #erase(subject: string, streams: readonly string[]): Promise<void> {
    const marks = streams.map((stream) => streamOfAt(subject, stream));
    return this.#kernel.transact(
      (tx) => {
        tx.load([...marks, ...streams.map(streamAt)]);
        for (const [i, stream] of streams.entries()) {
          const mark = marks[i] === undefined ? undefined : tx.record(marks[i]);
          // Another call was faster.
          if (mark?.exists !== true) continue;
          const record = tx.record(streamAt(stream));
          if (record.exists) record.write({ value: withoutFolds(record.value as StreamValue) });
          // A subject that was forgotten never has events again.
          mark.remove(0);
        }
      },
      [...marks, ...streams.map(streamAt)],
    );
  }

  #shown(row: Row): readonly ForgottenSubject[] {
    const { forgotten } = this.#kernel.decode(row, row.value ?? "{}") as SubjectValue;
    if (forgotten === undefined) return [];
    const { atMs, actor = null, reason = null } = forgotten;
    return [{ subject: row.key, at: new Date(atMs), actor, reason }];
  }
}

function checkRequest({ actor, reason }: { readonly actor?: unknown; readonly reason?: unknown }): ForgetRequest {
  return {
    actor: actor === undefined ? undefined : checkId(actor, "the actor"),
    reason: reason === undefined ? undefined : checkText(reason, "the reason"),
  };
}

function requestOf(given: unknown): [subject: string, request: ForgetRequest] {
  if (typeof given === "string") return [checkId(given, "the subject"), {}];
  checkObject(given, "the subject");
  checkOptions(given, SUBJECT, "the subject");
  const { subject, at, actor, reason } = given as ForgottenSubject;
  const request = checkRequest({ actor: actor ?? undefined, reason: reason ?? undefined });
  return [checkId(subject, "the subject"), { ...request, atMs: checkDate(at, "at") }];
}
