/**
 * Tasks and signals over HTTP, against a receiver on this machine.
 */

import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { getRequestListener } from "@hono/node-server";
import express from "express";
import { describe, expect, onTestFinished, test } from "vitest";
import { createApp } from "../../src/http/server/index.ts";
import { httpTasks, open, type Pawl } from "../../src/index.ts";
import { refusal, type Served, sender, served } from "./kit.ts";

async function receiver(): Promise<string> {
  const server = createServer((_, response) => response.end("thanks"));
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
}

async function withTasks(): Promise<Served & { readonly pawl: Pawl; readonly targetUrl: string }> {
  const actions = { keys: { current: "k1", ring: { k1: new Uint8Array(32).fill(7) } } };
  const pawl = await open("memory:", { logger: false, actions });
  pawl.work([httpTasks({ allow: ["127.0.0.0/8"] })]);
  const targetUrl = await receiver();
  const kit = await served({}, pawl);
  onTestFinished(() => pawl.close());
  return { ...kit, targetUrl };
}

describe("tasks", () => {
  test("a task calls its target, and a client that waits gets the outcome", async () => {
    const { send, targetUrl } = await withTasks();
    const created = await send("POST", "/v1/tasks", { targetUrl, body: { a: 1 }, id: "t1", tags: ["x"] });
    expect(created).toMatchObject({ status: 201, json: { signalToken: null, isNew: true } });
    const task = await send("GET", "/v1/tasks/t1?wait=30s");
    expect(task.json).toMatchObject({
      status: "completed",
      outcome: { by: "response", value: { status: 200, body: "thanks" } },
    });
    const attempts = await send("GET", "/v1/tasks/t1/attempts");
    expect(attempts.json["items"]).toMatchObject([{ number: 1, status: 200, error: null }]);
    expect((await send("GET", "/v1/tasks?tag=x")).json["items"]).toHaveLength(1);
    expect((await send("GET", "/v1/tasks/t1/deliveries")).json).toEqual({ items: [], next: null });
    expect(refusal(await send("POST", "/v1/tasks/t1/redrive"))).toEqual({ status: 409, code: "task_not_dead" });
    expect((await send("POST", "/v1/tasks/redrive", { all: true })).json).toEqual({ redriven: 0, unreadable: [] });
    expect(refusal(await send("GET", "/v1/tasks/none"))).toEqual({ status: 404, code: "task_not_found" });
  });

  test("the workflow of notifications cannot be started, whatever its input", async () => {
    const { send, targetUrl } = await withTasks();
    const refused = { status: 400, code: "invalid_argument" };
    for (const input of [undefined, null, 5, {}, { task: "t", url: targetUrl, key: "k", body: "forged" }]) {
      const body = { workflow: "pawl.task.delivery", input };
      expect(refusal(await send("POST", "/v1/runs", body))).toEqual(refused);
      expect(refusal(await send("POST", "/v1/schedules", { ...body, name: "s", every: "1h" }))).toEqual(refused);
    }
    const task = { workflow: "pawl.task", input: { targetUrl }, id: "named" };
    expect(await send("POST", "/v1/runs", task)).toMatchObject({ status: 201 });
  });

  test("a repeated creation returns the same task and token, and another request under the key is refused", async () => {
    const { send, targetUrl } = await withTasks();
    const body = { targetUrl, waitForSignal: true };
    const key = { "idempotency-key": "order-1" };
    const first = await send("POST", "/v1/tasks", body, key);
    const again = await send("POST", "/v1/tasks", body, key);
    expect(first.json["signalToken"]).toMatch(/^sig_/);
    expect(again.json["signalToken"]).toBe(first.json["signalToken"]);
    expect(first.status).toBe(201);
    expect(first.headers.has("idempotent-replayed")).toBe(false);
    expect(again).toMatchObject({ status: 200, json: { isNew: false } });
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    const other = await send("POST", "/v1/tasks", { ...body, method: "PUT" }, key);
    expect(other).toMatchObject({ status: 422, json: { code: "idempotency_mismatch", data: { key: "order-1" } } });
    expect(other.json["detail"]).toContain('"order-1"');
  });

  test("an empty body is no body, and one that something else has read is told from it", async () => {
    const { send } = await withTasks();
    const json = { "content-type": "application/json" };
    const options = { targetUrl: "https://example.com/", delay: "1h", id: "t1" };
    expect((await send("POST", "/v1/tasks", options)).status).toBe(201);
    expect((await send("POST", "/v1/tasks/t1/cancel", "", json)).json).toMatchObject({ canceled: true });
    expect(refusal(await send("POST", "/v1/tasks", "", json))).toEqual({ status: 400, code: "invalid_request" });
  });

  test("a body that a parser before the mount has read is said to be gone", async () => {
    const pawl = await open("memory:", { logger: false });
    onTestFinished(() => pawl.close());
    const app = express();
    app.use(express.json());
    app.use("/pawl", getRequestListener(createApp(pawl, { prefix: "/pawl", keys: "none", logger: false }).fetch));
    const server = app.listen(0, "127.0.0.1");
    onTestFinished(() => void server.close());
    await once(server, "listening");
    const send = sender(`http://127.0.0.1:${(server.address() as AddressInfo).port}/pawl`);
    const refused = await send("POST", "/v1/tasks", { targetUrl: "https://example.com/" });
    expect(refusal(refused)).toEqual({ status: 400, code: "invalid_request" });
    expect(refused.json["detail"]).toContain("express.json()");
  });

  test("targets inside the network, and what is no target, are refused", async () => {
    const { send } = await withTasks();
    const local = await open("memory:", { logger: false });
    onTestFinished(() => local.close());
    local.work([httpTasks({ allow: ["10.0.0.0/8"] })]);
    const sent = (await served({}, local)).send;
    for (const targetUrl of ["http://localhost:3000/", "http://a.LOCALHOST./"]) {
      const refused = await sent("POST", "/v1/tasks", { targetUrl });
      expect(refusal(refused), targetUrl).toEqual({ status: 400, code: "target_forbidden" });
      expect(refused.json["detail"]).toContain("--allow");
      expect((await send("POST", "/v1/tasks", { targetUrl, delay: "1h" })).status, targetUrl).toBe(201);
    }
    for (const targetUrl of [
      "http://10.0.0.1/",
      "http://[::1]/",
      "http://2852039166/",
      "http://168.63.129.16/",
      "http://[2606:4700::5efe:a00:1]/",
      "http://example.com:5432/",
      "http://127.0.0.1:6379/",
    ])
      expect(refusal(await send("POST", "/v1/tasks", { targetUrl })), targetUrl).toEqual({
        status: 400,
        code: "target_forbidden",
      });
    for (const targetUrl of ["file:///etc/passwd", "http://u:p@example.com/", "http://example.com:22/"])
      expect(refusal(await send("POST", "/v1/tasks", { targetUrl })), targetUrl).toEqual({
        status: 400,
        code: "invalid_target",
      });
  });
});

describe("signals by token", () => {
  test("54: a wrong, cut or foreign token is not found", async () => {
    const { url, send, targetUrl } = await withTasks();
    const { json } = await send("POST", "/v1/tasks", { targetUrl, waitForSignal: true });
    const token = String(json["signalToken"]);
    const anyone = sender(url);
    for (const wrong of [`sig_${"A".repeat(43)}`, token.slice(0, -1), "x"])
      expect(refusal(await anyone("POST", `/v1/signals/${wrong}`, { status: "completed" })), wrong).toEqual({
        status: 404,
        code: "token_not_found",
      });
    const foreign = await anyone("POST", `/v1/signals/${token}?namespace=other`, { status: "completed" });
    expect(refusal(foreign)).toEqual({ status: 404, code: "token_not_found" });
  });

  test("55: the same signal again is the same response, another one gets the outcome", async () => {
    const { url, send, targetUrl } = await withTasks();
    const { json } = await send("POST", "/v1/tasks", { targetUrl, waitForSignal: true, id: "t1" });
    const path = `/v1/signals/${json["signalToken"]}`;
    const anyone = sender(url);
    const first = await anyone("POST", path, { status: "completed", value: { ok: 1 } });
    expect(first).toMatchObject({ status: 200, json: { task: "t1", isNew: true, outcome: { by: "signal" } } });
    const again = await anyone("POST", path, { status: "completed", value: { ok: 1 } });
    expect(again).toMatchObject({ status: 200, json: { isNew: false, outcome: first.json["outcome"] } });
    const other = await anyone("POST", path, { status: "failed" });
    expect(other).toMatchObject({
      status: 409,
      json: { code: "task_settled", data: { outcome: first.json["outcome"] } },
    });
    const canceled = await send("POST", "/v1/tasks/t1/cancel", {});
    expect(canceled.json).toEqual({ canceled: false, outcome: first.json["outcome"] });
  });

  test("55: after the timeout a signal is gone, with the outcome", async () => {
    const { url, send, targetUrl } = await withTasks();
    const task = { targetUrl, waitForSignal: true, maxWaitTime: "10ms", id: "t1" };
    const { json } = await send("POST", "/v1/tasks", task);
    expect((await send("GET", "/v1/tasks/t1?wait=60s")).json).toMatchObject({ status: "timed_out" });
    const late = await sender(url)("POST", `/v1/signals/${json["signalToken"]}`, { status: "completed" });
    expect(late).toMatchObject({ status: 410, json: { code: "task_timed_out", data: { outcome: { by: "timeout" } } } });
  });

  test("56: a GET never settles anything", async () => {
    const { url, send, targetUrl } = await withTasks();
    const { json } = await send("POST", "/v1/tasks", { targetUrl, waitForSignal: true, id: "t1" });
    for (const method of ["GET", "HEAD"])
      expect((await sender(url)(method, `/v1/signals/${json["signalToken"]}`)).status).toBe(405);
    expect((await send("GET", "/v1/tasks/t1")).json["outcome"]).toBeNull();
  });
});
