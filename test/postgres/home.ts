/**
 * The folder in which this process keeps its servers, and the files in it: owned by a user that PostgreSQL runs as, and removed when this
 * process ends, however it ends.
 */

import { spawn, spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { Socket } from "node:net";
import { tmpdir } from "node:os";
import * as path from "node:path";

/** Where the processes of a test run ask for the shared server, and for data folders to copy. The set-up sets it, and they inherit it. */
export const sharedServerVariable = "PAWL_TEST_POSTGRES_FROM";

type Owner = { readonly uid: number; readonly gid: number } | Record<never, never>;

type Home = {
  readonly folder: string;
  /** The user that runs the servers and owns all files in the home, if that is not the current user. */
  readonly owner: Owner;
  /** Reports the running postmasters to the guard. */
  remember(pid: number): void;
  forget(pid: number): void;
};

let madeHome: Home | undefined;

export function home(): Home {
  madeHome ??= makeHome();
  return madeHome;
}

function makeHome(): Home {
  const owner = findOwner();
  const folder = makeHomeFolder(owner);
  const guard = process.platform === "win32" ? null : startGuard(folder, owner);
  const running = new Set<number>();
  const report = (): void => void guard?.write(`${[...running].join(" ")}\n`);
  return {
    folder,
    owner,
    remember: (pid) => {
      running.add(pid);
      report();
    },
    forget: (pid) => {
      running.delete(pid);
      report();
    },
  };
}

/** PostgreSQL refuses to run as root, so root uses a user without other rights. */
function findOwner(): Owner {
  if (process.getuid?.() !== 0) return {};
  const [uid, gid] = ["-u", "-g"].map((flag) => Number(spawnSync("id", [flag, "nobody"], { encoding: "utf8" }).stdout));
  if (!uid || !gid) throw new Error('PostgreSQL does not run as root, and there is no user "nobody" to run it as.');
  return { uid, gid };
}

/** In the system's temporary folder; if the owner cannot use that, because it belongs to root, then in /tmp. */
function makeHomeFolder(owner: Owner): string {
  for (const parent of [tmpdir(), "/tmp"]) {
    const folder = fs.mkdtempSync(path.join(parent, "pawl-postgres-"));
    giveTo(folder, owner);
    if (!("uid" in owner)) return folder;
    if (spawnSync("sh", ["-c", 'cd "$1"', "sh", folder], { ...owner, cwd: "/" }).status === 0) return folder;
    fs.rmdirSync(folder);
  }
  throw new Error(`PostgreSQL cannot run as "nobody" here: neither ${tmpdir()} nor /tmp is open to that user.`);
}

/**
 * Reads which postmasters run, a list a line. Its input ends when our process does, even by SIGKILL: then it ends them
 * and deletes the home. A stopped process acts on a signal once it is continued.
 */
const guardScript = `
  running=
  while read -r line; do running=$line; done
  for pid in $running; do kill -QUIT "$pid"; kill -CONT "$pid"; done
  tries=100
  while ! rm -rf "$1" && [ "$tries" -gt 0 ]; do tries=$((tries - 1)); sleep 0.1 || sleep 1; done
`;

function startGuard(folder: string, owner: Owner): Socket {
  const args = ["-c", guardScript, "pawl-postgres-guard", folder];
  const guard = spawn("sh", args, { ...owner, cwd: "/", detached: true, stdio: ["pipe", "ignore", "ignore"] });
  const { stdin } = guard;
  if (!(stdin instanceof Socket)) throw new Error("the guard of the PostgreSQL servers has no input");
  // The servers run on without their guard, should it be killed, and neither keeps our process from ending.
  guard.on("error", () => {});
  stdin.on("error", () => {});
  guard.unref();
  stdin.unref();
  return stdin;
}

// ------------------------------------------------------------------------------------------------------------ files

let serverCount = 0;

export function makeServerFolder(): string {
  serverCount++;
  const folder = path.join(home().folder, `server-${serverCount}`);
  makeOwnedFolder(folder);
  return folder;
}

export function makeOwnedFolder(folder: string): void {
  fs.mkdirSync(folder, { mode: 0o700 });
  giveTo(folder);
}

export function writeOwned(file: string, content: string): void {
  fs.writeFileSync(file, content, { mode: 0o600 });
  giveTo(file);
}

function giveTo(file: string, owner: Owner = home().owner): void {
  if ("uid" in owner) fs.chownSync(file, owner.uid, owner.gid);
}

/** Copies a folder for the owner of the home. Files that vanish meanwhile were not needed. */
export async function copyTree(
  from: string,
  to: string,
  isWanted: (place: string) => boolean = () => true,
): Promise<void> {
  const copyFolder = async (place: string): Promise<void> => {
    makeOwnedFolder(path.join(to, place));
    const entries = await fs.promises.readdir(path.join(from, place), { withFileTypes: true });
    await Promise.all(
      entries.map(async (entry) => {
        const inside = path.posix.join(place, entry.name);
        if (!isWanted(inside)) return;
        try {
          await (entry.isDirectory() ? copyFolder(inside) : copyFile(inside));
        } catch (error) {
          if (!isMissing(error)) throw error;
        }
      }),
    );
  };
  const copyFile = (place: string): Promise<void> => copyOwned(path.join(from, place), path.join(to, place));
  await copyFolder("");
}

export async function copyOwned(from: string, to: string): Promise<void> {
  await fs.promises.copyFile(from, to, fs.constants.COPYFILE_FICLONE);
  giveTo(to);
}

/** What a standby has to find out by itself is left out: PostgreSQL's manual lists it under "Backing Up the Data Directory". */
export function isPartOfBackup(place: string): boolean {
  if (/^postmaster\.(?:pid|opts)$/.test(place) || path.posix.basename(place).startsWith("pgsql_tmp")) return false;
  return !/^(?:pg_wal|pg_replslot|pg_dynshmem|pg_notify|pg_serial|pg_snapshots|pg_stat_tmp|pg_subtrans)\//.test(place);
}

export function readIfThere(file: string): string {
  try {
    return fs.readFileSync(file, "utf8");
  } catch (error) {
    if (isMissing(error)) return "";
    throw error;
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}
