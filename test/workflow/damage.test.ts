/**
 * Goal: a history with a gap, and a stored value that is not what was written, stop the run; the result is never silently wrong (G20).
 * Method: a run rests in an SQLite file, which is damaged by another connection; then another process resumes it. Bits are flipped one at a time
 * where a codec authenticates what it reads; without one, a value that still reads as a value cannot be told from the one that was written.
 */

import { createHmac } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type Codec, jsonCodec, open, type Place, signal, transformed, workflow } from "../../src/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { reaches, resultOf } from "./kit.ts";

const go = signal("go");
let folder: string;
let path: string;
let charges: number;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-damage-"));
  path = join(folder, "shop.db");
  charges = 0;
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const shop = workflow({ name: "shop", tries: 1 }, async (ctx) => {
  const [charge, mail] = await Promise.all([
    ctx.step("charge", () => {
      charges += 1;
      return "charged";
    }),
    ctx.step("mail", () => "mailed"),
  ]);
  await ctx.waitForSignal(go);
  return `${charge} and ${mail}`;
});

/** A run that waits for its signal, in a file that no process has open. */
async function rest(codec: Codec): Promise<void> {
  const pawl = await open(path, { codec });
  const worker = pawl.work([shop]);
  await reaches(await pawl.start(shop, undefined, { id: "s" }), "waiting");
  await worker.stop();
  await pawl.close();
}

function damage(sql: string, ...values: (string | number)[]): number {
  const db = new DatabaseSync(path);
  try {
    return Number(db.prepare(sql).run(...values).changes);
  } finally {
    db.close();
  }
}

async function resumed(codec: Codec): Promise<string> {
  const pawl = await open(path, { codec });
  try {
    pawl.work([shop]);
    const run = pawl.run(shop, "s");
    await run.signal(go);
    return await resultOf(run);
  } finally {
    await pawl.close();
  }
}

describe("a history", () => {
  test("that is whole is resumed", async () => {
    await rest(jsonCodec);
    expect([await resumed(jsonCodec), charges]).toEqual(["charged and mailed", 1]);
  });

  test.each([1, 2])("that has no entry %i parks the run, and no recorded step runs again", async (version) => {
    await rest(jsonCodec);
    expect(damage("delete from pawl_log where version = ?", version)).toBeGreaterThan(0);
    await expect(resumed(jsonCodec)).rejects.toMatchObject({
      code: "run_parked",
      data: { reason: expect.stringContaining(`entry ${version} of its history: it is missing`) },
    });
    expect(charges).toBe(1);
  });

  test("with an entry that cannot be decoded parks the run", async () => {
    await rest(jsonCodec);
    expect(damage(`update pawl_log set data = substr(data, 2) where name = 'step charge'`)).toBe(1);
    expect(await codeOf(resumed(jsonCodec))).toBe("run_parked");
    expect(charges).toBe(1);
  });
});

const mac = (text: string, at: Place): string =>
  createHmac("sha256", "a key")
    .update(JSON.stringify([at.namespace, at.space, at.key, text]))
    .digest("base64url");

/** What it reads is what it wrote, at this place. */
const authentic = transformed(jsonCodec, {
  name: "mac",
  seal: (text, at) => `${mac(text, at)}${text}`,
  open: (sealed, at) => {
    const text = sealed.slice(43);
    if (sealed.slice(0, 43) !== mac(text, at)) throw new Error("it was altered");
    return text;
  },
});

describe("with a codec that authenticates", () => {
  test("no flipped bit of a recorded result gives another result", async () => {
    await rest(authentic);
    const db = new DatabaseSync(path);
    const row = db.prepare("select data from pawl_log where name = 'step charge'").get();
    db.close();
    const data = String(row?.["data"]);
    // A few places of the text, and every bit of one character; the last of them is the value itself.
    for (const at of [5, 20, 47, 50, data.length - 6])
      for (const bit of [1, 2, 4]) {
        const code = data.charCodeAt(at) ^ bit;
        const flipped = `${data.slice(0, at)}${String.fromCharCode(code)}${data.slice(at + 1)}`;
        damage("update pawl_log set data = ? where name = 'step charge'", flipped);
        const pawl = await open(path, { codec: authentic });
        await expect(pawl.run(shop, "s").history(), `${at} ${bit}`).rejects.toMatchObject({
          code: "unsupported_encoding",
        });
        await pawl.close();
      }
    expect(await codeOf(resumed(authentic))).toBe("run_parked");
    expect(charges).toBe(1);
  });

  test("a value that was moved from another record is not read", async () => {
    const pawl = await open(path, { codec: authentic });
    await pawl.slot("a").set(1);
    await pawl.slot("b").set(2);
    damage("update pawl_record set value = (select value from pawl_record where key = 'a') where key = 'b'");
    expect(await codeOf(pawl.slot("b").get())).toBe("unsupported_encoding");
    expect((await pawl.slot("a").get()).value).toBe(1);
    await pawl.close();
  });
});
