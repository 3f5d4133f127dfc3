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
    // Who does something is the key, whatever name is given.
    const cases = CASES.filter(({ isForStores }) => isForStores !== true).map(({ json, ...rest }) => {
      const { actor: _, by: __, ...others } = json ?? {};
      return json === undefined ? rest : { ...rest, json: others };
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
