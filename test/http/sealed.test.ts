/**
 * Sealed payloads that were tampered with, and keys that are not there, by requests to a real server (attacks 35 to 37): the response has a code and nothing of what is
 * sealed, the action is not used up, and the server goes on.
 */

import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { type ActionValue, actionAt } from "../../src/action/stored.ts";
import { open, type Pawl } from "../../src/index.ts";
import { scratchFolder } from "../sqlite/kit.ts";
import { refusal, type Send, served } from "./kit.ts";

const folder = scratchFolder("in memory");
const keyOf = (byte: number): Uint8Array => new Uint8Array(32).fill(byte);

const opened = async (store: string, current: string, ring: Record<string, Uint8Array>): Promise<Pawl> => {
  const pawl = await open(store, { logger: false, actions: { keys: { current, ring } } });
  onTestFinished(() => pawl.close());
  return pawl;
};

type Sealed = NonNullable<ActionValue["sealed"]>;

/** Replaces what is stored of the payload, and returns what it was. */
async function tamper({ kernel }: Pawl, ref: string, change: (sealed: Sealed) => Sealed): Promise<Sealed> {
  const at = actionAt(ref);
  return kernel.transact(
    (tx) => {
      const record = tx.record(at);
      const value = record.value as ActionValue;
      if (value.sealed === undefined) throw new Error("it has no payload");
      record.write({ value: { ...value, sealed: change(value.sealed) } });
      return value.sealed;
    },
    [at],
  );
}

async function create(send: Send, id: string, payload = `prize of ${id}`): Promise<string> {
  const created = await send("POST", "/v1/actions", { id, payload });
  expect(created.status).toBe(201);
  return String(created.json["ref"]);
}

const consume = (send: Send, id: string) => send("POST", `/v1/actions/${id}/consume`, {});

const bytesOf = ({ data }: Sealed): Buffer => Buffer.from(data, "base64url");
const flipped = (sealed: Sealed, at: number): Sealed => {
  const bytes = bytesOf(sealed);
  bytes[at < 0 ? bytes.length + at : at] = (bytes.at(at) ?? 0) ^ 1;
  return { ...sealed, data: bytes.toString("base64url") };
};
const cut = (sealed: Sealed, end: number): Sealed => ({
  ...sealed,
  data: bytesOf(sealed).subarray(0, end).toString("base64url"),
});

test.each<[string, (sealed: Sealed) => Sealed]>([
  ["35: a nonce that was altered", (sealed) => flipped(sealed, 0)],
  ["35: a ciphertext that was altered", (sealed) => flipped(sealed, 12)],
  ["35: a tag that was altered", (sealed) => flipped(sealed, -1)],
  ["35: nothing at all", (sealed) => ({ ...sealed, data: "" })],
  ["35: the id of another key", (sealed) => ({ ...sealed, keyId: "k2" })],
  ["36: a tag of 4 bytes", (sealed) => cut(sealed, -12)],
  ["36: no tag", (sealed) => cut(sealed, -16)],
])("%s is decrypt_failed", async (_, change) => {
  // The second key has the same bytes, so that the id alone is what is wrong.
  const kit = await served({}, await opened("memory:", "k1", { k1: keyOf(1), k2: keyOf(1) }));
  const ref = await create(kit.send, "a");
  const original = await tamper(kit.pawl, ref, change);
  const refused = await consume(kit.send, "a");
  expect(refusal(refused)).toEqual({ status: 500, code: "decrypt_failed" });
  expect(refused.text).not.toMatch(/prize| at |node:/);
  expect((await kit.send("GET", "/v1/actions/a")).json).toMatchObject({ state: "active", usesLeft: 1 });
  expect((await kit.send("GET", "/livez")).status).toBe(200);
  await tamper(kit.pawl, ref, () => original);
  expect(await consume(kit.send, "a")).toMatchObject({ status: 200, json: { payload: "prize of a" } });
});

test("35: a ciphertext that was moved to another action, or to another tenant's, is decrypt_failed", async () => {
  const store = join(folder, "moved.db");
  const keys = { current: "k1", ring: { k1: keyOf(1) } };
  const tenant = await open(store, { logger: false, namespace: "b", actions: { keys } });
  onTestFinished(() => tenant.close());
  const namespaces = (name: string) => (name === "b" ? tenant : undefined);
  const kit = await served({ namespaces }, await opened(store, "k1", { k1: keyOf(1) }));
  const theirs = await kit.as(["read", "write"], "b");
  const refs = { a: await create(kit.send, "a"), b: await create(kit.send, "b"), theirs: await create(theirs, "a") };
  const moved = await tamper(kit.pawl, refs.a, (sealed) => sealed);
  await tamper(kit.pawl, refs.b, () => moved);
  await tamper(tenant, refs.theirs, () => moved);
  for (const refused of [await consume(kit.send, "b"), await consume(theirs, "a")])
    expect(refusal(refused)).toEqual({ status: 500, code: "decrypt_failed" });
  expect(await consume(kit.send, "a")).toMatchObject({ status: 200, json: { payload: "prize of a" } });
});

test("37: after a rotation what is old can be read; with a key that was retired it is key_unavailable", async () => {
  const store = join(folder, "rotated.db");
  const old = await served({}, await opened(store, "k1", { k1: keyOf(1) }));
  await create(old.send, "a");
  await create(old.send, "b");
  const both = await served({}, await opened(store, "k2", { k1: keyOf(1), k2: keyOf(2) }));
  expect(await consume(both.send, "a")).toMatchObject({ status: 200, json: { payload: "prize of a" } });
  await create(both.send, "c");
  const young = await served({}, await opened(store, "k2", { k2: keyOf(2) }));
  const refused = await consume(young.send, "b");
  expect(refusal(refused)).toEqual({ status: 500, code: "key_unavailable" });
  expect(refused.json["data"]).toMatchObject({ keyId: "k1" });
  expect(await consume(young.send, "c")).toMatchObject({ status: 200, json: { payload: "prize of c" } });
  expect(await consume(old.send, "b")).toMatchObject({ status: 200, json: { payload: "prize of b" } });
});
