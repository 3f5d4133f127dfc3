/**
 * Goal: a stream that a reaction still needs is not closed; closed by force, what was not routed is a dead letter, once; on every store.
 * Method: reactions that fail until they are let through, workers and closings that are held just before a commit, and a closing that dies.
 */

import { describe, expect, test } from "vitest";
import { event, NonRetryableError, reaction } from "../../src/index.ts";
import { reactionAt } from "../../src/stream/reactions/stored.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores, PATIENCE } from "../workflow/kit.ts";
import { kept, Shelf } from "./closing-kit.ts";
import { brief, Deposited, deposits, Opened } from "./kit.ts";

onStores(EVERY, (place) => {
  describe("while a reaction has something to do", () => {
    const slow = (isOpen: () => boolean) =>
      reaction("slow", { on: [Deposited], target: (e) => `t-${e.stream}`, retry: { attempts: 1 } }, () => {
        if (!isOpen()) throw new Error("not yet");
      });

    test("a stream is in use; when its events are handled, it is closed", async () => {
      const archive = new Shelf();
      const pawl = await place.open({ archive, logger: false });
      let isOpen = false;
      await pawl.stream("ann").append([Opened(), ...deposits(3)]);
      const worker = pawl.work([slow(() => isOpen)]);
      await expect
        .poll(async () => (await pawl.reactions.targets("slow", { status: "blocked" })).targets.length, PATIENCE)
        .toBe(1);
      await worker.stop();
      // Not routed: the events of another stream come after its cursor. Not handled: those that wait behind the first.
      await pawl.stream("bob").append([Opened(), ...deposits(2)]);
      const refusal = (stream: string, events: number) => ({
        code: "stream_in_use",
        data: { stream, reactions: [{ reaction: "slow", events }], isClosed: false },
      });
      await expect(pawl.streams.close("ann")).rejects.toMatchObject(refusal("ann", 3));
      await expect(pawl.streams.close("bob")).rejects.toMatchObject(refusal("bob", 2));
      expect(await pawl.streams.prune("ann", { before: 2, discard: true })).toMatchObject({ firstVersion: 2 });
      await expect(pawl.streams.prune("ann", { before: 3, discard: true })).rejects.toMatchObject(refusal("ann", 1));
      await expect(pawl.streams.prune("bob", { before: 3, discard: true })).rejects.toMatchObject(refusal("bob", 1));
      expect(await pawl.streams.prune("bob", { before: 2, discard: true })).toEqual({ firstVersion: 2, archived: 0 });
      // It is about nothing of this stream.
      await pawl.stream("cid").append([Opened()]);
      expect(await pawl.streams.close("cid")).toMatchObject({ version: 2 });
      expect([archive.writes, await pawl.stream("ann").head()]).toEqual([1, 4]);
      isOpen = true;
      await pawl.reactions.unblock("slow", {});
      pawl.work([slow(() => isOpen)]);
      await expect
        .poll(() => pawl.streams.close("ann").catch(({ code }) => code), PATIENCE)
        .toMatchObject({ version: 5 });
      await expect
        .poll(() => pawl.streams.close("bob").catch(({ code }) => code), PATIENCE)
        .toMatchObject({ version: 4 });
    });

    test("at the target of the stream, only that target is looked at; where targets are computed, all are", async () => {
      const pawl = await place.open({ logger: false });
      let isOpen = true;
      const by = (target?: () => string) =>
        reaction("by", { on: [Deposited], retry: { attempts: 1 }, ...(target === undefined ? {} : { target }) }, () => {
          if (!isOpen) throw new Error("not yet");
        });
      const lists: string[] = [];
      const list = pawl.kernel.list.bind(pawl.kernel);
      pawl.kernel.list = (query) => {
        lists.push(query.space);
        return list(query);
      };
      const blocked = (count: number) =>
        expect
          .poll(async () => (await pawl.reactions.targets("by", { status: "blocked" })).targets.length, PATIENCE)
          .toBe(count);
      const left = async (stream: string) => {
        lists.length = 0;
        const error = await pawl.streams.close(stream, { discard: true }).catch(({ data }) => data.reactions);
        return [error, lists.includes("reaction-target/by")];
      };
      isOpen = false;
      await pawl.stream("ann").append(deposits(2));
      let worker = pawl.work([by()]);
      await blocked(1);
      expect(await left("ann")).toEqual([[{ reaction: "by", events: 2 }], false]);
      await worker.stop();
      // Other code computes targets: the events of "bob" are elsewhere.
      await pawl.stream("bob").append(deposits(3));
      worker = pawl.work([by(() => "elsewhere")]);
      await blocked(2);
      await worker.stop();
      expect(await left("bob")).toEqual([[{ reaction: "by", events: 3 }], true]);
      expect(await left("ann")).toEqual([[{ reaction: "by", events: 2 }], true]);
      // It stays so, whatever comes later.
      worker = pawl.work([by()]);
      await pawl.stream("cid").append(deposits(1));
      await blocked(3);
      expect(await left("bob")).toEqual([[{ reaction: "by", events: 3 }], true]);
    });

    test("that an operator sent to another target, it is in use", async () => {
      const pawl = await place.open({ logger: false });
      const Odd = event<number>("Odd");
      const no = (): never => {
        throw new NonRetryableError("no");
      };
      const odd = reaction("odd", { on: [Odd], target: no }, no);
      await pawl.stream("ann").append([Odd(2)]);
      pawl.work([odd]);
      await expect.poll(async () => (await pawl.reactions.deadLetters("odd")).letters.length, PATIENCE).toBe(1);
      await pawl.reactions.redrive("odd", { stream: "ann", version: 1, target: "there" });
      await expect
        .poll(async () => (await pawl.reactions.target("odd", "there").catch(() => null))?.status, PATIENCE)
        .toBe("blocked");
      await expect(pawl.streams.close("ann", { discard: true })).rejects.toMatchObject({
        code: "stream_in_use",
        data: { reactions: [{ reaction: "odd", events: 1 }] },
      });
    });

    test("that it got while the events were archived, it is waited for; where that lasts, the error says that it is closed", async () => {
      const archive = new Shelf();
      const pawl = await place.open({ archive, logger: false, patience: "2s" });
      await pawl.stream("ann").append(deposits(2));
      const worker = pawl.work([slow(() => true)]);
      await expect
        .poll(async () => (await pawl.reactions.target("slow", "t-ann").catch(() => null))?.handled, PATIENCE)
        .toBe(2);
      await worker.stop();
      archive.onWrite = async () => void (await pawl.reactions.reset("slow", {}));
      const refused = { code: "stream_in_use", data: { reactions: [{ reaction: "slow", events: 2 }], isClosed: true } };
      await expect(pawl.streams.close("ann")).rejects.toMatchObject(refused);
      expect(await kept(pawl, "ann")).toEqual(["ann 1 Deposited", "ann 2 Deposited", "ann 3 $closed"]);
      expect(await codeOf(pawl.stream("ann").append(deposits(1)))).toBe("stream_closed");
      archive.onWrite = async () => {
        pawl.work([slow(() => true)]);
      };
      expect(await pawl.streams.close("ann")).toEqual({ version: 3, archived: 2 });
    });

    test("closed by force, it leaves dead letters of what was not routed, and the archive to targets", async () => {
      const archive = new Shelf();
      const pawl = await place.open({ archive, logger: false });
      let isOpen = false;
      await pawl.stream("ann").append(deposits(2));
      const worker = pawl.work([slow(() => isOpen)]);
      await expect
        .poll(async () => (await pawl.reactions.targets("slow", { status: "blocked" })).targets.length, PATIENCE)
        .toBe(1);
      await worker.stop();
      await pawl.stream("ann").append(deposits(2));
      expect(await pawl.streams.close("ann", { force: true, actor: "bob", reason: "now" })).toMatchObject({
        version: 5,
      });
      const { letters } = await pawl.reactions.deadLetters("slow");
      expect(letters.map(({ stream, version, actor, reason }) => [stream, version, actor, reason])).toEqual([
        ["ann", 3, "bob", "now"],
        ["ann", 4, "bob", "now"],
      ]);
      isOpen = true;
      await pawl.reactions.unblock("slow", {});
      await pawl.reactions.redrive("slow", { stream: "ann", version: 3, target: "t-ann" });
      pawl.work([slow(() => isOpen)]);
      await expect.poll(async () => (await pawl.reactions.target("slow", "t-ann")).handled, PATIENCE).toBe(3);
    });

    test("an event that a worker is about to route, when it is closed by force, is a dead letter and nothing else", async () => {
      const pawl = await place.open({ archive: new Shelf(), logger: false });
      const routing = await place.openHandle({ logger: false });
      const gate = Promise.withResolvers<void>();
      const arrived = Promise.withResolvers<void>();
      const handled: string[] = [];
      const late = reaction(
        "late",
        {
          on: [Deposited],
          target: (e) => {
            // The next commit of this process routes the event.
            if (e.stream === "ann") {
              routing.hold("request", gate.promise);
              arrived.resolve();
            }
            return e.stream;
          },
        },
        (e) => void handled.push(brief(e)),
      );
      await pawl.stream("ann").append(deposits(2));
      routing.pawl.work([late]);
      await arrived.promise;
      await pawl.streams.close("ann", { force: true });
      gate.resolve();
      await pawl.stream("bob").append(deposits(1));
      await expect.poll(() => handled, PATIENCE).toContain("bob 1 Deposited");
      await expect.poll(async () => (await pawl.reactions.get("late")).unrouted, PATIENCE).toBe(0);
      const { letters } = await pawl.reactions.deadLetters("late");
      expect(letters.map(({ stream, version }) => `${stream} ${version}`)).toEqual(["ann 1", "ann 2"]);
      expect(await codeOf(pawl.reactions.target("late", "ann"))).toBe("target_not_found");
      expect(handled).toEqual(["bob 1 Deposited"]);
      // What was put aside is forgotten when the reaction is past it; sent again, it is handled.
      const [row] = await pawl.kernel.read([reactionAt("late")]);
      expect(pawl.kernel.decode(reactionAt("late"), row?.value ?? "")).not.toHaveProperty("aside");
    });

    test("one that a worker routes while it is closed by force, after it was looked for, is no dead letter", async () => {
      const archive = new Shelf();
      const closing = await place.openHandle({ archive, logger: false });
      const { pawl } = closing;
      const handled: string[] = [];
      const soon = reaction("soon", { on: [Deposited] }, (e) => void handled.push(brief(e)));
      const worker = pawl.work([soon]);
      await expect.poll(async () => (await pawl.reactions.list()).length, PATIENCE).toBe(1);
      await worker.stop();
      await pawl.stream("ann").append(deposits(2));
      const gate = Promise.withResolvers<void>();
      const arrived = Promise.withResolvers<void>();
      const { kernel } = pawl;
      const entries = kernel.entries.bind(kernel);
      // The last look at the events before dead letters are written; those that are archived were read before.
      archive.onRead = () => {
        kernel.entries = async (...given) => {
          kernel.entries = entries;
          const found = await entries(...given);
          closing.hold("request", gate.promise);
          arrived.resolve();
          return found;
        };
      };
      const closed = pawl.streams.close("ann", { force: true });
      await arrived.promise;
      const other = await place.open({ archive, logger: false });
      other.work([soon]);
      await expect.poll(() => handled, PATIENCE).toEqual(["ann 1 Deposited", "ann 2 Deposited"]);
      gate.resolve();
      expect(await closed).toMatchObject({ version: 3 });
      expect((await pawl.reactions.deadLetters("soon")).letters).toEqual([]);
    });

    test("a letter that was sent again is not written again by a repeated closing", async () => {
      const archive = new Shelf();
      const pawl = await place.open({ archive, logger: false });
      const worker = pawl.work([slow(() => true)]);
      await expect.poll(async () => (await pawl.reactions.list()).length, PATIENCE).toBe(1);
      await worker.stop();
      await pawl.stream("ann").append(deposits(2));
      // The letters are written, and the process dies before it says that the events may be removed.
      const closing = await place.openHandle({ archive, logger: false });
      archive.onRead = () => closing.dieBefore(2);
      void closing.pawl.streams.close("ann", { force: true });
      await expect.poll(() => closing.isDead(), PATIENCE).toBe(true);
      archive.onRead = () => {};
      await pawl.reactions.redrive("slow", { stream: "ann", version: 1, target: "t-ann" });
      await pawl.streams.close("ann", { force: true });
      const { letters } = await pawl.reactions.deadLetters("slow");
      expect(letters.map(({ version }) => version)).toEqual([2]);
      expect(await pawl.reactions.target("slow", "t-ann")).toMatchObject({ pending: 1 });
    });
  });
});
