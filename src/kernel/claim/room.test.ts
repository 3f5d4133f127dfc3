import { describe, expect, it } from "vitest";
import { WaitingRoom } from "./room.ts";

const LEASE_MS = 30_000;

const room = (leaseMs = LEASE_MS): WaitingRoom<string> => new WaitingRoom(leaseMs);

/** The work on a record was done each millisecond, for three seconds. */
function busy(waiting: WaitingRoom<string>): WaitingRoom<string> {
  for (let ms = 0; ms <= 3000; ms++) waiting.done(ms);
  return waiting;
}

describe("a waiting room", () => {
  it("is left in the order in which it was entered", () => {
    const waiting = room();
    for (let index = 0; index < 100; index++) waiting.enter(`${index}`, 0);
    const left = Array.from({ length: 100 }, () => waiting.next());
    expect(left).toEqual(Array.from({ length: 100 }, (_, index) => `${index}`));
    expect(waiting.next()).toBeUndefined();
    expect(waiting.size).toBe(0);
  });

  it("releases what has waited for two seconds, at that moment and not before", () => {
    const waiting = room();
    waiting.enter("early", 0);
    waiting.enter("late", 1);
    expect(waiting.nextTooLongMs).toBe(2000);
    expect(waiting.takeLate(1999)).toEqual([]);
    expect(waiting.takeLate(2000)).toEqual(["early"]);
    expect(waiting.next()).toBe("late");
    expect(waiting.nextTooLongMs).toBeUndefined();
  });

  it("releases what has waited for a third of a short lease", () => {
    const waiting = room(3000);
    waiting.enter("early", 0);
    expect([waiting.takeLate(999), waiting.takeLate(1000)]).toEqual([[], ["early"]]);
    expect(busy(room(3000)).capacity).toBe(1000);
  });

  it("does not trust a rate at which something has waited too long", () => {
    const waiting = busy(room());
    waiting.enter("early", 3000);
    expect(waiting.takeLate(4999)).toEqual([]);
    expect(waiting.capacity).toBe(2000);
    waiting.takeLate(5000);
    expect(waiting.capacity).toBe(0);
  });

  it("releases what is chosen, and keeps the order of the others", () => {
    const waiting = room();
    for (const item of ["a", "b", "c", "d"]) waiting.enter(item, 0);
    waiting.next();
    expect(waiting.take((item) => item === "c")).toEqual(["c"]);
    expect([waiting.next(), waiting.next(), waiting.next()]).toEqual(["b", "d", undefined]);
  });

  it("has no space before a rate is known", () => {
    expect(room().capacity).toBe(0);
  });

  it("has space for what was done in two seconds, by the rate of a whole second", () => {
    expect(busy(room()).capacity).toBe(2000);
  });

  it("is no larger because much was done in one moment", () => {
    const waiting = room();
    for (let index = 0; index < 500; index++) waiting.done(0);
    waiting.done(1000);
    expect(waiting.capacity).toBe(1000);
  });

  it("forgets the rate while little is done", () => {
    const waiting = busy(room());
    waiting.done(103_000);
    expect(waiting.capacity).toBeLessThan(300);
  });

  it("does not take a clock that was moved back for a long pause, nor for one long window", () => {
    const waiting = room();
    for (let ms = 100_000; ms <= 103_000; ms++) waiting.done(ms);
    for (let ms = 0; ms <= 3000; ms++) waiting.done(ms);
    expect(waiting.capacity).toBe(2000);
  });

  it("has no claims ahead before there were two, and then as many as are done while three are made", () => {
    const waiting = room();
    for (let ms = 0; ms <= 100; ms++) waiting.done(ms);
    waiting.claimed(10, 100);
    expect(waiting.ahead).toBe(0);
    for (let ms = 101; ms <= 200; ms++) waiting.done(ms);
    waiting.claimed(10, 200);
    expect(waiting.ahead).toBe(30);
  });

  it("has claims ahead for a tenth of a second at most, however long a claim takes", () => {
    const waiting = room();
    waiting.claimed(500, 0);
    for (let ms = 0; ms < 1000; ms++) waiting.done(ms);
    waiting.claimed(500, 1000);
    expect(waiting.ahead).toBe(100);
  });

  it("has none after something has waited too long, and half as many after each claim that found nothing done", () => {
    const waiting = room();
    waiting.claimed(10, 0);
    for (let ms = 0; ms < 100; ms++) waiting.done(ms);
    waiting.claimed(10, 100);
    waiting.claimed(10, 200);
    expect(waiting.ahead).toBe(15);
    waiting.enter("early", 200);
    waiting.takeLate(2200);
    expect(waiting.ahead).toBe(0);
  });
});
