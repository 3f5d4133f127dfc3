/**
 * Goal: the client, and the check of webhooks, run where there is no Node, and bring nothing of the library along.
 * Method: they are bundled for browsers, from the sources; the modules and the size of the bundle are looked at, and it is run with the globals of the web alone.
 */

import { dirname, join } from "node:path";
import { runInNewContext } from "node:vm";
import { rolldown } from "rolldown";
import { expect, test } from "vitest";
import { OLD, sign } from "../webhook/kit.ts";

const root = dirname(dirname(import.meta.dirname));

/** Bundles what these names need, and says which modules that are. */
async function bundle(
  source: string,
): Promise<{ readonly code: string; readonly modules: readonly string[]; readonly kib: number }> {
  const entry = "\0entry";
  const bundled = await rolldown({
    input: entry,
    platform: "browser",
    logLevel: "silent",
    plugins: [
      { name: "entry", resolveId: (id) => (id === entry ? entry : null), load: (id) => (id === entry ? source : null) },
    ],
  });
  const { output } = await bundled.generate({ format: "iife", name: "bundled", minify: true });
  await bundled.close();
  const [{ code, imports, moduleIds }] = output;
  expect(imports).toEqual([]);
  const modules = moduleIds.filter((id) => id !== entry).map((id) => id.slice(root.length + 1));
  return { code, modules, kib: Buffer.byteLength(code) / 1024 };
}

const WEB = {
  URL,
  URLSearchParams,
  Headers,
  Response,
  AbortController,
  AbortSignal,
  TextEncoder,
  TextDecoder,
  crypto,
  performance,
  setTimeout,
  clearTimeout,
  queueMicrotask,
  atob,
  btoa,
  Uint8Array,
};

test("the client is small, has nothing of Node, and nothing of the library but itself", async () => {
  const { code, modules, kib } = await bundle(
    `export * from ${JSON.stringify(join(root, "src/http/client/index.ts"))};`,
  );
  expect(modules.filter((id) => !/^src\/http\/(?:client|platform)\//.test(id))).toEqual([]);
  expect(code).not.toMatch(/node:|\bBuffer\b|\bprocess\b|require\(/);
  expect(kib).toBeLessThan(41);
  const fetched: string[] = [];
  const fetch = async (url: string) => {
    fetched.push(url);
    return new Response('{"name":"x","version":3,"value":{"$date":"1970-01-01T00:00:00.000Z"}}');
  };
  const slot = await runInNewContext(
    `${code}; bundled.createClient({ url: "https://pawl.example/api/", fetch }).slot("a/b").get()`,
    { ...WEB, fetch },
  );
  expect(fetched).toEqual(["https://pawl.example/api/v1/slots/a%2Fb"]);
  expect([slot.version, +slot.value]).toEqual([3, 0]);
});

test("verifyWebhook has nothing of Node, and nothing of the handle", async () => {
  const { code, modules, kib } = await bundle(
    `export { verifyWebhook } from ${JSON.stringify(join(root, "src/http/webhook/index.ts"))};`,
  );
  expect(
    modules.filter((id) => !/^src\/(?:http\/(?:webhook|platform)\/|kernel\/(?:check|errors)\.ts)/.test(id)),
  ).toEqual([]);
  expect(code).not.toMatch(/node:|require\(/);
  expect(kib).toBeLessThan(16);
  const given = sign({ id: "m1", body: "{}" });
  const delivery = await runInNewContext(`${code}; bundled.verifyWebhook(given, { secrets })`, {
    ...WEB,
    given,
    secrets: OLD,
  });
  expect(delivery.id).toBe("m1");
});

test("a module of Node in a bundle would be found", async () => {
  await expect(bundle('import { join } from "node:path"; export const x = join;')).rejects.toThrow();
});
