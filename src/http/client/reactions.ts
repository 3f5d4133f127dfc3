/**
 * Operating reactions over HTTP: `pawl.reactions`.
 */

import type {
  DeadLetterInfo,
  ReactionInfo,
  TargetFilter,
  TargetInfo,
  TargetListOptions,
  TargetPage,
} from "../../stream/reactions/reactions.ts";
import { PAGE, plain, type Sendings, sent } from "./options.ts";
import { type Paged, paged } from "./pages.ts";
import { shown } from "./shapes.ts";
import type { WirePage } from "./slots.ts";
import { path, type Transport } from "./transport.ts";

export interface DeadLetterPage {
  readonly letters: readonly DeadLetterInfo[];
  readonly next: string | null;
}

/** Which dead letter: `target` where the event is one of several targets. */
export interface DeadLetterRef {
  readonly stream: string;
  readonly version: number;
  readonly target?: string | null | undefined;
}

const LIST: Sendings<TargetListOptions> = { ...PAGE, status: plain, prefix: plain };
const FILTER: Sendings<TargetFilter> = { target: plain, status: plain, prefix: plain, dryRun: plain };
const SKIP = { reason: plain };
const LETTER: Sendings<DeadLetterRef> = { stream: plain, version: plain, target: plain };

const filtered = (filter: TargetFilter): object => ({ ...sent(filter, FILTER, "the filter"), all: true });

export class ClientReactions {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** All reactions that a worker has ever known. */
  async list(): Promise<readonly ReactionInfo[]> {
    const json = await this.#transport.get(path("reactions"));
    return shown<WirePage<ReactionInfo>>(json).items;
  }

  /** One reaction. Throws `reaction_not_found`. */
  async get(reaction: string): Promise<ReactionInfo> {
    return shown(await this.#transport.get(path("reactions", reaction)));
  }

  /** Its targets by name: awaited, a page; iterated, all of them. */
  targets(reaction: string, options: TargetListOptions = {}): Paged<TargetPage, TargetInfo> {
    return paged<TargetPage, TargetInfo>(
      async (after = options.after ?? null) => {
        const query = { ...sent(options, LIST), after };
        const json = await this.#transport.get(path("reactions", reaction, "targets"), query);
        const { items, next } = shown<WirePage<TargetInfo>>(json);
        return { targets: items, next };
      },
      ({ targets }) => targets,
    );
  }

  /** Blocked targets continue with the event that failed. Returns how many targets were changed. */
  unblock(reaction: string, filter: TargetFilter): Promise<number> {
    return this.#change(reaction, "unblock", filtered(filter));
  }

  /** All of their events are handled again, from the first. Returns how many were changed. */
  reset(reaction: string, filter: TargetFilter): Promise<number> {
    return this.#change(reaction, "reset", filtered(filter));
  }

  /** They are claimed before all others that are due. Returns how many were changed. */
  prioritize(reaction: string, filter: TargetFilter): Promise<number> {
    return this.#change(reaction, "prioritize", filtered(filter));
  }

  /** Their events are not handled until `resumeTargets`. Returns how many were changed. */
  pauseTargets(reaction: string, filter: TargetFilter): Promise<number> {
    return this.#change(reaction, "pause", { targets: filtered(filter) });
  }

  resumeTargets(reaction: string, filter: TargetFilter): Promise<number> {
    return this.#change(reaction, "resume", { targets: filtered(filter) });
  }

  /** No more events are routed, for any target, until `resume`. */
  async pause(reaction: string): Promise<void> {
    await this.#change(reaction, "pause", {});
  }

  async resume(reaction: string): Promise<void> {
    await this.#change(reaction, "resume", {});
  }

  /** Puts the next event of a blocked or paused target aside as a dead letter; the key is its actor. */
  async skip(reaction: string, target: string, options: { readonly reason: string }): Promise<DeadLetterInfo> {
    const body = { target, ...sent(options, SKIP) };
    return shown(await this.#transport.post(path("reactions", reaction, "skip"), body));
  }

  /** Its dead letters: awaited, a page; iterated, all of them. */
  deadLetters(
    reaction: string,
    options: { readonly after?: string | undefined; readonly limit?: number | undefined } = {},
  ): Paged<DeadLetterPage, DeadLetterInfo> {
    return paged<DeadLetterPage, DeadLetterInfo>(
      async (after = options.after ?? null) => {
        const at = path("reactions", reaction, "dead-letters");
        const json = await this.#transport.get(at, { ...sent(options, PAGE), after });
        const { items, next } = shown<WirePage<DeadLetterInfo>>(json);
        return { letters: items, next };
      },
      ({ letters }) => letters,
    );
  }

  /** Sends a dead letter again. Throws `dead_letter_not_found`. */
  async redrive(reaction: string, letter: DeadLetterRef): Promise<void> {
    const body = sent(letter, LETTER, "the dead letter");
    const at = path("reactions", reaction, "dead-letters", "redrive");
    await this.#transport.post(at, body);
  }

  async #change(reaction: string, verb: string, body: unknown): Promise<number> {
    const isRepeatable = verb === "pause" || verb === "resume";
    const json = await this.#transport.post(path("reactions", reaction, verb), body, isRepeatable);
    return (json as { readonly changed: number | null }).changed ?? 0;
  }
}
