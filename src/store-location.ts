/**
 * Parses the first argument of `open`: which store, and where it is.
 *
 * | given | opens |
 * |---|---|
 * | `x.db`, `./x.db`, `/abs/x.db`, `C:\x.db` | the SQLite file of that path, as it is written |
 * | `sqlite:x.db`, `sqlite:./x.db`, `file:x.db` | the same, relative to the working directory |
 * | `sqlite:///abs/x.db`, `sqlite:/abs/x.db`, `file:///abs/x.db`, a `URL` of `file:` | the SQLite file of that absolute path |
 * | `postgres://…`, `postgresql://…` | a PostgreSQL database |
 * | `memory:` | a store in memory, for tests |
 *
 * In the forms with `sqlite:` and `file:`, `%20` and the like are decoded, and a query or fragment is refused: SQLite would read
 * settings from it that lose commits.
 *
 * Everything else that looks like a URL, a connection string or a mistake is refused, with what to write instead: SQLite would create a
 * file with that name, and the program would use the wrong database unnoticed. A file with such a name is opened as `./name`. A message
 * repeats only the scheme of what was given, because the rest may contain a password.
 */

import { fileURLToPath } from "node:url";
import { InvalidArgumentError } from "./kernel/errors.ts";
import { isPostgres } from "./stores/postgres/pool.ts";

export type StoreLocation =
  | { readonly is: "memory" }
  | { readonly is: "postgres"; readonly url: string }
  | { readonly is: "sqlite"; readonly path: string };

const FORMS = `"x.db", "sqlite:x.db", "file:///abs/x.db", "postgres://user@host/database", or "memory:" for tests`;

/** One letter is a drive of Windows. */
const SCHEME = /^([a-z][a-z0-9+.-]+):/i;
const CONNECTION_STRING =
  /^([\w ]+=.*[\s;])?(host|hostaddr|port|dbname|database|user|user id|username|password|server|data source|service|sslmode)\s*=/i;
const HOST_AND_PORT = /^[^/\\]+:\d+([/?]|$)/;
/** What a missing setting becomes when it is converted to a string. */
const MISSING = /^(undefined|null|NaN|\[object \w+\])$/;
const QUOTED = /^(["'`]).*\1$/s;
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
const CONTROL = /[\u0000-\u001f\u007f]/;

/** Whether it is a URL, including one of another realm. */
export const isUrl = (given: unknown): given is URL => Object.prototype.toString.call(given) === "[object URL]";

export function locationOf(where: string | URL): StoreLocation {
  if (typeof where !== "string") {
    if (where.protocol !== "file:")
      throw refused(`must not be a URL of "${where.protocol}": give it as a string, in one of the forms ${FORMS}`);
    return { is: "sqlite", path: pathOfUrl("file", where.href.slice("file:".length)) };
  }
  if (where.trim() === "") throw refused(`must be the path of a file, or one of the other forms: ${FORMS}`);
  if (where !== where.trim()) throw refused("must not begin or end with whitespace: remove it");
  if (where === "memory:") return { is: "memory" };
  if (/^(sqlite:|file:|sqlite:\/\/)?:?memory:?$/i.test(where))
    throw refused('must be written "memory:" for tests; a file of that name is "./memory"');
  if (isPostgres(where)) return { is: "postgres", url: where };
  const scheme = SCHEME.exec(where)?.[1];
  const name = scheme?.toLowerCase();
  if (name === "sqlite" || name === "file")
    return { is: "sqlite", path: pathOfUrl(name, where.slice(name.length + 1)) };
  if (name === "postgres" || name === "postgresql")
    throw refused(`must have two slashes after "${scheme}:": write "postgres://user@host/database"`);
  if (CONNECTION_STRING.test(where))
    throw refused('must be a URL, not a list of settings: write "postgres://user@host:5432/database", or give a pool');
  if (HOST_AND_PORT.test(where)) throw refused('must be a URL: write "postgres://user@host:5432/database"');
  if (scheme !== undefined)
    throw refused(
      `must not begin with "${scheme}:", which this release does not open: write ${FORMS}; a file of that name is "./${scheme}:…"`,
    );
  if (MISSING.test(where)) throw refused(`must not be "${where}", which is what a missing setting becomes: set it`);
  if (QUOTED.test(where)) throw refused("must be written without quotes around it");
  if (where.includes("\0")) throw refused("must not have a NUL character");
  return { is: "sqlite", path: where };
}

/** Returns the path after `sqlite:` or `file:`. */
function pathOfUrl(scheme: "sqlite" | "file", rest: string): string {
  if (/[?#]/.test(rest))
    throw refused(
      `must not have a query or fragment: write only the path after "${scheme}:", where a "?" in a name is %3F and a "#" is %23`,
    );
  // The URL parser would remove some of them silently.
  if (CONTROL.test(rest)) throw refused("must not have control characters in a URL");
  if (/%(?![0-9a-f]{2})/i.test(rest)) throw refused('must not have a "%" in a URL that encodes nothing: write %25');
  if (/%(00|2f|5c)/i.test(rest)) throw refused("must not have an encoded NUL or slash in a URL");
  const path = decoded(rest);
  if (!rest.startsWith("/")) {
    if (path === "") throw refused(`must have the path of a file after "${scheme}:": write "${scheme}:x.db"`);
    return path;
  }
  const host = rest.startsWith("//") ? (rest.split("/")[2] ?? "") : "";
  if (host !== "" && host.toLowerCase() !== "localhost")
    throw refused(
      `must not have a host: write "${scheme}:x.db" for a relative path, or "${scheme}:///abs/x.db" with three slashes`,
    );
  const absolute = rest.startsWith("//") ? rest.slice(2 + host.length) : rest;
  if (/^\/*$/.test(absolute)) throw refused(`must have the path of a file: write "${scheme}:///abs/x.db"`);
  try {
    // Handles the drives of Windows too.
    return fileURLToPath(`file://${absolute}`);
  } catch {
    throw refused(`must have an absolute path after "${scheme}:///"`);
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw refused("must be encoded as UTF-8 where it has a %");
  }
}

const refused = (reason: string): InvalidArgumentError => new InvalidArgumentError("the store", reason);
