// Goal: the other namespaces of a server are opened when they should be, and none is left open.
// Method: the class with handles of this process, whose opening the test ends.

import { expect, it, vi } from "vitest";
import { Namespaces } from "../../src/cli/namespaces.ts";
import { apiKeys } from "../../src/http/server/index.ts";
import { open, type Pawl, workflow } from "../../src/index.ts";

const any = workflow("any", async () => 1);

/** The own handle with keys, and namespaces whose handles open when `opening` says so. */
async function setUp(opening: (namespace: string) => Promise<void> = async () => {}) {
  const own = await open("memory:", { logger: false });
  const keys = apiKeys(own);
  const opened: { readonly namespace: string; readonly pawl: Pawl }[] = [];
  const failures: unknown[] = [];
  const namespaces = new Namespaces({
    own: "default",
    keys,
    open: async (namespace) => {
      await opening(namespace);
      const pawl = await open("memory:", { namespace, logger: false });
      opened.push({ namespace, pawl });
      return pawl;
    },
    work: (pawl) => pawl.work([any]),
    failed: (error) => failures.push(error),
  });
  const create = (namespace: string) => keys.create({ name: namespace, scopes: ["write"], namespace });
  const names = () => opened.map(({ namespace }) => namespace);
  const close = async () => {
    await namespaces.close();
    await own.close();
    for (const { pawl } of opened) expect(() => pawl.work([any])).toThrow(/closed/);
  };
  return { keys, namespaces, opened, names, failures, create, close };
}

it("those with keys that are not revoked are opened, also later; one without a key is not, whoever asks", async () => {
  const { keys, namespaces, names, create, close } = await setUp();
  await create("default");
  await create("acme");
  await keys.revoke((await create("gone")).id);
  namespaces.begin();
  await vi.waitFor(() => expect(names()).toEqual(["acme"]));
  await create("later");
  await vi.waitFor(() => expect(names()).toEqual(["acme", "later"]));
  expect(await namespaces.of("never")).toBe(undefined);
  expect(await namespaces.of("acme")).toMatchObject({ kernel: { namespace: "acme" } });
  expect(names()).toEqual(["acme", "later"]);
  await close();
});

it("one that cannot be opened is reported and tried again, and keeps no other from being opened", async () => {
  let isBroken = true;
  const { namespaces, names, failures, create, close } = await setUp(async (namespace) => {
    if (isBroken && namespace === "acme") throw new Error("no connection");
  });
  await create("acme");
  await create("shop");
  namespaces.begin();
  await vi.waitFor(() => expect(names()).toEqual(["shop"]));
  expect(failures).toEqual([new Error("no connection")]);
  isBroken = false;
  await create("shop");
  await vi.waitFor(() => expect(names()).toEqual(["shop", "acme"]));
  await close();
});

it("one that is being opened when the server stops is closed, and no other is opened", async () => {
  const begun = Promise.withResolvers<string>();
  const gate = Promise.withResolvers<void>();
  const { namespaces, names, failures, create, close } = await setUp(async (namespace) => {
    begun.resolve(namespace);
    await gate.promise;
  });
  await create("acme");
  await create("shop");
  namespaces.begin();
  const other = (await begun.promise) === "acme" ? "shop" : "acme";
  await namespaces.stop(1000);
  await expect(namespaces.of(other)).rejects.toThrow(/closed/);
  const closed = close();
  gate.resolve();
  await closed;
  expect(names()).toHaveLength(1);
  expect(failures).toEqual([]);
});
