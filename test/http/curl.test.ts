/**
 * Goal: what the documents send with curl is accepted.
 * Method: every block of a document that begins with curl is run by a shell as it stands, in order, against a server with workers; what each returns is
 * known here.
 */

import { execFile } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { httpTasks, open, workflow } from "../../src/index.ts";
import { served } from "./kit.ts";

const run = promisify(execFile);

/** The commands of a document. */
const commandsOf = (document: string): readonly string[] => {
  const text = readFileSync(join(import.meta.dirname, "../../docs", document), "utf8");
  return [...text.matchAll(/```sh\n(curl [\s\S]*?)```/g)].map(([, command = ""]) => command);
};

async function env(): Promise<Record<string, string>> {
  const actions = { keys: { current: "k", ring: { k: new Uint8Array(32).fill(7) } } };
  const pawl = await open("memory:", { logger: false, actions });
  onTestFinished(() => pawl.close());
  pawl.work([httpTasks({ allow: ["127.0.0.1"] }), workflow("greet", async (_, name: string) => `hello ${name}`)]);
  const { url, key } = await served({}, pawl);
  const target = createServer((_, response) => response.end("accepted")).listen(0, "127.0.0.1");
  onTestFinished(() => void target.close());
  await once(target, "listening");
  const { port } = target.address() as AddressInfo;
  return { PAWL_URL: url, PAWL_KEY: await key(["read", "write"]), TARGET: `http://127.0.0.1:${port}/` };
}

test.each([
  ["http.md", [{ id: "greet-ann" }, { status: "completed", value: "hello ann" }, { grant: expect.any(String) }]],
  [
    "tasks.md",
    [
      { task: { id: "convert-1" }, isNew: true },
      { outcome: { status: "completed", by: "signal", value: { ok: true } } },
      { status: "completed", outcome: { by: "signal" } },
      { name: "sync", workflow: "pawl.task", state: "active" },
    ],
  ],
])("the commands of %s do what they show", async (document, expected) => {
  const variables = await env();
  const results: unknown[] = [];
  for (const command of commandsOf(document)) {
    const { stdout } = await run("sh", ["-c", command], { env: { ...process.env, ...variables } });
    const json = JSON.parse(stdout) as { readonly signalToken?: string };
    if (json.signalToken !== undefined) variables["TOKEN"] = json.signalToken;
    results.push(json);
  }
  expect(results).toMatchObject(expected);
});
