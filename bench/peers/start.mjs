/**
 * Installs what this folder compares, if it is not there in the versions that package.json names, and runs the comparison.
 *
 * With "streams", "tasks" or "queues" as the first argument, that is the comparison of event streams, of HTTP tasks, or of a limited queue and cron,
 * otherwise that of workflows.
 *
 * It is a package of its own because using Pawl, or working on it, does not need its quarter of a gigabyte.
 */

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const home = import.meta.dirname;

// One of the peers uses its driver in a way that the driver warns of, which does not matter for the table.
process.noDeprecation = true;

// One of the peers logs each event where these do not say otherwise, and reads them when it is loaded.
process.env.NODE_ENV ??= "production";
process.env.LOG_LEVEL ??= "fatal";

const main = ["streams", "tasks", "queues"].includes(process.argv[2] ?? "") ? `./${process.argv[2]}.ts` : "./main.ts";

if (isInstalled() || install()) await import(main);
else process.exitCode = 1;

function isInstalled() {
  const { dependencies } = readJson(join(home, "package.json"));
  return Object.entries(dependencies).every(([name, version]) => {
    try {
      return readJson(join(home, "node_modules", name, "package.json")).version === version;
    } catch {
      return false;
    }
  });
}

/** Without install scripts, which .npmrc refuses: nothing here needs one. */
function install() {
  console.log("Installing the peers that bench/peers/package-lock.json names (npm ci) …");
  const args = ["ci", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"];
  const npmCli = process.env.npm_execpath;
  const isScript = npmCli?.endsWith("npm-cli.js") === true;
  const { status } = spawnSync(isScript ? process.execPath : "npm", isScript ? [npmCli, ...args] : args, {
    cwd: home,
    stdio: "inherit",
    shell: !isScript && process.platform === "win32",
  });
  if (status === 0) return true;
  console.error(
    "npm ci did not finish, so nothing was run. Fix the problem that it reports above, and run this again.",
  );
  return false;
}

function readJson(file) {
  return JSON.parse(readFileSync(file, "utf8"));
}
