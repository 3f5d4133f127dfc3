/**
 * Goal: a projection lacks no event of a stream that was closed, whenever it is built, and none is in it twice.
 * Method: an archive in memory; builds that begin, or are held up, at each point of a closing; counts that would be wrong.
 */

import { describe, expect, test } from "vitest";
import { type Archive, type ArchivedEvent, FORGOTTEN, projection } from "../../src/index.ts";
import { type GenerationValue, generationAt } from "../../src/stream/projections/stored.ts";
import { REMOVED } from "../../src/stream/stored.ts";
import { EVERY, onStores, PATIENCE } from "../workflow/kit.ts";
import { ann, bob, KEYS, Registered } from "./forget-kit.ts";
import { balances, buildingFailure, Deposited, deposits, Opened } from "./kit.ts";

/** An archive in memory. */
function memoryArchive(): Archive {
  const kept = new Map<string, Map<number, ArchivedEvent>>();
  return {
    async write(stream, events) {
      const all = kept.get(stream) ?? new Map<number, ArchivedEvent>();
      kept.set(stream, all);
      for await (const one of events) all.set(one.version, one);
    },
    async *read(stream, { from, to }) {
      for (let version = from; version <= to; version++) {
        const found = kept.get(stream)?.get(version);
        if (found !== undefined) yield found;
      }
    },
  };
}

onStores(EVERY, (place) => {
  describe("after a stream was closed", () => {
    test("a rebuild, and a new projection, read its events from the archive", async () => {
      const pawl = await place.open({ archive: memoryArchive() });
      pawl.work([balances]);
      for (const stream of ["ann", "bob"]) await pawl.stream(stream).append([Opened(), ...deposits(3)]);
      const last = await pawl.stream("eve").append(deposits(1));
      const handle = pawl.projection(balances);
      await handle.waitFor(last);
      await pawl.streams.close("ann");
      await pawl.streams.close("bob", { restart: Deposited({ amount: 10 }) });
      const generation = await handle.rebuild();
      await expect.poll(async () => (await handle.status()).live?.generation, PATIENCE).toBe(generation);
      const counts = projection("counts", { on: [Deposited] }, (n: number | undefined) => (n ?? 0) + 1);
      pawl.work([counts]);
      await pawl.projection(counts).waitFor(last);
      expect((await handle.list()).rows).toEqual([
        { key: "ann", row: { balance: 6, events: 3 } },
        { key: "bob", row: { balance: 16, events: 4 } },
        { key: "eve", row: { balance: 1, events: 1 } },
      ]);
      expect((await pawl.projection(counts).list()).rows.map(({ row }) => row)).toEqual([3, 4, 1]);
    });

    test("a rebuild that begins while the events are archived does not keep it from being closed, and lacks nothing", async () => {
      const disk = memoryArchive();
      let onWrite = async (): Promise<void> => {};
      const archive: Archive = {
        ...disk,
        write: async (stream, events) => {
          await disk.write(stream, events);
          await onWrite();
        },
      };
      const pawl = await place.open({ archive, logger: false });
      const handle = pawl.projection(balances);
      let worker = pawl.work([balances]);
      for (const stream of ["ann", "bob", "cid"]) await handle.waitFor(await pawl.stream(stream).append(deposits(3)));
      // Without a worker, it cannot be waited for.
      onWrite = async () => {
        await worker.stop();
        await handle.rebuild();
      };
      const restart = Deposited({ amount: 10 });
      expect(await pawl.streams.close("bob", { restart })).toMatchObject({ restartedAt: 5 });
      worker = pawl.work([balances]);
      await expect.poll(async () => (await handle.status()).building, PATIENCE).toBeNull();
      const rows = [
        { key: "ann", row: { balance: 6, events: 3 } },
        { key: "bob", row: { balance: 16, events: 4 } },
        { key: "cid", row: { balance: 6, events: 3 } },
      ];
      expect((await handle.list()).rows).toEqual(rows);
      // With one, it may be past the archive when the events are removed.
      onWrite = async () => {
        const generation = await handle.rebuild();
        await expect
          .poll(async () => {
            const { live, building } = await handle.status();
            return live?.generation === generation || (building?.worker ?? null) !== null;
          }, PATIENCE)
          .toBe(true);
      };
      expect(await pawl.streams.close("ann")).toMatchObject({ version: 4 });
      await expect.poll(async () => (await handle.status()).building, PATIENCE).toBeNull();
      expect((await handle.list()).rows).toEqual(rows);
    });

    test("a rebuild does not read events twice that are in the archive and still in the store", async () => {
      const archive = memoryArchive();
      const pawl = await place.open({ archive });
      const handle = pawl.projection(balances);
      pawl.work([balances]);
      for (const stream of ["ann", "bob"]) await handle.waitFor(await pawl.stream(stream).append(deposits(3)));
      const dying = await place.openHandle({ archive });
      // The process ends after it was said that the events may be removed, and before they are.
      const { promise: isMarked, resolve: marked } = Promise.withResolvers<void>();
      dying.pawl.kernel.prune = () => {
        marked();
        return new Promise(() => {});
      };
      void dying.pawl.streams.close("ann", { restart: Deposited({ amount: 1 }) });
      await isMarked;
      const generation = await handle.rebuild();
      await expect.poll(async () => (await handle.status()).live?.generation, PATIENCE).toBe(generation);
      expect((await handle.list()).rows).toEqual([
        { key: "ann", row: { balance: 6, events: 3 } },
        { key: "bob", row: { balance: 6, events: 3 } },
      ]);
    });

    test("a projection that is being built begins again where events that it lacks were removed by force", async () => {
      const pawl = await place.open({ archive: memoryArchive(), logger: false });
      const handle = pawl.projection(balances);
      const worker = pawl.work([balances]);
      await handle.waitFor(await pawl.stream("eve").append([Opened(), ...deposits(1)]));
      for (const stream of ["ann", "bob"]) await handle.waitFor(await pawl.stream(stream).append(deposits(3)));
      await pawl.streams.close("bob");
      await worker.stop();
      const generation = await handle.rebuild();
      // As if it had read the archive, which had only "bob" then, and had not followed the others yet.
      const at = generationAt("balances", generation);
      const [removed] = await pawl.kernel.read([REMOVED]);
      await pawl.kernel.transact(
        (tx) => {
          const record = tx.record(at);
          const read = { archivedUpTo: 1_000_000, archivedAt: removed?.version ?? 0 };
          record.write({ value: { ...(record.value as GenerationValue), ...read } });
        },
        [at],
      );
      await pawl.streams.close("ann", { force: true });
      pawl.work([balances]);
      await expect.poll(async () => (await handle.status()).live?.generation, PATIENCE).toBe(generation + 1);
      expect((await handle.list()).rows.map(({ key, row }) => [key, row.events])).toEqual([
        ["ann", 3],
        ["bob", 3],
        ["eve", 1],
      ]);
    });

    test("a build that lacks events is replaced by a rebuild, so that a person who was forgotten is not seen again", async () => {
      const archive = memoryArchive();
      const pawl = await place.open({ ...KEYS, logger: false });
      let isBroken = false;
      const emails = projection("emails", { on: [Registered], version: "1" }, (_: unknown, { data }) => {
        if (isBroken && data.id === bob.id) throw new Error("broken");
        return { email: data.email };
      });
      const handle = pawl.projection(emails);
      const worker = pawl.work([emails]);
      await pawl.stream("ann").append([Registered(ann)]);
      await handle.waitFor(await pawl.stream("bob").append([Registered(bob)]));
      isBroken = true;
      const stuck = await handle.rebuild();
      await expect.poll(() => buildingFailure(pawl, emails), PATIENCE).toMatchObject({ stream: "bob" });
      // It has ann as she was, and lacks bob: without the archive, for ever.
      await pawl.streams.close("bob", { archive, force: true });
      await pawl.forget(ann.id);
      isBroken = false;
      await expect
        .poll(() => buildingFailure(pawl, emails), PATIENCE)
        .toMatchObject({ message: expect.stringContaining("was removed") });
      expect(await handle.get("ann")).toEqual({ email: ann.email });
      await worker.stop();
      const generation = await handle.rebuild();
      expect(generation).toBe(stuck + 1);
      expect((await handle.status()).building).toMatchObject({ generation, failure: null });
      const other = await place.open({ ...KEYS, archive, logger: false });
      other.work([emails]);
      await expect.poll(async () => (await handle.status()).live?.generation, PATIENCE).toBe(generation);
      expect((await handle.list()).rows).toEqual([
        { key: "ann", row: { email: FORGOTTEN } },
        { key: "bob", row: { email: bob.email } },
      ]);
      expect((await handle.status()).building).toBeNull();
    });

    test("a build is not shown where events were removed after it began and before it read them", async () => {
      const archive = memoryArchive();
      const pawl = await place.open({ archive, logger: false });
      const handle = pawl.projection(balances);
      const worker = pawl.work([balances]);
      for (const stream of ["ann", "bob"]) await handle.waitFor(await pawl.stream(stream).append(deposits(3)));
      await worker.stop();
      const generation = await handle.rebuild();
      const { kernel } = pawl;
      const follow = kernel.follow.bind(kernel);
      const { promise: isClosed, resolve: closed } = Promise.withResolvers<void>();
      let isAsked = false;
      kernel.follow = async (query) => {
        isAsked = true;
        await isClosed;
        return follow(query);
      };
      pawl.work([balances]);
      await expect.poll(() => isAsked, PATIENCE).toBe(true);
      const closing = await place.open({ archive });
      for (const stream of ["ann", "bob"]) await closing.streams.close(stream, { force: true });
      closed();
      await expect.poll(async () => (await handle.status()).building, PATIENCE).toBeNull();
      expect((await handle.status()).live?.generation).toBeGreaterThan(generation);
      expect((await handle.list()).rows).toEqual([
        { key: "ann", row: { balance: 6, events: 3 } },
        { key: "bob", row: { balance: 6, events: 3 } },
      ]);
    });

    test("without an archive that can be read, a rebuild says what it lacks, and readers see what they saw", async () => {
      const pawl = await place.open({ logger: false });
      pawl.work([balances]);
      await pawl.projection(balances).waitFor(await pawl.stream("ann").append(deposits(3)));
      await pawl.streams.close("ann", { discard: true });
      await pawl.projection(balances).rebuild();
      await expect
        .poll(async () => (await pawl.projection(balances).status()).building?.failure?.message, PATIENCE)
        .toContain('stream "ann" was removed');
      expect((await pawl.projection(balances).status()).building?.failure?.code).toBe("events_archived");
      expect(await pawl.projection(balances).get("ann")).toEqual({ balance: 6, events: 3 });
    });

    test("where its events were discarded, a rebuild from what is kept leaves out what only they said", async () => {
      const pawl = await place.open({ logger: false });
      const handle = pawl.projection(balances);
      pawl.work([balances]);
      for (const stream of ["ann", "bob", "eve"]) await handle.waitFor(await pawl.stream(stream).append(deposits(3)));
      await pawl.streams.close("ann", { discard: true });
      await pawl.streams.close("bob", { discard: true, restart: Deposited({ amount: 10 }) });
      await handle.rebuild();
      await expect.poll(async () => (await handle.status()).building?.failure?.code, PATIENCE).toBe("events_archived");
      // In place of the one that is stuck.
      const generation = await handle.rebuild({ from: "kept" });
      await expect.poll(async () => (await handle.status()).live?.generation, PATIENCE).toBe(generation);
      const rows = [
        { key: "bob", row: { balance: 10, events: 1 } },
        { key: "eve", row: { balance: 6, events: 3 } },
      ];
      expect((await handle.list()).rows).toEqual(rows);
      // Nothing else is left out: what is removed after it began was read before.
      await handle.waitFor(await pawl.stream("eve").append(deposits(1)));
      await pawl.streams.close("eve", { discard: true });
      expect((await handle.list()).rows.map(({ row }) => row.events)).toEqual([1, 4]);
      // Without "kept", it is all events again, also by the name of what was built so.
      await pawl.projection("balances").rebuild();
      await expect.poll(async () => (await handle.status()).building?.failure?.code, PATIENCE).toBe("events_archived");
      expect((await handle.list()).rows.map(({ row }) => row.events)).toEqual([1, 4]);
    });

    test("a rebuild from what is kept that lacks events discarded meanwhile begins again without them", async () => {
      const pawl = await place.open({ logger: false });
      const handle = pawl.projection(balances);
      const worker = pawl.work([balances]);
      for (const stream of ["ann", "bob"]) await handle.waitFor(await pawl.stream(stream).append(deposits(3)));
      await pawl.streams.close("ann", { discard: true });
      await worker.stop();
      // It is to be at work, and to have read nothing yet.
      const other = await place.open({ logger: false });
      const { promise: isClosed, resolve: closed } = Promise.withResolvers<void>();
      let isAsked = false;
      const follow = other.kernel.follow.bind(other.kernel);
      const generation = await handle.rebuild({ from: "kept" });
      other.kernel.follow = async (query) => {
        const [row] = await other.kernel.read([generationAt("balances", generation)]);
        const value = row?.value == null ? undefined : (other.kernel.decode(row, row.value) as GenerationValue);
        if (value?.archivedUpTo !== undefined) {
          isAsked = true;
          await isClosed;
        }
        return follow(query);
      };
      other.work([balances]);
      await expect.poll(() => isAsked, PATIENCE).toBe(true);
      await pawl.streams.close("bob", { discard: true, force: true });
      closed();
      await expect.poll(async () => (await handle.status()).live?.generation, PATIENCE).toBeGreaterThan(generation);
      expect((await handle.list()).rows).toEqual([]);
    });

    test("a projection that is defined to begin with what is kept needs no archive, and a forgotten person's rows go", async () => {
      const emails = (from?: "kept") =>
        projection("emails", { on: [Registered], from, version: "1" }, (_row: unknown, { data }) => data.email);
      const pawl = await place.open({ ...KEYS, logger: false });
      const handle = pawl.projection(emails());
      const worker = pawl.work([emails()]);
      for (const one of [ann, bob]) await handle.waitFor(await pawl.stream(one.id).append([Registered(one)]));
      const rows = async () => (await handle.list()).rows.map(({ key, row }) => [key, row]);
      await pawl.streams.close(ann.id, { discard: true });
      await pawl.forget(ann.id);
      await expect.poll(async () => (await handle.status()).building?.failure?.code, PATIENCE).toBe("events_archived");
      // Without the word of the user, no row is left out that may be needed.
      expect(await rows()).toEqual([
        [ann.id, ann.email],
        [bob.id, bob.email],
      ]);
      await worker.stop();
      pawl.work([emails("kept")]);
      await expect.poll(rows, PATIENCE).toEqual([[bob.id, bob.email]]);
      // From now on by itself.
      await pawl.streams.close(bob.id, { discard: true });
      await pawl.forget(bob.id);
      await expect.poll(rows, PATIENCE).toEqual([]);
    });

    test("after a rebuild from what is kept, the next person who is forgotten is out of the rows by itself", async () => {
      const pawl = await place.open({ ...KEYS, logger: false });
      const emails = projection("emails", { on: [Registered] }, (_row: unknown, { data }) => data.email);
      const handle = pawl.projection(emails);
      pawl.work([emails]);
      for (const one of [ann, bob]) await handle.waitFor(await pawl.stream(one.id).append([Registered(one)]));
      await pawl.streams.close(ann.id, { discard: true });
      await pawl.forget(ann.id);
      await handle.rebuild({ from: "kept" });
      const rows = async () => (await handle.list()).rows.map(({ row }) => row);
      await expect.poll(rows, PATIENCE).toEqual([bob.email]);
      await pawl.forget(bob.id);
      await expect.poll(rows, PATIENCE).toEqual([FORGOTTEN]);
    });

    test("and is not closed while a projection lacks its events", async () => {
      const pawl = await place.open({ logger: false });
      const stuck = projection("stuck", { on: [Deposited] }, (): number => {
        throw new Error("no");
      });
      pawl.work([stuck]);
      await pawl.stream("ann").append(deposits(2));
      await expect.poll(() => buildingFailure(pawl, stuck), PATIENCE).toMatchObject({ version: 1 });
      await expect(pawl.streams.close("ann", { discard: true })).rejects.toMatchObject({
        code: "stream_in_use",
        data: { projections: [{ projection: "stuck", events: 2 }] },
      });
    });
  });
});
