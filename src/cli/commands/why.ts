/** `pawl why`: why a run or a lock does not continue, link by link. */

import { TASKS } from "../../task/stored.ts";
import type { WaitReason, WaitSubject } from "../../workflow/locks/why.ts";
import { inCommands } from "../advice.ts";
import type { Backend } from "../backend.ts";
import { escaped } from "../output.ts";
import { declare, option, type Place } from "../program.ts";

export function whyCommand(place: Place): void {
  declare<{ lock?: boolean; kind?: "mutex" | "semaphore" | "rwlock" }>(place, {
    usage: "why <name>",
    summary: "say why a run does not continue, or who keeps a lock",
    options: [
      option("--lock", "the name is that of a lock"),
      option("--kind <kind>", "the kind of the lock (default: mutex)").choices(["mutex", "semaphore", "rwlock"]),
    ],
    run: async (session, [name = ""], { lock, kind }) => {
      const isLock = lock === true || kind !== undefined;
      const subject: WaitSubject = isLock ? { lock: name, kind } : { run: name };
      const backend = await session.backend("read");
      await session.show<WaitReason>({
        get: async () => withAttempt(backend, name, isLock, await backend.why(subject)),
        fields: () => [],
        more: ({ chain }) =>
          chain.map(
            ({ says, name: about }, at) =>
              `${"  ".repeat(at)}${at === 0 ? "" : "└ "}${escaped(inCommands(says, about))}`,
          ),
        isFinal: ({ isWaiting }) => !isWaiting,
      });
    },
  });
}

/** A task waits between its attempts, or has failed, because of the last one. */
async function withAttempt(backend: Backend, id: string, isLock: boolean, reason: WaitReason): Promise<WaitReason> {
  if (isLock) return reason;
  const attempts = (await backend.runs.get(id)).workflow === TASKS ? await backend.tasks.attempts(id) : [];
  const last = attempts.at(-1);
  if (last === undefined) return reason;
  const { number, startedAt, status, error } = last;
  const came = error === null ? `the target returned ${status}` : `${error.message} (${error.code})`;
  const says = `attempt ${number} at its call, at ${startedAt}: ${came}`;
  return { ...reason, says: `${reason.says}; ${says}`, chain: [...reason.chain, { is: "plain", name: id, says }] };
}
