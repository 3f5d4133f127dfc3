/**
 * Goal: an event has one form over HTTP, on whichever route it is shown, and one that docs/http.md has.
 * Method: the library appends; the page of a stream, the page of all streams, and the live views of both must show the same, to the last member.
 */

import { readFileSync } from "node:fs";
import { expect, onTestFinished, test } from "vitest";
import { createClient, FORGOTTEN } from "../../src/http/client/index.ts";
import { event, open, type Pawl } from "../../src/index.ts";
import { ann, bob, KEYS, Registered, Upgraded } from "../stream/forget-kit.ts";
import { follow, type Served, served } from "./kit.ts";

type Shown = Readonly<Record<string, unknown>>;

async function opened(): Promise<Served> {
  const pawl: Pawl = await open("memory:", { logger: false, ...KEYS });
  onTestFinished(() => pawl.close());
  return served({}, pawl);
}

const itemsOf = (json: Record<string, unknown>): readonly Shown[] => json["items"] as readonly Shown[];

/** The first events of a stream, which is the only one, as each route shows them, without the cursor that only routes of all streams have. */
async function everywhere(
  kit: Served,
  stream: string,
  count: number,
): Promise<Readonly<Record<string, readonly Shown[]>>> {
  const live = async (path: string) => (await follow(kit, path, count)).map(({ data }) => data as Shown);
  const views = {
    "a page of the stream": itemsOf((await kit.send("GET", `/v1/streams/${stream}/events`)).json),
    "a page of the stream, backwards": itemsOf(
      (await kit.send("GET", `/v1/streams/${stream}/events?direction=backwards`)).json,
    ).toReversed(),
    "a page of all streams": itemsOf((await kit.send("GET", "/v1/events")).json),
    "the stream, live": await live(`/v1/streams/${stream}/events`),
    "all streams, live": await live("/v1/events"),
  };
  return Object.fromEntries(
    Object.entries(views).map(([view, events]) => [view, events.map(({ cursor: _, ...rest }) => rest)]),
  );
}

/** The same on all routes. */
async function shown(kit: Served, stream: string, count: number): Promise<readonly Shown[]> {
  const views = Object.entries(await everywhere(kit, stream, count));
  const [[, first = []] = []] = views;
  for (const [view, events] of views) expect(events, view).toEqual(first);
  expect(first).toHaveLength(count);
  return first;
}

test("personal fields of a person who was forgotten are shown as forgotten, and nothing of what they were", async () => {
  const kit = await opened();
  await kit.pawl.stream("s").append([Registered(ann), Registered(bob), Upgraded({ plan: "gold" })], {
    correlationId: "req-1",
  });
  expect((await shown(kit, "s", 3)).map(({ data }) => data)).toEqual([ann, bob, { plan: "gold" }]);

  await kit.pawl.forget(ann.id);
  const [first, ...others] = await shown(kit, "s", 3);
  expect(first).toEqual({
    stream: "s",
    version: 1,
    id: expect.any(String),
    name: "Registered",
    shape: 1,
    data: { ...ann, email: { $forgotten: true }, name: { $forgotten: true } },
    at: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
    correlationId: "req-1",
  });
  expect(others.map(({ data }) => data)).toEqual([bob, { plan: "gold" }]);
  const { text } = await kit.send("GET", "/v1/streams/s/events");
  expect(text).not.toMatch(/ann@canary|Ann Canary|sealed/);
});

test("the client reads FORGOTTEN where the server says that it is", async () => {
  const kit = await opened();
  await kit.pawl.stream("s").append([Registered(ann)]);
  await kit.pawl.forget(ann.id);
  const client = createClient({ url: kit.url, key: await kit.key(["read"]) });
  const read: unknown[] = [];
  for await (const { data } of client.stream("s").read()) read.push(data);
  expect(read).toStrictEqual([{ ...ann, email: FORGOTTEN, name: FORGOTTEN }]);
});

const broken = Object.assign(new RangeError("too far", { cause: new Error("why") }), { limit: 7n });

/** What JSON cannot hold, and its one form. */
const forms: readonly (readonly [what: string, value: unknown, form: unknown])[] = [
  ["a date", new Date(0), { $date: "1970-01-01T00:00:00.000Z" }],
  ["a bigint", 2n ** 70n, { $bigint: "1180591620717411303424" }],
  ["bytes", new Uint8Array([0, 255, 128]), { $bytes: "AP+A" }],
  ["a Buffer", Buffer.from("hi"), { $bytes: "aGk=" }],
  [
    "a map",
    new Map<unknown, unknown>([[new Date(0), 1n]]),
    { $map: [[{ $date: "1970-01-01T00:00:00.000Z" }, { $bigint: "1" }]] },
  ],
  ["a set", new Set([1, "a"]), { $set: [1, "a"] }],
  ["not a number", Number.NaN, { $number: "NaN" }],
  ["minus infinity", Number.NEGATIVE_INFINITY, { $number: "-Infinity" }],
  ["minus zero", -0, { $number: "-0" }],
  ["nothing", undefined, { $undefined: true }],
  [
    "an error, without its stack",
    broken,
    {
      $error: {
        name: "RangeError",
        message: "too far",
        cause: { $error: { name: "Error", message: "why" } },
        data: { limit: { $bigint: "7" } },
      },
    },
  ],
  ["an object that looks like a form", { $date: "today" }, { $$date: "today" }],
  ["an object with other members too", { $date: "today", b: 1 }, { $date: "today", b: 1 }],
];

test.each(forms)("%s has one form on every route, also deep within, and as it was sent", async (_, value, form) => {
  const kit = await opened();
  const Kept = event<unknown>("Kept");
  await kit.pawl.stream("s").append([Kept({ value }), Kept({ deep: [{ value }] })]);
  const sent = { events: [{ name: "Kept", data: { value: form } }] };
  expect((await kit.send("POST", "/v1/streams/s/events", sent)).status).toBe(201);
  const events = await shown(kit, "s", 3);
  expect(events.map(({ data }) => data)).toEqual([{ value: form }, { deep: [{ value: form }] }, { value: form }]);
  // What came by HTTP is for the library what it appends itself.
  const read: unknown[] = [];
  for await (const { data } of kit.pawl.stream("s").read()) read.push(data);
  expect(read[2]).toEqual(read[0]);
});

test("docs/http.md has every form", () => {
  const page = readFileSync(new URL("../../docs/http.md", import.meta.url), "utf8");
  const [, values = ""] = /^## Values\n([\s\S]*?)^## /m.exec(page) ?? [];
  const tags = forms.flatMap(([, , form]) => Object.keys(form as object)).filter((tag) => /^\$[a-z]/.test(tag));
  for (const tag of new Set([...tags, "$forgotten"])) expect(values).toContain(`{"${tag}":`);
});
