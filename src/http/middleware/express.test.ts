/**
 * Goal: the middleware satisfies its laws in an app of Express, in whatever way a handler writes its response.
 * Method: the laws of all adapters against a real server; then the ways of writing, and clients that disconnect.
 */

import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import express, { type Express } from "express";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { adapterLaws, CALLER, type Running } from "../../../test/idempotency/adapters.ts";
import { gate } from "../../../test/kernel/kit.ts";
import { sleep } from "../../../test/sql/grounds.ts";
import { Idempotency } from "../../idempotency/idempotency.ts";
import { open } from "../../index.ts";
import type { Tx } from "../../kernel/decision.ts";
import { plainly } from "../../kernel/sql/in-sql.ts";
import type { Pawl } from "../../pawl.ts";
import { expressIdempotency } from "./express.ts";

async function listen(app: Express): Promise<Running> {
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    fetch: (path, init) => fetch(`http://127.0.0.1:${port}${path}`, init),
    close: async () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** Errors of handlers are intended in these tests, so they are not logged. */
const quietly: express.ErrorRequestHandler = (error: { status?: number }, _req, res, _next) => {
  res.status(error.status ?? 500).json({ error: String(error) });
};

adapterLaws(
  "expressIdempotency",
  async (pawl, shop, options) => {
    const app = express();
    const idempotency = expressIdempotency(pawl, {
      ...options,
      scope: (req: express.Request) => req.header(CALLER) ?? "",
    });
    app.use(express.json({ strict: false }), idempotency);
    app.use(async (req, res) => {
      const { status, headers, body } = await shop.handle(req.path, req.body, idempotency.attempt(req));
      res.status(status);
      for (const [name, value] of headers) res.setHeader(name, value);
      if (Array.isArray(body)) await pipeline(Readable.from(body), res);
      else if (body === null) res.end();
      else res.end(body);
    });
    app.use(quietly);
    return listen(app);
  },
  { readsRequest: false },
);

describe("expressIdempotency alone", () => {
  let pawl: Pawl;
  let keys: Idempotency<Tx, object>;
  let running: Running | undefined;
  beforeEach(async () => {
    pawl = await open("memory:");
    keys = new Idempotency(pawl.kernel, plainly);
  });
  afterEach(async () => {
    await running?.close();
    await pawl.close();
  });
  const scope = () => "ann";
  const key = { "idempotency-key": "k" };

  const ways: [string, express.RequestHandler, number, string][] = [
    ["json", (_req, res) => void res.status(201).json({ a: 1 }), 201, '{"a":1}'],
    ["send", (_req, res) => void res.send("<p>text</p>"), 200, "<p>text</p>"],
    ["sendStatus", (_req, res) => void res.sendStatus(202), 202, "Accepted"],
    ["redirect", (_req, res) => res.redirect(303, "/orders/1"), 303, "See Other. Redirecting to /orders/1"],
    [
      "writeHead with an object",
      (_req, res) => void res.writeHead(201, { "content-type": "text/x", "x-a": ["1", "2"] }).end("made"),
      201,
      "made",
    ],
    [
      "writeHead with a reason and a list",
      (_req, res) => void res.writeHead(201, "Made", ["x-a", "1", "content-type", "text/x"]).end("made"),
      201,
      "made",
    ],
    [
      "pieces, encodings and callbacks",
      (_req, res) => {
        res.flushHeaders();
        res.write("a", () => {
          res.write("Yg==", "base64", () => void res.end("63", "hex"));
        });
      },
      200,
      "abc",
    ],
    [
      "an end with a callback only",
      (_req, res) => {
        res.write("a");
        res.end(() => {});
      },
      200,
      "a",
    ],
    ["two ends", (_req, res) => void res.end("a").end("b"), 200, "a"],
  ];
  test.each(ways)("a handler may reply by %s", async (_, handler, status, body) => {
    const app = express();
    app.post("/", express.json(), expressIdempotency(keys, { scope }), handler);
    running = await listen(app);
    const seen: object[] = [];
    for (const replayed of [null, "true"]) {
      const response = await running.fetch("/", { method: "POST", headers: key, redirect: "manual" });
      const headers = Object.fromEntries(response.headers);
      expect(headers["idempotent-replayed"] ?? null).toBe(replayed);
      for (const name of [
        "idempotent-replayed",
        "date",
        "connection",
        "keep-alive",
        "content-length",
        "transfer-encoding",
      ])
        delete headers[name];
      seen.push({ status: response.status, headers, body: await response.text() });
    }
    expect(seen[0]).toMatchObject({ status, body });
    expect(seen[1]).toEqual(seen[0]);
  });

  test("a body that was not parsed is refused: different requests would have the same fingerprint", async () => {
    const app = express();
    app.post("/", expressIdempotency(keys, { scope }), (_req, res) => void res.end("handled"));
    app.post("/text", express.json(), expressIdempotency(keys, { scope }), (_req, res) => void res.end("handled"));
    // Some parsers leave an empty object for what they did not read.
    const empty: express.RequestHandler = (req, _res, next) => {
      req.body = {};
      next();
    };
    app.post("/empty", empty, expressIdempotency(keys, { scope }), (_req, res) => void res.end("handled"));
    app.use(quietly);
    running = await listen(app);
    for (const path of ["/", "/text", "/empty"]) {
      const headers = { ...key, "content-type": "text/plain" };
      const response = await running.fetch(path, { method: "POST", headers, body: "a" });
      expect([response.status, await response.text()]).toEqual([500, expect.stringContaining("parsed before")]);
    }
    expect((await running.fetch("/", { method: "POST", headers: key })).status).toBe(200);
  });

  test("the raw bytes are compared if they were kept, and not the parsed body", async () => {
    const app = express();
    const json = express.json({
      verify: (req, _res, bytes) => {
        Object.assign(req, { rawBody: bytes });
      },
    });
    app.post("/", json, expressIdempotency(keys, { scope }), (_req, res) => void res.end("handled"));
    running = await listen(app);
    const send = (body: string) =>
      running?.fetch("/", { method: "POST", headers: { ...key, "content-type": "application/json" }, body });
    expect((await send('{"a":9007199254740992}'))?.status).toBe(200);
    expect((await send('{"a":9007199254740993}'))?.status).toBe(422);
  });

  test("paths that resemble hosts are different", async () => {
    const app = express();
    app.use(expressIdempotency(keys, { scope }), (_req, res) => void res.end("handled"));
    running = await listen(app);
    expect((await running.fetch("//a/x", { method: "POST", headers: key })).status).toBe(200);
    expect((await running.fetch("//b/x", { method: "POST", headers: key })).status).toBe(422);
  });

  test("a client that disconnects does not stop its request, and gets the reply when it repeats it", async () => {
    const [arrived, end] = [gate(), gate()];
    let handled = 0;
    const app = express();
    app.post("/", expressIdempotency(keys, { scope }), async (_req, res) => {
      handled += 1;
      arrived.open();
      await end.opened;
      res.end(`handled ${handled}`);
    });
    running = await listen(app);
    const abort = new AbortController();
    const first = running.fetch("/", { method: "POST", headers: key, signal: abort.signal });
    await arrived.opened;
    abort.abort();
    await expect(first).rejects.toThrow();
    end.open();
    let again = await running.fetch("/", { method: "POST", headers: key });
    while (again.status === 409) again = await running.fetch("/", { method: "POST", headers: key });
    expect([await again.text(), handled]).toEqual(["handled 1", 1]);
  });

  test("a handler that never replies keeps its key no longer than the lease, once its client has gone", async () => {
    let handled = 0;
    const app = express();
    app.post("/", expressIdempotency(keys, { scope, lease: 200 }), (_req, res) => {
      handled += 1;
      if (handled > 1) res.end("handled");
    });
    running = await listen(app);
    const first = running.fetch("/", { method: "POST", headers: key, signal: AbortSignal.timeout(500) });
    await sleep(400);
    // While a client waits, the lease is renewed.
    expect((await running.fetch("/", { method: "POST", headers: key })).status).toBe(409);
    await expect(first).rejects.toThrow();
    await sleep(300);
    expect((await running.fetch("/", { method: "POST", headers: key })).status).toBe(200);
  });

  test("a long reply is not sent if it cannot be recorded that it was sent", async () => {
    const app = express();
    app.post("/", expressIdempotency(keys, { scope, maxBodyBytes: 10 }), async (_req, res) => {
      await pawl.close();
      res.write("longer than that");
      await sleep(20);
      res.end("and more");
    });
    running = await listen(app);
    const response = await running.fetch("/", { method: "POST", headers: key });
    expect([response.status, await response.text()]).toEqual([500, ""]);
  });

  test("a reply that cannot be stored is not sent, but the error is", async () => {
    const app = express();
    app.post("/", expressIdempotency(keys, { scope }), async (_req, res) => {
      await pawl.close();
      res.setHeader("x-handled", "1");
      res.end("handled");
    });
    app.use(quietly);
    running = await listen(app);
    const response = await running.fetch("/", { method: "POST", headers: key });
    expect([response.status, response.headers.get("x-handled")]).toEqual([500, null]);
    expect(await response.text()).toContain("closed");
  });
});
