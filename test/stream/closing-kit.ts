/** What the tests of closing share: an archive that fails when it is told to, and what a stream has left. */

import { type Archive, type ArchivedEvent, event, type Pawl } from "../../src/index.ts";
import { all, brief } from "./kit.ts";

export const Carried = event<{ readonly balance: number }>("Carried");

/** An archive in memory, that can be made to fail. */
export class Shelf implements Archive {
  readonly events = new Map<string, Map<number, ArchivedEvent>>();
  writes = 0;
  /** Called for each event that it is given. */
  onEvent: (event: ArchivedEvent) => ArchivedEvent | undefined = (one) => one;
  /** Called before the events are taken. */
  onWrite: () => Promise<void> = async () => {};
  /** Called before events are read back. */
  onRead: () => void = () => {};

  async write(stream: string, events: AsyncIterable<ArchivedEvent>): Promise<void> {
    this.writes += 1;
    await this.onWrite();
    const taken: ArchivedEvent[] = [];
    for await (const one of events) {
      const kept = this.onEvent(one);
      if (kept !== undefined) taken.push(kept);
    }
    const shelf = this.events.get(stream) ?? new Map<number, ArchivedEvent>();
    for (const one of taken) shelf.set(one.version, one);
    this.events.set(stream, shelf);
  }

  async *read(stream: string, { from, to }: { readonly from: number; readonly to: number }) {
    this.onRead();
    const shelf = [...(this.events.get(stream)?.values() ?? [])].toSorted((a, b) => a.version - b.version);
    for (const one of shelf) if (one.version >= from && one.version <= to) yield one;
  }

  versions(stream: string): readonly number[] {
    return [...(this.events.get(stream)?.keys() ?? [])].toSorted((a, b) => a - b);
  }
}

/** The same, without a reader. */
export const unread = (archive: Archive): Archive => ({ write: (...given) => archive.write(...given) });

export const kept = async (pawl: Pawl, stream: string) =>
  (await all(pawl.stream(stream).read({ from: "kept" }))).map(brief);
