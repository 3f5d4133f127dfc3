/**
 * Goal: nothing that a reaction was to do is lost without a word: it is tried again, or an operator can read why it was not done.
 * Method: upcasts and target functions that throw, handlers that write after their commit, events of a shape that the code does not know; what the logger
 * got and what `pawl.reactions` says.
 */

import { expect, test } from "vitest";
import { event, projection, type ReactionContext, reaction } from "../../src/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores, PATIENCE } from "../workflow/kit.ts";

/** What was logged. */
class Lines {
  readonly lines: string[] = [];
  readonly warn = (line: string): void => void this.lines.push(line);
  readonly error = this.warn;
}

const Paid = event("Paid");
const Mailed = event("Mailed");

const soon = { delay: 1, maxDelay: 1, jitter: 0 } as const;

/** An event of two shapes. The upcast fails until `state.isFixed`. */
function twoShapes() {
  const state = { isFixed: false };
  const Old = event<{ readonly name: string | null }>("Named");
  const Named = event<{ readonly name: string }>("Named", {
    shape: 2,
    upcast: {
      1: ({ name }: { readonly name: string | null }) => {
        if (name === null && !state.isFixed) throw new Error("the name is null");
        return { name: name ?? "" };
      },
    },
  });
  return { state, Old, Named };
}

onStores(EVERY, (place) => {
  test("an upcast that throws is tried again, blocks its stream, and no later event overtakes it", async () => {
    const logger = new Lines();
    const pawl = await place.open({ logger });
    const { state, Old, Named } = twoShapes();
    const seen: string[] = [];
    const greet = reaction("greet", { on: [Named], retry: { attempts: 3, ...soon } }, (e) => {
      seen.push(`${e.stream} ${e.version} ${e.data.name}`);
    });
    pawl.work([greet]);
    await pawl.stream("ann").append([Old({ name: null }), Old({ name: "ann" })]);
    await pawl.stream("bob").append([Old({ name: "bob" })]);
    await expect
      .poll(async () => (await pawl.reactions.target("greet", "ann").catch(() => null))?.status, PATIENCE)
      .toBe("blocked");
    await expect.poll(() => seen, PATIENCE).toEqual(["bob 1 bob"]);
    const { failures, lastError } = await pawl.reactions.target("greet", "ann");
    expect({ failures, message: lastError?.message }).toEqual({ failures: 3, message: "the name is null" });
    expect((await pawl.reactions.deadLetters("greet")).letters).toEqual([]);
    expect(logger.lines.filter((line) => line.includes('target "ann" of reaction "greet" is blocked'))).toHaveLength(1);
    state.isFixed = true;
    await pawl.reactions.unblock("greet", {});
    await expect.poll(() => seen, PATIENCE).toEqual(["bob 1 bob", "ann 1 ", "ann 2 ann"]);
  });

  test("where the target needs data whose upcast throws, the event is a dead letter that is named and logged", async () => {
    const logger = new Lines();
    const pawl = await place.open({ logger });
    const { Old, Named } = twoShapes();
    const seen: number[] = [];
    const greet = reaction("greet", { on: [Named], target: (e) => `of-${e.data.name}` }, (e) => {
      seen.push(e.version);
    });
    pawl.work([greet]);
    await pawl.stream("ann").append([Old({ name: null }), Old({ name: "ann" })]);
    await expect.poll(() => seen, PATIENCE).toEqual([2]);
    const message = 'the target of event 1 of stream "ann" ("Named") could not be computed: the name is null';
    const { letters } = await pawl.reactions.deadLetters("greet");
    expect(letters.map((letter) => letter.message)).toEqual([message]);
    await expect
      .poll(() => logger.lines, PATIENCE)
      .toEqual([`pawl: an event of reaction "greet" became a dead letter: ${message}`]);
  });

  test("what a handler writes or throws after its commit is refused and logged", async () => {
    const logger = new Lines();
    const pawl = await place.open({ logger });
    const codes: unknown[] = [];
    const late = (name: string, after: (context: ReactionContext) => unknown) =>
      reaction(name, { on: [Paid] }, async (_, context) => {
        await context.commit((tx) => tx.stream(`by-${name}`).append([Mailed()]));
        await after(context);
      });
    const again = ({ commit }: ReactionContext) => commit((tx) => tx.stream("late").append([Mailed()]));
    const reactions = [
      late("again", again),
      late("ignored", async (context) => void codes.push(await codeOf(again(context)))),
      // Not awaited: that must not end the process.
      late("unawaited", (context) => void again(context)),
      late("emits", ({ emit }) => emit("late", [Mailed()])),
      late("throws", () => {
        throw new Error("too late");
      }),
    ];
    pawl.work(reactions);
    await pawl.stream("ann").append([Paid()]);
    for (const { name } of reactions)
      await expect
        .poll(async () => (await pawl.reactions.target(name, "ann").catch(() => null))?.status, PATIENCE)
        .toBe("idle");
    for (const { name } of reactions) expect(await pawl.stream(`by-${name}`).head()).toBe(1);
    expect(codes).toEqual(["reaction_over"]);
    expect(await pawl.stream("late").head()).toBe(0);
    const after = (name: string, verb: string) =>
      `pawl: ${verb} was called in reaction "${name}" after the commit of its attempt at event 1 of stream "ann": it has no effect`;
    expect(logger.lines.toSorted()).toEqual(
      [
        after("again", "commit"),
        after("ignored", "commit"),
        after("unawaited", "commit"),
        after("emits", "emit"),
        'pawl: the handler of reaction "throws" threw after its commit at event 1 of stream "ann", which is handled: too late',
      ].toSorted(),
    );
  });

  test("an event of a shape that the code does not know is named in the log and in `get`, until code that does routes it", async () => {
    const logger = new Lines();
    const pawl = await place.open({ logger });
    const Old = event<{ readonly n: number }>("Grown");
    const Grown = event<{ readonly n: number }>("Grown", {
      shape: 2,
      upcast: { 1: (data: { readonly n: number }) => data },
    });
    const seen: number[] = [];
    const watch = (type: typeof Old) => reaction("watch", { on: [type] }, (e) => void seen.push(e.version));
    const worker = pawl.work([watch(Old)]);
    await pawl.stream("ann").append([Old({ n: 1 })]);
    await expect.poll(() => seen, PATIENCE).toEqual([1]);
    expect((await pawl.reactions.get("watch")).failure).toBe(null);
    await pawl.stream("ann").append([Grown({ n: 2 })]);
    const message = 'event "Grown" has shape 2, and this code knows shapes up to 1';
    await expect
      .poll(async () => (await pawl.reactions.get("watch")).failure, PATIENCE)
      .toEqual({ message, stack: expect.any(String), stream: "ann", version: 2, at: expect.any(Date) });
    await expect
      .poll(() => logger.lines[0], PATIENCE)
      .toBe(`pawl: the worker had trouble: reaction "watch" does not get ahead at event 2 of stream "ann": ${message}`);
    await worker.stop();
    pawl.work([watch(Grown)]);
    await expect.poll(() => seen, PATIENCE).toEqual([1, 2]);
    await expect.poll(async () => (await pawl.reactions.get("watch")).failure, PATIENCE).toBe(null);
  });

  test("a worker that does not know the shape of an event that others routed leaves it to them, and blocks nothing", async () => {
    const logger = new Lines();
    const pawl = await place.open({ logger });
    const Old = event<{ readonly n: number }>("Grown");
    const Grown = event<{ readonly n: number }>("Grown", {
      shape: 2,
      upcast: { 1: (data: { readonly n: number }) => data },
    });
    const seen: number[] = [];
    const watch = (type: typeof Old, handler: (version: number) => void) =>
      reaction("watch", { on: [type], retry: { attempts: 2, ...soon } }, (e) => handler(e.version));
    const newer = pawl.work([
      watch(Grown, () => {
        throw new Error("not yet");
      }),
    ]);
    await pawl.stream("ann").append([Grown({ n: 1 })]);
    await expect
      .poll(async () => (await pawl.reactions.target("watch", "ann").catch(() => null))?.status, PATIENCE)
      .toBe("blocked");
    await newer.stop();
    const older = pawl.work([watch(Old, () => {})]);
    await pawl.reactions.unblock("watch", {});
    await expect
      .poll(async () => (await pawl.reactions.target("watch", "ann")).lastError?.name, PATIENCE)
      .toBe("EventShapeError");
    expect(await pawl.reactions.target("watch", "ann")).toMatchObject({
      status: "retrying",
      failures: 0,
      lostLeases: 0,
    });
    expect(
      logger.lines.some((line) => line.includes('reaction "watch" does not get ahead at event 1 of stream "ann"')),
    ).toBe(true);
    await older.stop();
    pawl.work([watch(Grown, (version) => void seen.push(version))]);
    await expect.poll(() => seen, PATIENCE).toEqual([1]);
  });
});

test.each(["reaction", "projection", "projection.sql"])("%s refuses an event that is named twice", (kind) => {
  const V1 = event<{ readonly n: number }>("A");
  const V2 = event<{ readonly n: number }>("A", { shape: 2, upcast: { 1: (data: { readonly n: number }) => data } });
  const on = [V2, V1] as const;
  const define = {
    reaction: () => reaction("r", { on }, () => {}),
    projection: () => projection("p", { on }, () => 1),
    "projection.sql": () => projection.sql("p", { on }, () => {}),
  }[kind];
  expect(define).toThrow('must not have event "A" twice');
});
