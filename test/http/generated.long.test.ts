/**
 * A client that a generator of others made from `/v1/openapi.json` drives a server through tasks.
 *
 * Goal: a program in any language can use the server by its document alone.
 * Method: @hey-api/openapi-ts (tools/openapi) generates a client from the document that a server serves, with the names of operations, parameters and types in
 * it. A program in a strict project uses nothing else: it compiles, and is run as a process against that server, with a receiver of tasks.
 */

import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { httpTasks, open } from "../../src/index.ts";
import { served } from "./kit.ts";

const root = join(import.meta.dirname, "../..");

const PROGRAM = `
import {
  cancelTask, createTask, getTask, listTaskAttempts, listTasks, signalTask, type Task, type TaskOutcome,
} from "./api/index.ts";
import { createClient, createConfig } from "./api/client/index.ts";

const [baseUrl = "", auth = "", targetUrl = ""] = process.argv.slice(2);
const client = createClient(createConfig({ baseUrl, auth }));
const how = { client, throwOnError: true } as const;

const waits = { targetUrl, waitForSignal: true, maxWaitTime: "1h", tags: ["orders"], body: { order: 1 } };
const created = (await createTask({ ...how, body: { ...waits, id: "order/1" } })).data;
const token: string | null = created.signalToken;
if (token === null) throw new Error("a task that waits for a signal has a token");
const again = (await createTask({ ...how, body: { ...waits, id: "order/1" } })).data;

const called: Task = await untilWaiting("order/1");
const attempts = (await listTaskAttempts({ ...how, path: { id: "order/1" } })).data.items;
const signaled = await signalTask({ client: createClient(createConfig({ baseUrl })), throwOnError: true, path: { token }, body: { status: "completed", value: { by: "ann" } } });
const late = await signalTask({ client, path: { token }, body: { status: "failed" } });
const task = (await getTask({ ...how, path: { id: "order/1" }, query: { wait: "25s" } })).data;
const outcome: TaskOutcome | null = task.outcome;

await createTask({ ...how, body: { ...waits, id: "order/2" } });
const canceled = (await cancelTask({ ...how, path: { id: "order/2" }, body: { reason: "sold out" } })).data;
const listed = (await listTasks({ ...how, query: { tag: "orders", order: "id" } })).data.items;
const missing = await getTask({ client, path: { id: "order/3" } });

// @ts-expect-error the document says which words there are
void { status: "done" } satisfies NonNullable<Parameters<typeof signalTask>[0]["body"]>;

console.log(
  JSON.stringify({
    again: [again.isNew, again.signalToken === token],
    called: [called.status, attempts.map(({ number, status }) => [number, status])],
    signaled: signaled.data.isNew,
    late: [late.response?.status, late.error?.code],
    outcome: [outcome?.status, outcome?.by, outcome?.value],
    canceled: canceled.canceled,
    listed: listed.map(({ id, status }) => [id, status]),
    missing: [missing.response?.status, missing.error?.code],
  }),
);

async function untilWaiting(id: string): Promise<Task> {
  for (;;) {
    const { data } = await getTask({ ...how, path: { id } });
    if (data.status === "waiting") return data;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
`;

const PROJECT = {
  compilerOptions: {
    target: "es2023",
    lib: ["es2023", "dom", "dom.iterable"],
    module: "nodenext",
    types: ["node"],
    strict: true,
    allowImportingTsExtensions: true,
    erasableSyntaxOnly: true,
    skipLibCheck: true,
    noEmit: true,
  },
};

const execute = promisify(execFile);
/** Not synchronous: the server is in this process. */
const node = async (cwd: string, ...args: readonly string[]): Promise<string> => {
  const options = { cwd, env: { ...process.env, NODE_OPTIONS: "" } };
  try {
    return (await execute(process.execPath, ["--disable-warning=ExperimentalWarning", ...args], options)).stdout;
  } catch (error) {
    const { message, stdout = "" } = error as Error & { readonly stdout?: string };
    throw new Error(`${message}\n${stdout}`);
  }
};

async function listening(): Promise<string> {
  const server = createServer((_, response) => response.end("thanks"));
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
}

test("a generated client creates tasks, settles one by its token, cancels another, and gets every refusal", async () => {
  const folder = mkdtempSync(join(tmpdir(), "pawl-generated-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const actions = { keys: { current: "k1", ring: { k1: new Uint8Array(32).fill(7) } } };
  const pawl = await open("memory:", { logger: false, actions });
  onTestFinished(() => pawl.close());
  pawl.work([httpTasks({ allow: ["127.0.0.0/8"] })]);
  const { url, send, key } = await served({}, pawl);

  const document = join(folder, "openapi.json");
  writeFileSync(document, (await send("GET", "/v1/openapi.json")).text);
  await node(folder, join(root, "tools/openapi/generate.mjs"), document, join(folder, "api"));
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"), "junction");
  writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true, type: "module" }));
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(PROJECT));
  writeFileSync(join(folder, "program.ts"), PROGRAM);
  await node(folder, join(root, "node_modules/typescript/bin/tsc"), "-p", ".");

  const printed = await node(folder, "program.ts", url, await key(["read", "write"]), await listening());
  expect(JSON.parse(printed)).toEqual({
    again: [false, true],
    called: ["waiting", [[1, 200]]],
    signaled: true,
    late: [409, "task_settled"],
    outcome: ["completed", "signal", { by: "ann" }],
    canceled: true,
    listed: [
      ["order/1", "completed"],
      ["order/2", "canceled"],
    ],
    missing: [404, "task_not_found"],
  });
});
