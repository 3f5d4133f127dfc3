/** Which address a request is from, what it is counted by, and how many requests without a valid key may come from there. */

import { expect, test } from "vitest";
import { addressOf, proxyList, Strangers, senderOf } from "./addresses.ts";
import type { Problem } from "./problem.ts";

/** Requests of one address at these times, two of which may come in two seconds: whether each is let through, or `Retry-After`. */
function counted(timesMs: readonly number[]): readonly (true | string | undefined)[] {
  let nowMs = 0;
  const clock = { nowMs: () => nowMs, after: () => () => {}, soon: () => {} };
  const strangers = new Strangers(clock, { max: 2, perMs: 2000 });
  return timesMs.map((atMs) => {
    nowMs = atMs;
    try {
      strangers.count("192.0.2.1");
      return true;
    } catch (error) {
      return (error as Problem).headers["retry-after"];
    }
  });
}

const rules = [
  { rule: "as many as may be come at once", timesMs: [0, 0, 0], are: [true, true, "1"] },
  { rule: "then each waits for its turn", timesMs: [0, 0, 999, 1000, 1001], are: [true, true, "1", true, "1"] },
  {
    rule: "one that comes too often is let through as often as may be",
    timesMs: [0, 0, 600, 1200, 1800, 2400, 2900],
    are: [true, true, "1", true, "1", true, "1"],
  },
  { rule: "no more are saved up", timesMs: [0, 9000, 9000, 9000], are: [true, true, true, "1"] },
] as const;

test.each(rules)("$rule", ({ timesMs, are }) => {
  expect(counted(timesMs)).toEqual(are);
});

const senders = [
  { rule: "IPv4 by address", one: "192.0.2.1", other: "192.0.2.2", isSame: false },
  { rule: "IPv4 written as IPv6 as IPv4", one: "::ffff:192.0.2.1", other: "192.0.2.1", isSame: true },
  { rule: "in any spelling", one: "0:0:0:0:0:FFFF:c000:201", other: "192.0.2.1", isSame: true },
  { rule: "and by address", one: "::ffff:192.0.2.1", other: "::ffff:192.0.2.2", isSame: false },
  {
    rule: "IPv6 by its first 64 bits",
    one: "2001:db8:1:2::1",
    other: "2001:DB8:1:2:ffff:ffff:ffff:ffff",
    isSame: true,
  },
  { rule: "IPv6 of two networks as two", one: "2001:db8:1:2::1", other: "2001:db8:1:3::1", isSame: false },
  { rule: "IPv6 of a link without its zone", one: "fe80::1%eth0", other: "fe80::2", isSame: true },
  { rule: "no network of IPv6 as an address of IPv4", one: "c000:201::1", other: "192.0.2.1", isSame: false },
] as const;

test.each(senders)("counts $rule", ({ one, other, isSame }) => {
  expect(senderOf(one) === senderOf(other)).toBe(isSame);
});

const forwarded = [
  { rule: "a proxy is known in any spelling", from: "::ffff:a00:1", header: "192.0.2.1", is: "192.0.2.1" },
  { rule: "also one that another names", from: "10.0.0.1", header: "192.0.2.1, ::FFFF:a00:2", is: "192.0.2.1" },
  { rule: "others are not believed", from: "192.0.2.9", header: "192.0.2.1", is: "192.0.2.9" },
] as const;

test.each(forwarded)("of the address of a request: $rule", ({ from, header, is }) => {
  const request = new Request("http://x/", { headers: { "x-forwarded-for": header } });
  expect(addressOf(request, { incoming: { socket: { remoteAddress: from } } }, proxyList(["10.0.0.0/8"]))).toBe(is);
});
