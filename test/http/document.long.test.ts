/**
 * The OpenAPI document and the server are the same thing.
 *
 * Goal: what the document allows is accepted, what it does not allow is refused, and every response is one that it describes.
 * Method: Requests are drawn from the schemas of each operation, valid ones, and ones with one part made
 * invalid; the status of each response must be in the document, and its body must fit the schema there, as a validator of its own (Ajv) sees it.
 */

import { Ajv2020 } from "ajv/dist/2020.js";
import { describe, expect, test } from "vitest";
import { machine, open } from "../../src/index.ts";
import { type Drawn, operationsOf, type Schema, type ShownOperation } from "./document.ts";
import { type Got, served } from "./kit.ts";

const order = machine("order", { initial: "pending", transitions: { pending: ["paid"], paid: [] } });
/** Requests are drawn with this many seeds. */
const SEEDS = 10;

async function kit() {
  const actions = { pepper: "a pepper of sixteen bytes", keys: { current: "k1", ring: { k1: new Uint8Array(32) } } };
  const pawl = await open("memory:", { logger: false, actions });
  const limits = { requests: false, keyless: false } as const;
  const given = await served({ machines: [order], limits }, pawl);
  const { json } = await given.send("GET", "/v1/openapi.json");
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  ajv.addSchema(json, "api");
  const lines: string[] = [];
  return { ...given, ajv, document: json, operations: operationsOf(json), lines };
}

/** The same without a long wait. */
const soon = ({ url, body }: Drawn): { readonly url: string; readonly body: unknown } => ({
  url: url.replace(/wait=[^&]*/, "wait=5ms"),
  body: typeof body === "object" && body !== null && "wait" in body ? { ...body, wait: "5ms" } : body,
});

/** Events that do not end: `events.test.ts` reads them. */
const isEndless = ({ responses }: ShownOperation): boolean =>
  Object.keys(responses["200"]?.content ?? {}).join() === "text/event-stream";

/** What is wrong with a response, as the document sees it. */
function faultOf({ ajv }: Awaited<ReturnType<typeof kit>>, { path, method, responses }: ShownOperation, got: Got) {
  const described = responses[String(got.status)];
  if (described === undefined) return `status ${got.status} is not in the document: ${got.text.slice(0, 300)}`;
  const type = got.headers.get("content-type")?.split(";")[0] ?? "";
  if (described.content === undefined) return got.text === "" ? undefined : "a body that is not in the document";
  if (described.content[type] === undefined) return `the type ${type} is not in the document`;
  if (type === "text/event-stream") return undefined;
  const at = ["paths", path, method, "responses", String(got.status), "content", type, "schema"];
  const validate = ajv.getSchema(
    `api#/${at.map((part) => encodeURIComponent(part.replaceAll("~", "~0").replaceAll("/", "~1"))).join("/")}`,
  );
  if (validate === undefined) return "its schema was not found";
  return validate(got.json) === true ? undefined : `${ajv.errorsText(validate.errors)}: ${got.text.slice(0, 300)}`;
}

describe("the server", () => {
  test("accepts what the document allows, and responds as it says", async () => {
    const served = await kit();
    await served.pawl.start("w", undefined, { id: "fulfil-o-1" });
    const faults: string[] = [];
    for (let seed = 0; seed < SEEDS; seed++)
      for (const operation of served.operations) {
        const { url, body } = soon(operation.valid(seed));
        if (isEndless(operation)) continue;
        const got = await served.send(operation.method.toUpperCase(), url, body);
        const fault = got.json["code"] === "invalid_request" ? `refused: ${got.text}` : faultOf(served, operation, got);
        if (fault !== undefined) faults.push(`${operation.operationId} ${JSON.stringify(body)}: ${fault}`);
      }
    expect(faults).toEqual([]);
  });

  test("refuses what the document does not allow with a 400 that says so", async () => {
    const served = await kit();
    const faults: string[] = [];
    let count = 0;
    for (const operation of served.operations)
      for (const { rule, url, body } of operation.invalid()) {
        count += 1;
        const got = await served.send(operation.method.toUpperCase(), url, body);
        const fault =
          got.status === 400
            ? faultOf(served, operation, got)
            : `it was accepted with ${got.status}: ${got.text.slice(0, 200)}`;
        if (fault !== undefined) faults.push(`${operation.operationId}, ${rule}: ${fault}`);
      }
    expect(faults).toEqual([]);
    expect(count).toBeGreaterThan(300);
  });

  test("asks for the key that the document asks for", async () => {
    const { operations, url } = await kit();
    for (const { method, path, valid, security } of operations) {
      const { url: to } = valid(0);
      const response = await fetch(`${url}${to}`, { method: method.toUpperCase() });
      if (security.length > 0) expect(response.status, path).toBe(401);
      else expect(response.status, path).not.toBe(401);
    }
  });
});

test("schemas without a type are the ones for values of users", async () => {
  const { operations } = await kit();
  const open: string[] = [];
  const walk = (name: string, schema: Schema): void => {
    if (
      schema.$ref === undefined &&
      schema.type === undefined &&
      schema.anyOf === undefined &&
      schema.enum === undefined
    )
      open.push(name);
    for (const [part, one] of Object.entries(schema.properties ?? {})) walk(part, one);
  };
  for (const { body } of operations) if (body !== undefined) walk("body", body);
  expect([...new Set(open)].sort()).toEqual(["body", "data", "input", "payload", "value"]);
});
