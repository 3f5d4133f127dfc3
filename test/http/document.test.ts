/**
 * The OpenAPI document, as the linter of Redocly sees it, and the page that is made of it. `document.long.test.ts` compares it with the server.
 */

import { createConfig, lintFromString } from "@redocly/openapi-core";
import { Hono } from "hono";
import { describe, expect, onTestFinished, test } from "vitest";
import { createApp } from "../../src/http/server/index.ts";
import { open } from "../../src/index.ts";
import { operationsOf } from "./document.ts";
import { sender, served } from "./kit.ts";

async function kit() {
  const { send } = await served();
  const { json: document } = await send("GET", "/v1/openapi.json");
  return { document, operations: operationsOf(document) };
}

describe("the document", () => {
  test("passes the recommended rules of Redocly", async () => {
    const { document } = await kit();
    const config = await createConfig({ extends: ["recommended"] });
    const problems = await lintFromString({ source: JSON.stringify(document), absoluteRef: "openapi.json", config });
    expect(problems.map(({ ruleId, message, location }) => `${ruleId}: ${message} ${location[0]?.pointer}`)).toEqual(
      [],
    );
  });

  test("has every route of the app, and each operation has a name of its own", async () => {
    const { operations } = await kit();
    const names = operations.map(({ operationId }) => operationId);
    expect(new Set(names).size).toBe(names.length);
    expect(names.length).toBeGreaterThan(75);
  });

  test("says which scope each operation needs, and the server asks for that one", async () => {
    const { url, as, send } = await served();
    const operations = operationsOf((await send("GET", "/v1/openapi.json")).json);
    const others = { read: await as(["write", "operate"]), all: await as(["read"]) };
    const operator = await as(["read", "write"]);
    const seen = new Set<string>();
    for (const { operationId, method, security, description, at } of operations) {
      const path = at(() => "x");
      const [need] = security as readonly { readonly key: readonly string[] }[];
      if (need === undefined) {
        expect((await sender(url)(method.toUpperCase(), path)).status, operationId).not.toBe(401);
        continue;
      }
      const [scope = ""] = need.key;
      seen.add(scope);
      expect(description, operationId).toContain(`Needs the scope \`${scope}\`.`);
      const other = scope === "read" ? others.read : scope === "operate" ? operator : others.all;
      const refused = await other(method.toUpperCase(), path);
      expect(refused, operationId).toMatchObject({ status: 403, json: { code: "scope_missing", data: { scope } } });
    }
    expect(seen).toEqual(new Set(["read", "write", "operate", "admin"]));
  });
});

describe("the page", () => {
  test("shows the types of what is sent and returned, with links that lead somewhere", async () => {
    const { url } = await served();
    const page = await (await fetch(`${url}/docs`)).text();
    const signal = page.slice(page.indexOf("/v1/signals/{token}"));
    expect(signal).toContain("<code>&quot;completed&quot; | &quot;failed&quot;</code></td><td>body, required.");
    expect(signal).toContain('<a href="#type-SignaledTask">SignaledTask</a>');
    expect(page).toContain("concurrency</code></td><td><code>{ key: string, max: integer ≥ 1 }</code>");
    for (const [, anchor = ""] of page.matchAll(/href="#([^"]+)"/g)) expect(page).toContain(`id="${anchor}"`);
  });

  test("of an app that is mounted leads to the mount, wherever its path is removed", async () => {
    const pawl = await open("memory:", { logger: false });
    onTestFinished(() => pawl.close());
    const app = new Hono().mount("/pawl", createApp(pawl, { prefix: "/pawl", keys: "none", logger: false }).fetch);
    const page = await (await app.request("/pawl/docs")).text();
    const links = [...page.matchAll(/href="([^#"][^"]*)"/g)].map(([, link = ""]) => link);
    expect(links).toEqual(["/pawl/docs/style.css", "/pawl/v1/openapi.json"]);
    for (const link of links) expect((await app.request(link)).status, link).toBe(200);
    const headers = { "content-type": "application/json" };
    const body = JSON.stringify({ workflow: "any", id: "r" });
    const started = await app.request("/pawl/v1/runs", { method: "POST", headers, body });
    expect(started.headers.get("location")).toBe("/pawl/v1/runs/r");
  });
});
