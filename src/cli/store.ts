/**
 * The database behind `--store`: where it is, what is there, and opening it.
 *
 * `open` of the library creates what is missing. A command must not: with a mistyped path it would make an empty database, and say that there are no runs. So it looks
 * first, and says what is not there. Only `serve`, and `keys create` before it, create.
 *
 * Guarantees: a command that only reads leaves the database as it is; where this release would first migrate it, the command says so and ends.
 */

import { resolve } from "node:path";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { nodePorts } from "../node/ports.ts";
import { type OpenOptions, open } from "../open.ts";
import type { Pawl } from "../pawl.ts";
import { locationOf } from "../store-location.ts";
import { lookAtPostgres, type PostgresSurvey, surveyPostgres } from "../stores/postgres/look.ts";
import { type BackedUp, backUpSqlite, lookAtSqlite, type SqliteSurvey, surveySqlite } from "../stores/sqlite/look.ts";
import { CliError } from "./exit-codes.ts";

/** Commands of a few seconds do not wait for as long as an application does. */
const PATIENCE_MS = 5000;
/** The schema of PostgreSQL that `open` uses where none is named. */
export const POSTGRES_SCHEMA = "pawl";
/** 4 MiB at a time. */
const BACKUP_PAGES = 1024;

export type StorePlace =
  | { readonly is: "sqlite"; readonly path: string; readonly shown: string }
  | { readonly is: "postgres"; readonly url: string; readonly shown: string };

/** Where `--store` points to. */
export function placeOf(store: string): StorePlace {
  const location = locationOf(store);
  if (location.is === "memory")
    throw new InvalidArgumentError("--store", "must not be memory:, which ends with the process: name a file");
  if (location.is === "sqlite") return { ...location, shown: location.path };
  return { ...location, shown: withoutSecrets(location.url) };
}

/** The URL without its password and its options, which may have another. */
export function withoutSecrets(url: string): string {
  if (!URL.canParse(url)) return "postgres://…";
  const { protocol, username, host, pathname } = new URL(url);
  return `${protocol}//${username === "" ? "" : `${username}@`}${host}${pathname}`;
}

export interface SchemaState {
  /** 0 where there are no tables of Pawl. */
  readonly schema: number;
  readonly known: number;
  readonly missing: readonly string[];
  /** Whether the database itself is there. */
  readonly isThere: boolean;
}

/** What is there. Changes nothing. */
export async function lookAt(place: StorePlace): Promise<SchemaState> {
  if (place.is === "postgres") return { isThere: true, ...(await lookAtPostgres(lookOptions(place.url))) };
  const look = await lookAtSqlite(place.path);
  return look === null ? { isThere: false, schema: 0, known: 0, missing: [] } : { isThere: true, ...look };
}

const lookOptions = (url: string) => ({
  url,
  schema: POSTGRES_SCHEMA,
  clock: nodePorts.clock,
  patienceMs: PATIENCE_MS,
});

export type Survey = ({ readonly is: "sqlite" } & SqliteSurvey) | ({ readonly is: "postgres" } & PostgresSurvey);

/** Everything about the database that costs a moment to find out. */
export async function survey(place: StorePlace): Promise<Survey> {
  if (place.is === "postgres") return { is: "postgres", ...(await surveyPostgres(lookOptions(place.url))) };
  const found = await surveySqlite(place.path);
  if (found === null) throw nothingThere(place);
  return { is: "sqlite", ...found };
}

export interface OpenPlaceOptions {
  readonly namespace?: string | undefined;
  readonly actions?: OpenOptions["actions"] | undefined;
  /** "read" and "write" refuse a database that is not there; "create" makes it. */
  readonly to: "read" | "write" | "create";
  readonly patienceMs?: number | undefined;
  readonly logger?: OpenOptions["logger"] | undefined;
}

/** Opens the database, if it is there and as the command needs it. */
export async function openPlace(place: StorePlace, options: OpenPlaceOptions): Promise<Pawl> {
  const { to, namespace, actions, patienceMs = PATIENCE_MS, logger = false } = options;
  if (to !== "create") {
    const { isThere, schema, known } = await lookAt(place);
    if (!isThere || schema === 0) throw nothingThere(place);
    if (to === "read" && schema < known)
      throw new CliError(
        "schema_outdated",
        `${place.shown} has schema ${schema}, and this release would migrate it to ${known}: run pawl migrate --plan, then pawl migrate`,
      );
  }
  return open({
    // Absolute, so that it is not taken for one of the other forms once more.
    store: place.is === "sqlite" ? resolve(place.path) : place.url,
    patience: patienceMs,
    logger,
    ...(namespace === undefined ? {} : { namespace }),
    ...(actions === undefined ? {} : { actions }),
  });
}

export function nothingThere(place: StorePlace): CliError {
  return new CliError(
    "database_not_found",
    place.is === "sqlite"
      ? `there is no database of Pawl at ${place.shown}: name it with --store or PAWL_STORE; pawl serve creates one`
      : `there are no tables of Pawl in the schema "${POSTGRES_SCHEMA}" of ${place.shown}: name the database with --store or PAWL_STORE; pawl serve creates them`,
  );
}

export function backUp(
  path: string,
  to: string,
  onProgress: ((done: number, total: number) => void) | undefined,
): Promise<BackedUp> {
  return backUpSqlite(path, to, { pages: BACKUP_PAGES, onProgress });
}
