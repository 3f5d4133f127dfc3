/**
 * Goal: a response that succeeded but did not come from a Pawl server, or not whole, is an error of the client, and never a value or an error of the language.
 * Method: every verb that returns something meets each broken response; the members that are expected are compared with the OpenAPI document.
 */

import { describe, expect, test } from "vitest";
import { type Client, createClient, PawlHttpError } from "../../src/http/client/index.ts";
import { lackOf, MEMBERS, routeOf } from "../../src/http/client/replies.ts";
import { createApp } from "../../src/http/server/index.ts";
import { open } from "../../src/index.ts";

const BROKEN: Readonly<Record<string, string>> = {
  empty: "",
  "a page of HTML": "<html>",
  truncated: '{"items":[{"id":"a","vers',
  null: "null",
  "a list": "[]",
  "a text": '"ok"',
  "an object of something else": "{}",
  "a list that is none": '{"items":5,"next":null}',
  "a list of nothing": '{"items":[null],"next":null}',
  "a list without an end": '{"items":[]}',
};

const rate = { max: 1, per: "1s" } as const;
async function first(items: AsyncIterable<unknown>): Promise<unknown> {
  for await (const item of items) return item;
  return undefined;
}

const VERBS: Readonly<Record<string, (client: Client) => Promise<unknown>>> = {
  start: (c) => c.start("w"),
  result: (c) => c.run("r").result(),
  status: (c) => c.run("r").status(),
  history: (c) => c.run("r").history(),
  signal: (c) => c.run("r").signal("go"),
  cancel: (c) => c.run("r").cancel(),
  "runs.list": async (c) => c.runs.list(),
  "runs.change": (c) => c.runs.change({ action: "cancel", ids: ["r"] }),
  whyWaiting: (c) => c.whyWaiting({ run: "r" }),
  "workflows.paused": (c) => c.workflows.paused(),
  "workflows.resume": (c) => c.workflows.resume("w"),
  "slot.get": (c) => c.slot("x").get(),
  "slot.set": (c) => c.slot("x").set(1),
  "slot.update": (c) => c.slot("x").update(() => 1),
  "slot.delete": (c) => c.slot("x").delete(),
  "slots.list": (c) => first(c.slots.list()),
  "lock.acquire": (c) => c.mutex("door").acquire(),
  "lock.tryAcquire": (c) => c.semaphore("door").tryAcquire(),
  "lock.inspect": (c) => c.mutex("door").inspect(),
  "lock.history": (c) => c.mutex("door").history(),
  "rateLimit.tryAcquire": (c) => c.rateLimit("mail", rate).tryAcquire(),
  "rateLimit.inspect": (c) => c.rateLimit("mail", rate).inspect(),
  "actions.create": (c) => c.actions.create(),
  "actions.get": (c) => c.actions.get("a"),
  "actions.list": async (c) => c.actions.list(),
  "actions.history": (c) => c.actions.history("a"),
  "actions.consume": (c) => c.actions.consume("a"),
  "actions.tryClaim": (c) => c.actions.tryClaim("a"),
  dedupe: (c) => c.dedupe("c", "m"),
  "machine.get": (c) => c.machine("order").get("o"),
  "machine.transition": (c) => c.machine("order").transition("o", "paid"),
  "machine.list": (c) => first(c.machine("order").list()),
  "stream.append": (c) => c.stream("s").append([{ name: "n" }]),
  "stream.head": (c) => c.stream("s").head(),
  "stream.read": (c) => first(c.stream("s").read()),
  "stream.follow": (c) => first(c.stream("s").follow()),
  "events.read": (c) => first(c.events.read()),
  "events.follow": (c) => first(c.events.follow()),
  "slot.watch": (c) => first(c.slot("x").watch()),
  "run.follow": (c) => first(c.run("r").follow()),
  "reactions.list": (c) => c.reactions.list(),
  "projections.list": (c) => c.projections.list(),
  "projection.status": (c) => c.projection("p").status(),
  "projection.rebuild": (c) => c.projection("p").rebuild(),
  "reactions.unblock": (c) => c.reactions.unblock("r", {}),
  "schedules.create": (c) => c.schedules.create("s", { cron: "* * * * *" }, "w"),
  "schedules.backfill": (c) => c.schedules.backfill("s", { from: 0, to: 1 }),
  "schedules.preview": (c) => c.schedules.preview("s"),
  "tasks.create": (c) => c.tasks.create({ targetUrl: "https://example.com/" }),
  "tasks.get": (c) => c.tasks.get("t"),
  "tasks.list": (c) => first(c.tasks.list()),
  "tasks.signal": (c) => c.tasks.signal("secret-token", { status: "completed" }),
  "keys.create": (c) => c.keys.create({ name: "x", scopes: ["read"] }),
  "keys.history": (c) => c.keys.history("k"),
};

/** A client whose server sends this. */
function sent(body: string, type = "application/json"): { readonly client: Client; readonly count: () => number } {
  let count = 0;
  const client = createClient({
    url: "http://server",
    fetch: async () => {
      count += 1;
      return new Response(body, { headers: { "content-type": type, "x-request-id": "q1" } });
    },
  });
  return { client, count: () => count };
}

describe("a response that is not one of the server", () => {
  describe.each(Object.keys(VERBS))("%s", (name) => {
    test.each(Object.keys(BROKEN))("%s", async (kind) => {
      const { client, count } = sent(BROKEN[kind] ?? "");
      const error = await VERBS[name]?.(client).catch((error: unknown) => error);
      expect(error).toBeInstanceOf(PawlHttpError);
      expect(error).toMatchObject({ code: "unexpected_response", status: 200, requestId: "q1" });
      const { message, data } = error as PawlHttpError;
      expect(message).toContain(String(data["route"]));
      expect(message).not.toContain("secret-token");
      // It may have had its effect.
      expect(count()).toBe(1);
    });
  });

  const lists = [
    "slots.list",
    "machine.list",
    "tasks.list",
    "stream.read",
    "history",
    "lock.history",
    "actions.history",
  ];
  test.each(lists)("a page of %s whose `next` is where it began", async (name) => {
    const { client, count } = sent('{"items":[],"next":"7"}');
    await expect(VERBS[name]?.(client)).rejects.toMatchObject({ code: "unexpected_response", status: 200 });
    expect(count()).toBe(2);
  });

  test("a list without an end, from a `fetch` that responds immediately, lets other work run", async () => {
    const stop = new AbortController();
    let count = 0;
    const fetch = async () => {
      count += 1;
      if (count > 1000) throw new Error("nothing else ran");
      return Response.json({ items: [], next: String(count) });
    };
    const client = createClient({ url: "http://server", fetch, patience: 0, abortSignal: stop.signal });
    setTimeout(() => stop.abort(new Error("other work")), 0);
    await expect(first(client.runs.list())).rejects.toThrow("other work");
  });

  test.each(["{", "5", "null"])("an event whose data is %s", async (data) => {
    for (const name of ["stream.follow", "events.follow", "slot.watch", "run.follow"]) {
      const { client } = sent(`id: 1\ndata: ${data}\n\n`, "text/event-stream");
      await expect(VERBS[name]?.(client)).rejects.toMatchObject({ code: "unexpected_response", status: 200 });
    }
  });

  test.each([
    ["$bigint", "x"],
    ["$bytes", "%"],
    ["$map", 5],
    ["$set", 5],
    ["$error", null],
  ])("a value with the tag %s and %j in it", async (tag, content) => {
    const { client } = sent(JSON.stringify({ name: "x", version: 1, value: { [tag]: content } }));
    await expect(client.slot("x").get()).rejects.toMatchObject({ code: "unexpected_response" });
  });
});

test("the members are those that the document promises, of every route that returns JSON", async () => {
  const pawl = await open("memory:", { logger: false });
  const app = createApp(pawl, { keys: "none", logger: false });
  interface Schema {
    readonly $ref?: string;
    readonly allOf?: readonly Schema[];
    readonly required?: readonly string[];
  }
  const document = (await (await app.request("/v1/openapi.json")).json()) as {
    readonly paths: Record<
      string,
      Record<string, { responses: Record<string, { content?: Record<string, { schema: Schema }> }> }>
    >;
    readonly components: { readonly schemas: Record<string, Schema> };
  };
  const requiredBy = ({ $ref, allOf = [], required = [] }: Schema): readonly string[] => [
    ...required,
    ...allOf.flatMap(requiredBy),
    ...($ref === undefined ? [] : requiredBy(document.components.schemas[$ref.split("/").at(-1) ?? ""] ?? {})),
  ];
  const routes = new Set<string>();
  for (const [path, methods] of Object.entries(document.paths))
    for (const [method, { responses }] of Object.entries(methods))
      for (const [status, { content }] of Object.entries(responses)) {
        const schema = content?.["application/json"]?.schema;
        if (schema === undefined || !status.startsWith("2")) continue;
        const route = `${method.toUpperCase()} ${path.slice(3).replace(/\{\w+\}/g, "*")}`;
        routes.add(route);
        expect(requiredBy(schema), route).toEqual(
          expect.arrayContaining([...(MEMBERS.get(route) ?? ["none is listed"])]),
        );
      }
  expect([...MEMBERS.keys()].filter((route) => !routes.has(route))).toEqual([]);
  await pawl.close();
});

test.each([
  ["POST", "/runs/bulk", "POST /runs/bulk"],
  ["GET", "/runs/bulk", "GET /runs/*"],
  ["GET", "/streams/s/events", "GET /streams/*/events"],
  ["POST", "/tasks/redrive/redrive", "POST /tasks/*/redrive"],
  ["POST", "/machines/order/redrive", "POST /machines/*/*"],
  ["DELETE", "/runs/secret", "DELETE /runs/*"],
])("%s %s is %s", (method, path, route) => expect(routeOf(method, path)).toBe(route));

test("a route that returns nothing lacks nothing", () => expect(lackOf("DELETE /runs/*", undefined)).toBeUndefined());
