/**
 * What the commands work against: a store that this process opens, or a server that has one open.
 *
 * Each method is one call of the library. Its results are JSON (`values.ts`), so that a command shows the same in both cases; what is only in one of them
 * throws `not_supported`, and the message names the other.
 *
 * Out of scope: what needs the database itself, as a backup or the plan of a migration (`store.ts`).
 */

import type { ActionEntry, ActionInfo } from "../action/info.ts";
import type { ClientLockInfo } from "../http/client/index.ts";
import type { ApiKeyEntry, ApiKeyInfo } from "../http/server/index.ts";
import type { LockEvent } from "../lock/lock.ts";
import type { LockKind } from "../lock/stored.ts";
import type { ScheduleEntry, ScheduleInfo } from "../schedule/info.ts";
import type { PartialExport } from "../stream/closing/transfer.ts";
import type { StreamEvent } from "../stream/event.ts";
import type { ProjectionInfo } from "../stream/projections/status.ts";
import type { DeadLetterInfo, ReactionInfo, TargetInfo } from "../stream/reactions/reactions.ts";
import type { TaskAttempt, TaskDelivery, TaskInfo } from "../task/info.ts";
import type { CanceledTask, CreatedTask, RedrivenTasks, SignaledTask, TaskSignal } from "../task/tasks.ts";
import type { PausedWorkflow } from "../workflow/flow/paused.ts";
import type { WaitReason, WaitSubject } from "../workflow/locks/why.ts";
import type { CanceledRun, HistoryEntry, RunInfo } from "../workflow/runs/run.ts";
import type { Plain } from "./values.ts";

/** A page of a list, and where the next one begins. */
export interface Page<Item> {
  readonly items: readonly Item[];
  /** Those of the page that cannot be read: written with another codec key, or damaged. */
  readonly unreadable?: readonly { readonly id: string; readonly reason: string }[] | undefined;
  readonly next: string | null;
}

export interface PageOptions {
  readonly after?: string | undefined;
  readonly limit: number;
}

export interface RunFilter extends PageOptions {
  readonly workflow?: string | undefined;
  readonly status?: readonly string[] | undefined;
  readonly tag?: string | undefined;
  readonly prefix?: string | undefined;
  readonly order?: string | undefined;
}

export interface StartRequest {
  readonly workflow: string;
  readonly input?: unknown;
  readonly id?: string | undefined;
  readonly delay?: string | undefined;
  readonly tags?: readonly string[] | undefined;
}

/** A line of the list of locks. */
export interface LockLine {
  readonly name: string;
  readonly kind: LockKind;
  readonly permits: number | null;
  readonly held: number;
  readonly waiting: number;
  /** The first holder, and until when if it is not renewed. */
  readonly holder: string | null;
  readonly fence: number | null;
  readonly until: string | null;
}

export interface LockName {
  readonly kind: LockKind;
  readonly name: string;
}

/** A line of the list of streams. */
export interface StreamLine {
  readonly stream: string;
  readonly version: number;
  readonly status: string;
}

export interface SlotLine {
  readonly name: string;
  readonly value: unknown;
  readonly version: number;
}

export interface TargetChange {
  readonly target?: string | undefined;
  readonly status?: "blocked" | "paused" | undefined;
  readonly prefix?: string | undefined;
  readonly dryRun?: boolean | undefined;
}

export interface Intervention {
  /** Of a server, it is the API key. */
  readonly by: string | undefined;
  readonly reason: string;
}

export type RunItem = Plain<RunInfo> & {
  /** Where the error was thrown. */
  readonly stack?: string | undefined;
};
export type HistoryItem = Plain<HistoryEntry>;
export type ScheduleItem = Plain<ScheduleInfo>;
export type ActionItem = Plain<ActionInfo>;

/** A server does not show tickets, with which a place in line could be taken. */
export type LockItem = Plain<Omit<ClientLockInfo, "kind">> & { readonly kind: LockKind };
export type TaskItem = Plain<TaskInfo>;
export type KeyItem = Plain<ApiKeyInfo>;

export interface Backend {
  /** Where it works, as it is shown: a path, or a URL without secrets. */
  readonly place: string;
  readonly runs: {
    list(filter: RunFilter): Promise<Page<RunItem>>;
    get(id: string): Promise<RunItem>;
    history(id: string, options: { readonly after: number; readonly limit: number }): Promise<readonly HistoryItem[]>;
    start(request: StartRequest): Promise<{ readonly id: string }>;
    signal(
      id: string,
      signal: { readonly name: string; readonly payload: unknown; readonly id?: string | undefined },
    ): Promise<{ readonly isNew: boolean }>;
    cancel(id: string, options: { readonly reason?: string; readonly force?: boolean }): Promise<Plain<CanceledRun>>;
    retry(id: string, options: { readonly steps?: readonly string[] }): Promise<void>;
    resolve(
      id: string,
      step: string,
      answer: { readonly done: true; readonly value: unknown } | { readonly done: false },
    ): Promise<void>;
    delete(id: string): Promise<void>;
    /** The result of a run that has completed; waits for at most this long. Throws why there is none. */
    result(id: string, options: { readonly timeoutMs: number }): Promise<unknown>;
  };
  readonly workflows: {
    paused(): Promise<readonly Plain<PausedWorkflow>[]>;
    pause(name: string, reason: string | undefined): Promise<void>;
    resume(name: string): Promise<boolean>;
  };
  why(subject: WaitSubject): Promise<WaitReason>;
  readonly locks: {
    list(
      options: PageOptions & { readonly kind: LockKind; readonly prefix?: string | undefined },
    ): Promise<Page<LockLine>>;
    get(lock: LockName): Promise<LockItem>;
    history(lock: LockName): Promise<readonly Plain<LockEvent>[]>;
    forceRelease(lock: LockName, who: Intervention): Promise<{ readonly released: number }>;
  };
  readonly schedules: {
    list(options: PageOptions & { readonly prefix?: string | undefined }): Promise<Page<ScheduleItem>>;
    get(name: string): Promise<ScheduleItem>;
    history(name: string, limit: number): Promise<readonly Plain<ScheduleEntry>[]>;
    preview(name: string, count: number): Promise<readonly string[]>;
    pause(name: string, reason: string | undefined): Promise<ScheduleItem>;
    resume(name: string): Promise<ScheduleItem>;
    trigger(name: string): Promise<{ readonly run: string }>;
    delete(name: string): Promise<{ readonly deleted: boolean }>;
  };
  readonly streams: {
    list(options: PageOptions & { readonly prefix?: string | undefined }): Promise<Page<StreamLine>>;
    read(
      id: string,
      options: { readonly from?: number | undefined; readonly backwards: boolean; readonly limit: number },
    ): Promise<readonly Plain<StreamEvent>[]>;
    /**
     * Writes the lines of `pawl.streams.export`; `wrote` gets the number of events after each piece. Returns the streams whose older events were removed and
     * cannot be read here.
     */
    export(
      prefix: string,
      write: (text: string) => Promise<void>,
      wrote: (events: number) => void,
    ): Promise<readonly PartialExport[]>;
  };
  readonly slots: {
    list(options: PageOptions & { readonly prefix?: string | undefined }): Promise<Page<SlotLine>>;
  };
  readonly reactions: {
    list(): Promise<readonly Plain<ReactionInfo>[]>;
    targets(
      reaction: string,
      options: PageOptions & {
        readonly status?: "blocked" | "paused" | undefined;
        readonly prefix?: string | undefined;
      },
    ): Promise<Page<Plain<TargetInfo>>>;
    /** Changes the targets that match; returns how many. */
    change(verb: "unblock" | "reset" | "prioritize", reaction: string, filter: TargetChange): Promise<number>;
    skip(
      reaction: string,
      target: string,
      who: { readonly actor: string | undefined; readonly reason: string },
    ): Promise<Plain<DeadLetterInfo>>;
    pause(reaction: string): Promise<void>;
    resume(reaction: string): Promise<void>;
    deadLetters(reaction: string, options: PageOptions): Promise<Page<Plain<DeadLetterInfo>>>;
    redrive(
      reaction: string,
      letter: { readonly stream: string; readonly version: number; readonly target?: string | undefined },
    ): Promise<void>;
  };
  readonly projections: {
    list(): Promise<readonly Plain<ProjectionInfo>[]>;
    get(name: string): Promise<Plain<ProjectionInfo>>;
    /** Returns the number of the generation. */
    rebuild(name: string, options: { readonly from?: "kept" | undefined }): Promise<number>;
    delete(name: string): Promise<void>;
  };
  readonly actions: {
    list(
      options: PageOptions & {
        readonly owner?: string | undefined;
        readonly state?: readonly string[] | undefined;
        readonly tag?: string | undefined;
      },
    ): Promise<Page<ActionItem>>;
    get(action: string): Promise<ActionItem>;
    history(action: string): Promise<readonly Plain<ActionEntry>[]>;
    cancel(
      action: string,
      who: { readonly by?: string | undefined; readonly reason?: string | undefined },
    ): Promise<void>;
  };
  readonly tasks: {
    list(options: RunFilter): Promise<Page<TaskItem>>;
    get(id: string): Promise<TaskItem>;
    create(request: object & { readonly targetUrl: string }): Promise<Plain<CreatedTask>>;
    signal(token: string, signal: TaskSignal): Promise<Plain<SignaledTask>>;
    cancel(id: string, reason: string | undefined): Promise<Plain<CanceledTask>>;
    redrive(id: string): Promise<TaskItem>;
    redriveAll(filter: {
      readonly status?: readonly string[] | undefined;
      readonly tag?: string | undefined;
      readonly prefix?: string | undefined;
    }): Promise<RedrivenTasks>;
    attempts(id: string): Promise<readonly Plain<TaskAttempt>[]>;
    deliveries(id: string): Promise<readonly Plain<TaskDelivery>[]>;
  };
  readonly keys: {
    create(request: {
      readonly name: string;
      readonly scopes: readonly string[];
      readonly namespace?: string | undefined;
      readonly expiresAt?: number | undefined;
      readonly by?: string | undefined;
    }): Promise<KeyItem & { readonly key: string }>;
    list(options: PageOptions & { readonly namespace?: string | undefined }): Promise<Page<KeyItem>>;
    get(id: string): Promise<KeyItem>;
    rotate(
      id: string,
      options: { readonly grace?: string | undefined; readonly by?: string | undefined },
    ): Promise<KeyItem & { readonly key: string }>;
    revoke(id: string, by: string | undefined): Promise<KeyItem>;
    history(id: string): Promise<readonly Plain<ApiKeyEntry>[]>;
  };
  close(): Promise<void>;
}
