/**
 * `pawl serve`: the HTTP API on a database, with a worker for tasks, and for the user's workflows, in the same process.
 *
 * SIGTERM or SIGINT stops it: no new requests and no new work, and what runs is finished or released within `--grace`. After that, or at a second signal, the process
 * ends, whatever is still under way.
 *
 * Guarantees: it listens on loopback unless another address is named, and on another only if some API key can be used. The key that it makes on the first start is shown
 * once, and is one, also if several processes start together.
 */

import type { WorkDefinition } from "../../capabilities.ts";
import type { Server } from "../../http/server/index.ts";
import type { Pawl } from "../../pawl.ts";
import type { Worker } from "../../worker.ts";
import { CliError, showError } from "../exit-codes.ts";
import type { Namespaces } from "../namespaces.ts";
import { escaped } from "../output.ts";
import { declare, listOption, numberOption, numbersOption, option, type Place } from "../program.ts";
import type { Session } from "../session.ts";
import type { StorePlace } from "../store.ts";
import type { Imported } from "../user-code.ts";

interface ServeOptions {
  readonly host?: string;
  readonly port?: number;
  readonly allow?: readonly string[];
  readonly allowPort?: readonly number[];
  readonly import?: readonly string[];
  readonly grace?: string;
  readonly lease?: string;
  readonly newKeys?: boolean;
  readonly work?: boolean;
}

const LOOPBACK = ["127.0.0.1", "::1", "localhost"];
const GRACE = "10s";
/** As applications wait for a store that is busy. */
const PATIENCE_MS = 30_000;
/** Of the grace, what is kept for releasing what was not finished: at most a fifth of it. */
const RELEASE_MS = 2000;
const FIRST_KEY = "first admin key";

export function serveCommand(place: Place): void {
  declare<ServeOptions>(place, {
    usage: "serve",
    summary: "serve the HTTP API, and work on tasks",
    options: [
      option("--host <address>", "where to listen (default: 127.0.0.1)"),
      numberOption("--port <n>", "0 is any that is free (default: 7295)", 0, 65_535),
      listOption("--allow <ranges>", "private addresses that tasks may call, as 10.0.0.0/8 or 127.0.0.1/32"),
      numbersOption(
        "--allow-port <ports>",
        "ports of databases and their like that tasks may call, as 9200",
        1,
        65_535,
      ),
      listOption(
        "--import <files>",
        "work on the workflows that these files export, and serve their state machines, too",
      ),
      option("--grace <duration>", `how long stopping may take (default: ${GRACE})`),
      option(
        "--lease <duration>",
        "after this long, others take over the work of a process that was killed (default: 30s)",
      ),
      option("--new-keys", "the key file is lost: make a new one, although what is sealed stays unreadable"),
      option("--no-work", "only serve, and leave tasks and workflows to other processes"),
    ],
    help: `PAWL_KEYS has the key ring that seals signal tokens and payloads, as id:base64 of 32 bytes, and PAWL_WEBHOOK_SECRETS
what calls are signed with. For an SQLite file they are in its key file, as pawl.db.keys, which only its owner can read and
which is made at the first start. PAWL_PEPPER, or the file that PAWL_PEPPER_FILE names, has the pepper that PINs and
consumer keys of actions are hashed with, the newest first. API keys, which clients send, are something else: pawl keys.`,
    run: async (session, _, options) => serveUntilStopped(session, options),
  });
}

async function serveUntilStopped(session: Session, options: ServeOptions): Promise<void> {
  const interruption = session.io.interruption();
  const { host = "127.0.0.1", port, allow, allowPort, work = true } = options;
  const [
    where,
    { lookAt, openPlace },
    { actionSecrets, secretsToServe },
    { apiKeys, serve },
    { checkDuration },
    { Namespaces },
  ] = await Promise.all([
    session.placeToServe(),
    import("../store.ts"),
    import("../keyring.ts"),
    import("../../http/server/index.ts"),
    import("../../kernel/check.ts"),
    import("../namespaces.ts"),
  ]);
  const graceMs = checkDuration(options.grace ?? GRACE, "--grace");
  const leaseMs = options.lease === undefined ? undefined : checkDuration(options.lease, "--lease");
  const { definitions, machines } = await imported(options.import ?? []);
  const { schema } = await lookAt(where);
  const opened = { to: "create", patienceMs: PATIENCE_MS, logger: undefined } as const;
  const unsealed = await openPlace(where, opened);
  const secrets = await secretsToServe(where, session.io.env, unsealed, options.newKeys === true).finally(() =>
    unsealed.close(),
  );
  const actions = await actionSecrets(secrets.keys, session.io.env);
  const opening = { ...opened, actions };
  const pawl = await openPlace(where, { ...opening, namespace: session.namespace });
  let others: Namespaces | undefined;
  let worker: Worker | undefined;
  const closeAll = async (): Promise<void> => {
    // The keys are read with the server's own handle.
    await others?.close();
    await pawl.close();
  };
  let server: Server;
  try {
    const isLocal = LOOPBACK.includes(host);
    if (!isLocal) await checkKeys(apiKeys(pawl), host);
    const [{ httpTasks }, { scheduleRules }] = await Promise.all([
      import("../../task/definition.ts"),
      import("../../schedule/definition.ts"),
    ]);
    const tasks = httpTasks({
      ...(secrets.webhookSecrets.length === 0 ? {} : { secrets: secrets.webhookSecrets }),
      ...(allow === undefined ? {} : { allow }),
      ...(allowPort === undefined ? {} : { allowPorts: allowPort }),
    });
    const working = leaseMs === undefined ? {} : { lease: leaseMs };
    const workOn = (one: Pawl, imported: readonly WorkDefinition[]): Worker => one.work([tasks, ...imported], working);
    if (work) worker = workOn(pawl, definitions);
    // Each schedule that a file declares ticks once, not once for each namespace.
    const everywhere = definitions.filter((one) => scheduleRules(one) === undefined);
    others = new Namespaces({
      own: session.namespace,
      keys: apiKeys(pawl),
      open: (namespace) => openPlace(where, { ...opening, namespace }),
      work: work ? (other) => workOn(other, everywhere) : undefined,
      failed: (error) => {
        const reason = escaped(showError(error).message);
        session.io.err.write(`pawl: looking for namespaces to work on failed, and is tried again: ${reason}\n`);
      },
    });
    const inOthers = (namespace: string) => others?.of(namespace);
    server = await serve(pawl, { hostname: host, port, namespaces: inOthers, machines }).catch((error: unknown) => {
      throw explained(error, host, port);
    });
    others.begin();
    // Not before it listens: a key that is made is also shown.
    const key = isLocal ? await firstKey(apiKeys(pawl)) : undefined;
    say(session, {
      url: server.url,
      where,
      isNew: schema === 0,
      key,
      keysFrom: secrets.from,
      isSigned: secrets.webhookSecrets.length > 0,
      work: work ? definitions.map(({ name }) => name) : null,
      machines: machines.map(({ name }) => name),
    });
  } catch (error) {
    await closeAll();
    throw error;
  }
  await aborted(interruption);
  session.io.err.write(`pawl: stopping, for at most ${graceMs / 1000} s; a second signal ends it now\n`);
  const timeout = graceMs - Math.min(graceMs / 5, RELEASE_MS);
  const stop = async (): Promise<void> => {
    // Requests that wait for a run may need it to go on, so both stop together; and a request may need the handle until it ends.
    await Promise.all([server.close({ timeout }), worker?.stop({ timeout }), others?.stop(timeout)]);
    await closeAll();
  };
  await within(graceMs, stop());
}

/** Waits for the end of the stop. What waits longer, as for a database that does not reply, ends with the process. */
async function within(graceMs: number, stopping: Promise<void>): Promise<void> {
  const [{ pause }, { nodePorts }] = await Promise.all([
    import("../../kernel/ports.ts"),
    import("../../node/ports.ts"),
  ]);
  const stopped = new AbortController();
  const late = pause(nodePorts.clock, graceMs, stopped.signal).then(() => {
    if (stopped.signal.aborted) return;
    throw new CliError(
      "stop_timed_out",
      `it did not stop within ${graceMs / 1000} s: other workers continue its work when its leases have ended`,
    );
  });
  await Promise.race([stopping.finally(() => stopped.abort()), late]);
}

async function imported(files: readonly string[]): Promise<Imported> {
  if (files.length === 0) return { definitions: [], machines: [] };
  const { importedFrom } = await import("../user-code.ts");
  return importedFrom(files);
}

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });

type ApiKeys = ReturnType<typeof import("../../http/server/index.ts").apiKeys>;

/** Makes an admin key for a database that never had one. */
async function firstKey(keys: ApiKeys): Promise<string | undefined> {
  return (await keys.createFirst({ name: FIRST_KEY, scopes: ["admin"], by: "pawl serve" }))?.key;
}

/** On an address that others can reach, a key must be there before. */
async function checkKeys(keys: ApiKeys, host: string): Promise<void> {
  if (!(await keys.hasUsable()))
    throw new CliError(
      "no_api_key",
      `${host} can be reached from elsewhere, and there is no API key: run pawl keys create <name> --scope admin first`,
    );
}

function explained(error: unknown, host: string, port: number | undefined): unknown {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (code === "EADDRINUSE")
    return new CliError("port_in_use", `port ${port ?? 7295} of ${host} is in use: give another with --port`);
  if (code === "EADDRNOTAVAIL" || code === "ENOTFOUND")
    return new CliError("invalid_host", `${host} is no address of this machine: give another with --host`);
  if (code === "EACCES")
    return new CliError("port_refused", `port ${port} needs more rights: give another with --port`);
  return error;
}

interface Started {
  readonly url: string;
  readonly where: StorePlace;
  readonly isNew: boolean;
  readonly key: string | undefined;
  readonly keysFrom: string | undefined;
  /** Whether calls are signed. */
  readonly isSigned: boolean;
  /** The names of what it works on beside tasks; null if it does not work. */
  readonly work: readonly string[] | null;
  /** The names of the state machines that it serves. */
  readonly machines: readonly string[];
}

function say(session: Session, { url, where, isNew, key, keysFrom, isSigned, work, machines }: Started): void {
  const { namespace } = session;
  if (session.isJson) {
    const keyRing = keysFrom ?? null;
    session.json({ url, store: where.shown, isNew, namespace, key: key ?? null, keyRing, isSigned, work, machines });
    return;
  }
  const lines = [
    `pawl serves ${url}`,
    `  database   ${where.shown} (${where.is === "sqlite" ? "SQLite" : "PostgreSQL"}${isNew ? ", new" : ""}), namespace ${namespace}`,
    `  key ring   ${keysFrom ?? "none, so tasks cannot wait for signals: set PAWL_KEYS"}`,
    ...(isSigned ? [] : ["  signing    none, so receivers cannot tell who calls them: set PAWL_WEBHOOK_SECRETS"]),
    `  works on   ${work === null ? "nothing" : ["tasks", ...work].join(", ")}`,
    ...(machines.length === 0 ? [] : [`  machines   ${machines.join(", ")}`]),
    `  read       ${url}/docs`,
  ];
  if (key !== undefined)
    lines.push(
      "",
      `  admin key  ${key}`,
      "  It is shown only now. In another terminal:",
      "",
      `    export PAWL_URL=${url} PAWL_KEY=${key}`,
      "    npx pawl tasks",
    );
  session.print(lines.map((line) => escaped(line)));
}
