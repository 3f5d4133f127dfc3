/**
 * The key ring of `pawl serve`: what signal tokens, payloads of actions and personal fields are sealed with, and the secrets that calls are signed with; and
 * the pepper of actions, which comes from the environment or a file that it names, never from the command line, which others can see.
 *
 * The key ring and the secrets come from the environment, or, for an SQLite file, from a file beside it that only its owner can read: `pawl.db.keys`. A copy of the database alone then reveals
 * nothing that is sealed. `serve` makes the file where there is none; other commands read it, if it is there and they may.
 *
 * A database knows fingerprints of the keys of the servers that worked on it. So one that was restored without its file gets no other keys unnoticed.
 *
 * Guarantees: the file is made with the mode 0600, whole or not at all, and is never changed. A file that others can read is refused.
 */

import { link, readFile, rm, stat, writeFile } from "node:fs/promises";
import { LEAST_PEPPER_BYTES } from "../action/pepper.ts";
import { address } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import { hash } from "../kernel/fingerprint.ts";
import type { RingKeys } from "../kernel/seal/ring.ts";
import { unguessable } from "../node/ports.ts";
import type { Pawl } from "../pawl.ts";
import { checkSecrets } from "../task/signing.ts";
import { CliError } from "./exit-codes.ts";
import type { StorePlace } from "./store.ts";

export interface Secrets {
  readonly keys: RingKeys | undefined;
  /** Of Standard Webhooks; none: calls are not signed. */
  readonly webhookSecrets: readonly string[];
  /** Where they come from, for people; undefined where there are none. */
  readonly from: string | undefined;
}

type Env = Readonly<Record<string, string | undefined>>;

const KEY_BYTES = 32;

/** `PAWL_KEYS`: "id:base64" for each key, with commas between them; the first seals what is new. */
export function parseKeys(text: string): RingKeys {
  const entries = text.split(",").map((one) => {
    const [, id = "", encoded = ""] = /^\s*([^:\s]+):([A-Za-z0-9+/_-]+={0,2})\s*$/.exec(one) ?? [];
    const bytes = Buffer.from(encoded, "base64");
    if (id === "" || bytes.length !== KEY_BYTES)
      throw new CliError(
        "invalid_keys",
        `PAWL_KEYS must be id:key,id:key with ${KEY_BYTES} bytes in base64 for each key, the current one first`,
      );
    return [id, new Uint8Array(bytes)] as const;
  });
  return { current: entries[0]?.[0] ?? "", ring: Object.fromEntries(entries) };
}

const secretsOf = (text: string | undefined): readonly string[] =>
  (text ?? "")
    .split(",")
    .map((one) => one.trim())
    .filter((one) => one !== "");

/** Where the file of an SQLite database is. */
export const keyFileOf = (path: string): string => `${path}.keys`;

/** Fingerprints of keys by their ids: all that have sealed something in a database. */
type Fingerprints = Readonly<Record<string, string>>;

const RING = address("server_ring", "keys");

function fingerprintsOf({ ring }: RingKeys): Fingerprints {
  const entries = Object.entries(ring).map(([id, key]) => [
    id,
    hash("pawl key ring", Buffer.from(key).toString("base64")),
  ]);
  return Object.fromEntries(entries);
}

/**
 * The secrets of a server on this database, which is open without keys. Refuses other keys than those that it was used with; with `mayRenew`, those are lost,
 * and a file with new ones is made.
 */
export async function secretsToServe(place: StorePlace, env: Env, pawl: Pawl, mayRenew: boolean): Promise<Secrets> {
  checkWebhookSecrets(secretsOf(env["PAWL_WEBHOOK_SECRETS"]));
  const { kernel } = pawl;
  const [row] = await kernel.read([RING]);
  const known = row?.value == null ? {} : (kernel.decode(row, row.value) as Fingerprints);
  const isRenewed = mayRenew || Object.keys(known).length === 0;
  const secrets = await readSecrets(place, env, isRenewed, Object.keys(known));
  const { keys } = secrets;
  if (keys === undefined) {
    if (place.is === "postgres") return secrets;
    throw new CliError(
      "key_file_missing",
      `${place.shown} was used with keys, and ${keyFileOf(place.path)} is not there: restore it from a backup, or give PAWL_KEYS; if the keys are lost for good, begin with new ones by --new-keys`,
    );
  }
  const used = fingerprintsOf(keys);
  // In one decision, so that of two servers that start together with different keys of one id, one is refused.
  const other = await kernel.transact(
    (tx: Tx) => {
      const record = tx.record(RING);
      const before = record.exists ? (record.value as Fingerprints) : {};
      const ids = Object.keys(used);
      const conflict = ids.find((id) => before[id] !== undefined && before[id] !== used[id]);
      if (conflict === undefined && ids.some((id) => before[id] === undefined))
        record.write({ value: { ...before, ...used } });
      return conflict;
    },
    [RING],
  );
  if (other !== undefined)
    throw new CliError(
      "key_conflict",
      `the key "${other}" of ${secrets.from} is not the one that ${place.shown} was used with: restore that one, or give the new key another id`,
    );
  return secrets;
}

function checkWebhookSecrets(secrets: readonly string[]): void {
  try {
    checkSecrets(secrets);
  } catch (error) {
    throw new CliError(
      "invalid_secrets",
      'PAWL_WEBHOOK_SECRETS must be secrets with commas between them, each "whsec_" and 24 to 64 bytes in base64',
      { cause: error },
    );
  }
}

/** Reads what there is, or throws; with `mayMake`, makes the file of an SQLite database that has none. The id of its key is none of `taken`. */
export async function readSecrets(
  place: StorePlace,
  env: Env,
  mayMake: boolean,
  taken: readonly string[] = [],
): Promise<Secrets> {
  const given = secretsOf(env["PAWL_WEBHOOK_SECRETS"]);
  const text = env["PAWL_KEYS"];
  if (text !== undefined && text !== "") return { keys: parseKeys(text), webhookSecrets: given, from: "PAWL_KEYS" };
  if (place.is !== "sqlite") return { keys: undefined, webhookSecrets: given, from: undefined };
  const path = keyFileOf(place.path);
  const found = (await readKeyFile(path)) ?? (mayMake ? await makeKeyFile(path, taken) : undefined);
  if (found === undefined) return { keys: undefined, webhookSecrets: given, from: undefined };
  return { keys: parseKeys(found.keys), webhookSecrets: given.length > 0 ? given : found.webhookSecrets, from: path };
}

interface KeyFile {
  /** As `PAWL_KEYS`. */
  readonly keys: string;
  readonly webhookSecrets: readonly string[];
}

async function readKeyFile(path: string): Promise<KeyFile | undefined> {
  const text = await readOwn(path);
  if (text === undefined) return undefined;
  try {
    const { keys, webhookSecrets } = JSON.parse(text) as Partial<KeyFile>;
    if (typeof keys === "string" && Array.isArray(webhookSecrets)) return { keys, webhookSecrets };
  } catch {
    // Said below.
  }
  throw new CliError("invalid_keys", `${path} is not a file of keys as pawl serve makes it: restore it from a backup`);
}

/** Reads a file with secrets; undefined where there is none. One that others can read is refused. Throws `keys_unreadable`. */
async function readOwn(path: string): Promise<string | undefined> {
  try {
    const { mode } = await stat(path);
    if (process.platform !== "win32" && (mode & 0o077) !== 0)
      throw new CliError("insecure_keys", `${path} can be read by others: run chmod 600 ${path}`);
    return await readFile(path, "utf8");
  } catch (error) {
    if (error instanceof CliError || !(error instanceof Error) || !("code" in error)) throw error;
    if (error.code === "ENOENT") return undefined;
    throw new CliError(UNREADABLE, `${path} cannot be read: ${error.message}`, { cause: error });
  }
}

const UNREADABLE = "keys_unreadable";

/** What there is, for a command that may do without secrets: a file that cannot be read, as that of another user, is as none, and why is said. */
export async function secretsIfReadable(
  place: StorePlace,
  env: Env,
): Promise<{ readonly keys: RingKeys | undefined; readonly unreadable?: string }> {
  try {
    return await readSecrets(place, env, false);
  } catch (error) {
    if (error instanceof CliError && error.code === UNREADABLE) return { keys: undefined, unreadable: error.message };
    throw error;
  }
}

/** The peppers of `PAWL_PEPPER`, with commas between them, or of the lines of the file that `PAWL_PEPPER_FILE` names: the newest first. */
async function readPeppers(env: Env): Promise<readonly string[]> {
  const path = env["PAWL_PEPPER_FILE"] ?? "";
  const given = secretsOf(env["PAWL_PEPPER"]);
  if (path !== "" && given.length > 0)
    throw new CliError("invalid_pepper", "PAWL_PEPPER and PAWL_PEPPER_FILE must not be given together");
  const text = path === "" ? undefined : await readOwn(path);
  if (path !== "" && text === undefined)
    throw new CliError("invalid_pepper", `there is no file ${path}, which PAWL_PEPPER_FILE names`);
  const peppers = text === undefined ? given : secretsOf(text.replaceAll(/\r?\n/g, ","));
  if ((path !== "" && peppers.length === 0) || peppers.some((one) => Buffer.byteLength(one) < LEAST_PEPPER_BYTES))
    throw new CliError(
      "invalid_pepper",
      `each pepper of ${path === "" ? "PAWL_PEPPER" : path} must be a text of ${LEAST_PEPPER_BYTES} bytes or more, the newest first`,
    );
  return peppers;
}

/** The secrets of the actions of a handle; undefined where there are none. */
export async function actionSecrets(
  keys: RingKeys | undefined,
  env: Env,
): Promise<{ readonly keys?: RingKeys; readonly pepper?: readonly string[] } | undefined> {
  const pepper = await readPeppers(env);
  if (keys === undefined && pepper.length === 0) return undefined;
  return { ...(keys === undefined ? {} : { keys }), ...(pepper.length === 0 ? {} : { pepper }) };
}

async function makeKeyFile(path: string, taken: readonly string[]): Promise<KeyFile> {
  let number = 1;
  while (taken.includes(`k${number}`)) number += 1;
  const made: KeyFile = {
    keys: `k${number}:${Buffer.from(unguessable(KEY_BYTES)).toString("base64")}`,
    webhookSecrets: [`whsec_${Buffer.from(unguessable(KEY_BYTES)).toString("base64")}`],
  };
  const part = `${path}.${Buffer.from(unguessable(6)).toString("hex")}.part`;
  try {
    await writeFile(part, `${JSON.stringify(made, null, 2)}\n`, { mode: 0o600, flag: "wx", flush: true });
    await link(part, path);
    return made;
  } catch (error) {
    // Another process was first: its keys count.
    const found = await readKeyFile(path);
    if (found === undefined) throw error;
    return found;
  } finally {
    await rm(part, { force: true });
  }
}
