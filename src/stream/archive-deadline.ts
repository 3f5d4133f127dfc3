/**
 * An archive that never answers does not keep a call waiting: each of its answers has the patience of the handle. An answer is the next event that
 * it takes, that it has stored all of them, or the next event that it returns; so how long the whole takes does not matter.
 */

import { inTime } from "../kernel/deadline.ts";
import { CallbackTimeoutError, InvalidArgumentError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { isAwaitable } from "../kernel/sync.ts";
import type { Archive, ArchivedEvent, ArchivedRange } from "./closing/archive.ts";

export function withDeadline(kernel: Kernel, archive: Archive): Archive {
  const write: Archive["write"] = (stream, events) => writeInTime(kernel, archive, stream, events);
  if (archive.read === undefined) return { write };
  return { write, read: (stream, range) => readInTime(kernel, archive, stream, range) };
}

function writeInTime(
  { ports: { clock }, patienceMs }: Kernel,
  archive: Archive,
  stream: string,
  events: AsyncIterable<ArchivedEvent>,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const late = new CallbackTimeoutError("write of the archive", patienceMs);
    let cancel = (): void => {};
    let isLate = false;
    const expect = (): void => {
      cancel();
      cancel = clock.after(patienceMs, () => {
        isLate = true;
        reject(late);
      });
    };
    async function* watched(): AsyncGenerator<ArchivedEvent> {
      // The time that the store takes is not the archive's.
      cancel();
      for await (const event of events) {
        expect();
        yield event;
        if (isLate) throw late;
        cancel();
      }
      expect();
    }
    expect();
    (async () => archive.write(stream, watched()))()
      .then(resolve, reject)
      .finally(() => cancel());
  });
}

function iteratorOf(found: unknown): AsyncIterator<ArchivedEvent> {
  const makes = isAwaitable(found) ? undefined : Object(found)[Symbol.asyncIterator];
  if (typeof makes === "function") return makes.call(found);
  throw new InvalidArgumentError(
    "what read of the archive returns",
    "must be an async iterable, as an async generator (async *read) returns it: repair it, and call again; nothing was removed",
  );
}

async function* readInTime(
  { ports: { clock }, patienceMs }: Kernel,
  archive: Archive,
  stream: string,
  range: ArchivedRange,
): AsyncGenerator<ArchivedEvent> {
  const iterator = iteratorOf(archive.read?.(stream, range));
  const ask = <T>(run: () => T | PromiseLike<T>): Promise<T> => inTime(clock, patienceMs, "read of the archive", run);
  let isEnded = false;
  try {
    for (;;) {
      // One that throws, or does not answer, is not asked to end.
      isEnded = true;
      const { done, value } = await ask(() => iterator.next());
      if (done === true) return;
      isEnded = false;
      yield value;
    }
  } finally {
    if (!isEnded) await ask(() => iterator.return?.());
  }
}
