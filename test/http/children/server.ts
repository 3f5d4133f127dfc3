/**
 * A server in a process of its own, with keys: `server.ts <options as JSON>`. It prints where it listens and a key, and then for each line that it
 * reads the most memory that it has had, in MiB.
 */

import { createInterface } from "node:readline";
import { apiKeys, serve } from "../../../src/http/server/index.ts";
import { open } from "../../../src/index.ts";

const pawl = await open("memory:", { logger: false });
const { key } = await apiKeys(pawl).create({ name: "x", scopes: ["admin"] });
const server = await serve(pawl, { port: 0, logger: false, ...JSON.parse(process.argv[2] ?? "{}") });
console.log(JSON.stringify({ url: server.url, key }));
for await (const _ of createInterface({ input: process.stdin })) console.log(process.resourceUsage().maxRSS / 1024);
