/** The key ring of a server, beside other servers of the same database. */

import { expect, onTestFinished, test } from "vitest";
import { open } from "../open.ts";
import { secretsToServe } from "./keyring.ts";

const PLACE = { is: "postgres", url: "postgres://localhost/app", shown: "postgres://localhost/app" } as const;
const keys = (key: string) => ({
  PAWL_KEYS: `${key.slice(0, 2)}:${Buffer.alloc(32, key).toString("base64")}`,
});

test("of servers that start together with different keys of one id, one is refused", async () => {
  const pawl = await open("memory:", { logger: false });
  onTestFinished(() => pawl.close());
  const started = await Promise.allSettled(
    ["k1 of one", "k1 of another"].map((key) => secretsToServe(PLACE, keys(key), pawl, false)),
  );
  expect(started.map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
  expect(started[1]).toMatchObject({ reason: { code: "key_conflict" } });
});

test("with different ids both start, and each refuses another key under either id afterwards", async () => {
  const pawl = await open("memory:", { logger: false });
  onTestFinished(() => pawl.close());
  await Promise.all(["k1 of one", "k2 of another"].map((key) => secretsToServe(PLACE, keys(key), pawl, false)));
  await secretsToServe(PLACE, keys("k1 of one"), pawl, false);
  for (const other of ["k1 of a third", "k2 of a third"])
    await expect(secretsToServe(PLACE, keys(other), pawl, false)).rejects.toMatchObject({ code: "key_conflict" });
});
