// Goal: every command does through a server what it does on a store.
// Method: a real server on a store that `fill` made, and the command lines of `cases.ts` in this process, without those that only a store has.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { CASES } from "./cases.ts";
import { call, expectCases, fill, KEYS, served } from "./kit.ts";

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-cli-server-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("the commands through a server, and when it is gone", async () => {
  const store = join(folder, "served.db");
  await fill(store);
  const { child, url, key } = await served(["--store", store, "--no-work"], KEYS);
  try {
    const options = ["--url", url, "--key", String(key)];
    const refused = await call([...options, "locks", "list"]);
    expect(refused).toMatchObject({ code: 2, err: expect.stringContaining("(not_supported)") });
    // Who does something is the key, and no other name is taken.
    const who = `key:${String(key).slice("pawl_".length, "pawl_".length + 16)}`;
    const shared = CASES.filter(({ isForStores }) => isForStores !== true);
    const named = shared.filter(({ args, code }) => code === undefined && args.includes("--by"));
    expect(named.length).toBeGreaterThan(5);
    for (const { args } of named)
      expect(await call([...options, ...args])).toMatchObject({
        code: 2,
        err: "pawl: --by has no effect on a server, which names the API key: leave it out (invalid_usage)\n",
      });
    const cases = shared.map(({ args, json, ...rest }) => {
      const at = args.indexOf("--by");
      const unnamed = at < 0 ? args : args.toSpliced(at, 2);
      const named = Object.fromEntries(
        Object.entries(json ?? {}).map(([name, value]) => [name, name === "actor" || name === "by" ? who : value]),
      );
      return { ...rest, args: unnamed, ...(json === undefined ? {} : { json: named }) };
    });
    await expectCases(options, (args) => call(args), cases);
    const revoke = [...options, "keys", "revoke", String(key).slice("pawl_".length, "pawl_".length + 16)];
    const isOwn = "which is the key of this command itself";
    expect(await call(revoke)).toMatchObject({ code: 2, err: expect.stringContaining(isOwn) });
    expect((await call([...options, "keys", "revoke", "another"])).err).not.toContain(isOwn);
    expect(await call([...revoke, "--yes"])).toMatchObject({
      code: 0,
      err: expect.stringMatching(/was the key of this command itself: the next one needs another\n$/),
    });
    expect(await call([...options, "runs"])).toMatchObject({ code: 1 });
    const wrong = await call(["--url", url, "--key", "pawl_wrong", "runs"]);
    expect(wrong).toMatchObject({ code: 1, err: expect.not.stringContaining("PAWL_KEY") });
    const none = await call(["--url", url, "runs"]);
    expect(none).toMatchObject({ code: 1, err: expect.stringContaining("Set PAWL_KEY, or give --key (unauthorized)") });
  } finally {
    child.signal("SIGTERM");
    await child.ended;
  }
  const gone = await call(["--url", url, "runs"]);
  expect(gone).toMatchObject({ code: 5, err: expect.stringContaining("(server_unreachable)") });
});
