/**
 * Restate: a server of its own, on loopback ports, that keeps a log on its disk and calls our process for the work.
 *
 * The server is the binary from npm, with a data folder in the ground, ended with the session. Our process serves the
 * workflow over HTTP/2, as its SDK does it, and calls the server with its client.
 *
 * Promises: the server ends with this process, but for a SIGKILL.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer as createHttp2Server, type ServerHttp2Session } from "node:http2";
import { createRequire } from "node:module";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createEndpointHandler, type WorkflowContext, workflow } from "@restatedev/restate-sdk";
import { connect } from "@restatedev/restate-sdk-clients";
import { charge, type Peer, versionOf } from "./peer.ts";

const READY_WITHIN_MS = 60_000;
const LAST_WORDS = 4_000;

const work = workflow({
  name: "work",
  handlers: {
    run: async (context: WorkflowContext, steps: number) => {
      for (let step = 0; step < steps; step++) await context.run("charge", () => charge(step));
      return steps;
    },
  },
});

export const restate: Peer = {
  id: "restate",
  name: "Restate (its server)",
  version: `${versionOf("@restatedev/restate-server")}, SDK ${versionOf("@restatedev/restate-sdk")}`,
  store: "its own",
  settings:
    "one node with the settings it comes with: 24 partitions, replication 1, the log in RocksDB with its write-ahead log " +
    "synced to disk before a record counts (log-server.rocksdb-disable-wal-fsync = false); only ports, folder, log level " +
    "and telemetry (off) are ours. Workflow over HTTP/2; a caller that waits starts and waits with one request.",
  async open({ folder }) {
    const server = await startServer(join(folder, "restate"));
    const endpoint = await serveWork();
    try {
      await register(server.adminUrl, endpoint.url);
    } catch (error) {
      await endpoint.close();
      await server.stop();
      throw error;
    }
    const client = connect({ url: server.ingressUrl });
    return {
      run: (steps) =>
        client.call<number, number>({ service: "work", handler: "run", key: randomUUID(), parameter: steps }),
      submit: async (steps) => {
        const handle = client.workflowClient(work, randomUUID());
        await handle.workflowSubmit(steps);
        return { result: () => handle.workflowAttach() };
      },
      close: async () => {
        await server.stop();
        await endpoint.close();
      },
    };
  },
};

async function startServer(folder: string) {
  const [nodePort, ingressPort, adminPort] = await freePorts(3);
  const ingressUrl = `http://127.0.0.1:${ingressPort}`;
  const adminUrl = `http://127.0.0.1:${adminPort}`;
  const child = spawn(findBinary(), ["--no-logo", "--base-dir", folder, "--listen-mode", "tcp"], {
    env: {
      ...process.env,
      RESTATE_BIND_IP: "127.0.0.1",
      RESTATE_BIND_PORT: String(nodePort),
      RESTATE_ADVERTISED_HOST: "127.0.0.1",
      RESTATE_NODE_NAME: "bench",
      RESTATE_INGRESS__BIND_PORT: String(ingressPort),
      RESTATE_ADMIN__BIND_PORT: String(adminPort),
      RESTATE_LOG_FILTER: "error",
      RESTATE_LOG_DISABLE_ANSI_CODES: "true",
      RESTATE_DISABLE_TELEMETRY: "true",
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const killWithUs = () => void child.kill("SIGKILL");
  process.once("exit", killWithUs);
  let said = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => {
      said = (said + text).slice(-LAST_WORDS);
    });
  const stop = async () => {
    process.off("exit", killWithUs);
    await end(child);
  };
  try {
    for (const url of [`${adminUrl}/health`, `${ingressUrl}/restate/health`]) await untilReady(url, child);
  } catch (error) {
    await stop();
    throw new Error(`the Restate server did not start: ${said}`, { cause: error });
  }
  return { ingressUrl, adminUrl, stop };
}

/** The binary is in a package for the platform, which the server's package depends on. */
function findBinary(): string {
  return createRequire(import.meta.url).resolve(
    `@restatedev/restate-server-${process.platform}-${process.arch}/bin/restate-server`,
  );
}

async function untilReady(url: string, child: ChildProcess): Promise<void> {
  const giveUpMs = performance.now() + READY_WITHIN_MS;
  for (;;) {
    if (child.exitCode !== null) throw new Error(`it ended with code ${child.exitCode}`);
    const isReady = await fetch(url).then(
      (answer) => answer.ok,
      () => false,
    );
    if (isReady) return;
    if (performance.now() > giveUpMs) throw new Error(`${url} does not reply`);
    await sleep(100);
  }
}

/** Its data is thrown away, so it need not end gracefully. */
async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

async function serveWork() {
  const server = createHttp2Server(createEndpointHandler({ services: [work], logger: () => {} }));
  const sessions = new Set<ServerHttp2Session>();
  server.on("session", (session) => {
    sessions.add(session);
    session.once("close", () => sessions.delete(session));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${portOf(server.address())}`,
    close: async () => {
      const closed = once(server, "close");
      server.close();
      for (const session of sessions) session.destroy();
      await closed;
    },
  };
}

async function register(adminUrl: string, uri: string): Promise<void> {
  const answer = await fetch(`${adminUrl}/deployments`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ uri }),
  });
  if (!answer.ok) throw new Error(`Restate refused our workflow: ${await answer.text()}`);
}

/** Ports that were free a moment ago, all different. */
async function freePorts(count: number): Promise<readonly number[]> {
  const servers = Array.from({ length: count }, () => createServer().listen(0, "127.0.0.1"));
  await Promise.all(servers.map((server) => once(server, "listening")));
  const ports = servers.map((server) => portOf(server.address()));
  await Promise.all(servers.map((server) => once(server.close(), "close")));
  return ports;
}

function portOf(address: AddressInfo | string | null): number {
  if (typeof address === "object" && address !== null) return address.port;
  throw new Error("a server has no port");
}
