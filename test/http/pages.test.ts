/**
 * Goal: no list makes a response, or reads what grows with `limit` alone: values have up to a megabyte.
 * Method: lists of large values are read page by page, as one asks for as many as possible; together the pages have all items, in order.
 */

import { beforeEach, describe, expect, test, vi } from "vitest";
import { type Client, createClient } from "../../src/http/client/index.ts";
import { event, machine, workflow } from "../../src/index.ts";
import { type Served, served } from "./kit.ts";

const LARGE = "x".repeat(1_000_000);
const COUNT = 12;
const numbers = Array.from({ length: COUNT }, (_, i) => i);
const idOf = (i: number): string => `n${String(i).padStart(4, "0")}`;

const order = machine("order", { initial: "new", transitions: { new: ["new"] } });
const noted = event<string>("noted");
const big = workflow("big", async (ctx) => {
  for (const i of numbers) await ctx.step(`s${i}`, () => LARGE);
});

let kit: Served;
let client: Client;

beforeEach(async () => {
  kit = await served({ machines: [order] });
  client = createClient({ url: kit.url, key: await kit.key(["admin"]) });
});

async function fillStream(): Promise<void> {
  for (const _ of numbers) await kit.pawl.stream("s").append([noted(LARGE)]);
}

async function fillHistory(): Promise<void> {
  kit.pawl.work([big]);
  await (await kit.pawl.start(big, undefined, { id: "r" })).result();
}

const LISTS: readonly {
  readonly list: string;
  readonly path: string;
  readonly fill: () => Promise<unknown>;
  readonly next?: string;
  /** The same with the client. */
  readonly all: () => Promise<number>;
}[] = [
  {
    list: "slots",
    path: "/v1/slots",
    fill: () => Promise.all(numbers.map((i) => kit.pawl.slot(idOf(i)).set(LARGE))),
    all: () => countOf(client.slots.list({ limit: 1000 })),
  },
  {
    list: "instances of a machine",
    path: "/v1/machines/order",
    fill: () => Promise.all(numbers.map((i) => kit.pawl.machine(order).create(idOf(i), { data: LARGE } as never))),
    all: () => countOf(client.machine("order").list({ limit: 1000 })),
  },
  {
    list: "the log of an instance",
    path: "/v1/machines/order/o/history",
    fill: async () => {
      await kit.pawl.machine(order).create("o");
      for (const _ of numbers.slice(1)) await kit.pawl.machine(order).transition("o", "new", { data: LARGE } as never);
    },
    all: async () => (await client.machine("order").history("o", { limit: 1000 })).length,
  },
  {
    list: "events of a stream",
    path: "/v1/streams/s/events",
    fill: fillStream,
    next: "from",
    all: () => countOf(client.stream("s").read()),
  },
  {
    list: "events of a stream, backwards",
    path: "/v1/streams/s/events?direction=backwards",
    fill: fillStream,
    next: "from",
    all: () => countOf(client.stream("s").read({ backwards: true })),
  },
  {
    list: "events of all streams",
    path: "/v1/events",
    fill: fillStream,
    all: () => countOf(client.events.read()),
  },
  {
    list: "the history of a run",
    path: "/v1/runs/r/history",
    fill: fillHistory,
    all: async () => (await client.run("r").history()).filter(({ name }) => name.startsWith("step")).length,
  },
];

async function countOf(items: AsyncIterable<unknown>): Promise<number> {
  let count = 0;
  for await (const _ of items) count += 1;
  return count;
}

describe.each(LISTS)("$list", ({ path, fill, next: name = "after", all }) => {
  test("a page of large values ends after a few of them, and `next` continues with the others", async () => {
    await fill();
    const seen: unknown[] = [];
    let pages = 0;
    for (let next: unknown = ""; next !== null && pages < 2 * COUNT; pages += 1) {
      const query = `limit=1000${next === "" ? "" : `&${name}=${next}`}`;
      const { json, text } = await kit.send("GET", `${path}${path.includes("?") ? "&" : "?"}${query}`);
      expect(text.length).toBeLessThan(6_000_000);
      const items = json["items"] as { readonly id?: string; readonly version?: number }[];
      seen.push(...items.map(({ id, version }) => `${id} ${version}`));
      // The last page of all events says only where to continue.
      next = items.length === 0 ? null : json["next"];
    }
    expect(pages).toBeGreaterThan(2);
    expect(seen.length).toBeGreaterThanOrEqual(COUNT);
    expect(new Set(seen).size).toBe(path === "/v1/slots" ? 1 : seen.length);
    expect(await all()).toBe(COUNT);
  });
});

test("what is read for a page is bounded, also where large values come after many small ones", async () => {
  await Promise.all(Array.from({ length: 200 }, (_, i) => kit.pawl.slot(idOf(i)).set(i < 100 ? i : LARGE)));
  const list = vi.spyOn(kit.pawl.kernel, "list");
  const { json, text } = await kit.send("GET", "/v1/slots?limit=1000");
  expect(text.length).toBeLessThan(6_000_000);
  expect((json["items"] as unknown[]).length).toBeGreaterThanOrEqual(20);
  expect(Math.max(...list.mock.calls.map(([{ limit }]) => limit))).toBeLessThanOrEqual(65);
  const names: string[] = [];
  for await (const { name } of client.slots.list({ limit: 1000 })) names.push(name);
  expect(names).toEqual(Array.from({ length: 200 }, (_, i) => idOf(i)));
});

test("a page of small items has as many as it may, and refuses another limit as before", async () => {
  await Promise.all(Array.from({ length: 130 }, (_, i) => kit.pawl.slot(idOf(i)).set(i)));
  for (const [query, count, next] of [
    ["", 100, idOf(99)],
    ["?limit=7", 7, idOf(6)],
    ["?limit=130", 130, null],
    ["?limit=1000&prefix=n01", 30, null],
  ] as const) {
    const { json } = await kit.send("GET", `/v1/slots${query}`);
    expect([(json["items"] as unknown[]).length, json["next"]], query).toEqual([count, next]);
  }
  for (const limit of [0, 1001])
    expect((await kit.send("GET", `/v1/slots?limit=${limit}`)).json["code"]).toBe("invalid_argument");
});
