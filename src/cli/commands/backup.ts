/**
 * `pawl backup`: a copy of the database, while others write to it.
 *
 * SQLite: the copy is of one moment, is checked, and appears under its name only when it is complete. PostgreSQL: `pg_dump` does that, if it is on the PATH;
 * otherwise the command to run is printed.
 */

import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { delimiter, dirname, join, resolve } from "node:path";
import { shellWord } from "../advice.ts";
import { CliError } from "../exit-codes.ts";
import { bytesShown } from "../output.ts";
import { declare, option, type Place, UsageError } from "../program.ts";
import type { Session } from "../session.ts";

export function backupCommand(place: Place): void {
  declare<{ print?: boolean }>(place, {
    usage: "backup <file>",
    summary: "copy the database to a file that does not exist yet",
    options: [option("--print", "PostgreSQL: print the pg_dump command, and do not run it")],
    help: `Restore: stop all processes, remove the database with its -wal and -shm, copy the file back, and run pawl doctor; or
use pg_restore. The key file of pawl serve, as pawl.db.keys, is not part of the copy: keep one apart from it, and put it
back beside the database.`,
    run: async (session, [file = ""], { print }) => {
      if (file === "") throw new UsageError("the file must have a name");
      const where = await session.place();
      if (where.is === "postgres") return dump(session, where.url, file, print === true);
      const [{ backUp, lookAt, nothingThere }, { keyFileOf }] = await Promise.all([
        import("../store.ts"),
        import("../keyring.ts"),
      ]);
      const { isThere, schema } = await lookAt(where);
      if (!isThere || schema === 0) throw nothingThere(where);
      if (existsSync(resolve(file))) throw taken(file);
      if (!existsSync(dirname(resolve(file))))
        throw new UsageError(`${file} cannot be written: its folder does not exist`);
      const progress = session.progress();
      try {
        const made = await backUp(where.path, file, (done, total) =>
          progress.is(`copied ${Math.floor((100 * done) / Math.max(1, total))} %`),
        );
        progress.end();
        const keyFile = existsSync(keyFileOf(where.path)) ? keyFileOf(where.path) : null;
        const keys = keyFile === null ? "" : `; not in it: ${keyFile}, without which what is sealed cannot be read`;
        session.done(`${file}: ${bytesShown(made.bytes)}, complete and checked${keys}`, { file, ...made, keyFile });
      } finally {
        progress.end();
      }
    },
  });
}

const taken = (file: string): CliError =>
  new CliError("file_exists", `${file} is there already: name a file that does not exist`);

/** The command, its arguments, and what it needs beside them. A password is not on the command line, where other users see it. */
export function dumpCommand(url: string, schema: string, file: string) {
  const { password, ...parsed } = partsOf(url);
  const args = ["--format=custom", `--schema=${schema}`, `--file=${file}`, parsed.url];
  return { command: "pg_dump", args, password };
}

function partsOf(url: string): { readonly url: string; readonly password: string } {
  const parsed = new URL(url);
  const password = decodeURIComponent(parsed.password) || (parsed.searchParams.get("password") ?? "");
  parsed.password = "";
  parsed.searchParams.delete("password");
  return { url: parsed.href, password };
}

async function dump(session: Session, url: string, file: string, isPrinted: boolean): Promise<void> {
  const { POSTGRES_SCHEMA } = await import("../store.ts");
  const { command, args, password } = dumpCommand(url, POSTGRES_SCHEMA, file);
  const text = [command, ...args].map(shellWord).join(" ");
  const shown = password === "" ? text : `PGPASSWORD=… ${text}`;
  if (isPrinted) {
    if (session.isJson) return session.json({ command: shown });
    return session.print([shown]);
  }
  if (existsSync(resolve(file))) throw taken(file);
  const program = (session.io.env["PATH"] ?? "")
    .split(delimiter)
    .map((folder) => join(folder, command))
    .find((path) => existsSync(path));
  if (program === undefined)
    throw new CliError(
      "pg_dump_missing",
      `pg_dump is not on the PATH: install the client tools of PostgreSQL and run ${shown}`,
    );
  const code = await runProgram(program, args, password === "" ? {} : { PGPASSWORD: password });
  if (code !== 0) throw new CliError("pg_dump_failed", `pg_dump ended with ${code}; see above`);
  session.done(`${file}: dumped by ${program}`, { file, command: shown });
}

function runProgram(program: string, args: readonly string[], env: Readonly<Record<string, string>>): Promise<number> {
  return new Promise((ended, failed) => {
    const child = spawn(program, args, { stdio: ["ignore", "ignore", "inherit"], env: { ...process.env, ...env } });
    child.on("error", failed);
    child.on("close", (code) => ended(code ?? 1));
  });
}
