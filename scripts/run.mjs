/**
 * Every npm script of this repository: `node scripts/run.mjs <task>`, with nothing to set up first.
 *
 * A fresh clone has neither the dependencies nor the right Node. This file runs on any Node from 18 on, installs what
 * package-lock.json names when node_modules does not match it, finds the Node that came with it (tools/node), and runs
 * the commands of the task on that Node, which is also the `node` that they find on their PATH. Another Node can be chosen
 * by its path, to see whether it works: `PAWL_NODE="$(command -v node)" npm test`.
 *
 * Guarantees: the exit code is that of the first command that failed; arguments after the task are passed to the task; a signal
 * ends the commands too; two concurrent runs install once.
 * Out of scope: what the tasks do. It must stay plain JavaScript without dependencies, as it runs before there are any.
 */

import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { constants, tmpdir } from "node:os";
import * as path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const modules = path.join(root, "node_modules");

const lint = { title: "Lint and format", run: () => [bin("@biomejs/biome", "biome"), "check", "--error-on-warnings"] };
const types = { title: "Types", run: () => [bin("typescript", "tsc"), "--noEmit"] };
const reporters = ["--reporter=default", "--reporter=./scripts/count-tests.mjs"];
const tests = { title: "Tests", run: () => [bin("vitest"), "run", "--allowOnly=false", ...reporters] };
const shortTests = { title: "Tests", run: () => [...tests.run(), "--project=short", "--project=short-alone"] };
const longTests = { title: "Long tests", run: () => [...tests.run(), "--project=long"] };
const source = ["--conditions=pawl-source", "--disable-warning=ExperimentalWarning"];

/** With tests, these run meanwhile: tests that wait leave the cores to them. */
const checks = [lint, types].map((step) => ({ ...step, isBeside: true }));

/**
 * A task is a list of commands, one after the other; those that are `isBeside` start with the first, and their output comes when they have ended. Extra
 * arguments go to the one marked `takesArgs`, or else to the last.
 */
const tasks = {
  test: [...checks, shortTests],
  "test:long": [longTests],
  "test:all": [...checks, tests],
  check: [{ ...lint, takesArgs: true }, types],
  build: [{ title: "Build", before: cleanDist, run: () => [bin("typescript", "tsc"), "-p", "tsconfig.build.json"] }],
  start: [{ run: () => [...source, "demo/server.ts"] }],
  demo: [{ run: () => [...source, "demo/main.ts"] }],
  bench: [{ run: () => [...source, "bench/main.ts"] }],
  "bench:http": [{ run: () => [...source, "bench/http.ts"] }],
  "bench:peers": [{ run: () => [...source, "bench/peers/start.mjs"] }],
  simulate: [{ run: () => [...source, "scripts/simulate.ts"] }],
  faults: [{ run: () => [...source, "scripts/faults.ts"] }],
  pgbouncer: [{ run: () => [...source, "scripts/pgbouncer.ts"] }],
  serializable: [{ run: () => [...source, "scripts/serializable.ts"] }],
  differential: [{ run: () => [...source, "scripts/differential.ts"] }],
  mutate: [{ run: () => [...source, "scripts/mutate.ts"] }],
};

const [name, ...extraArgs] = process.argv.slice(2);
process.exitCode = await main(name, extraArgs);

async function main(task, args) {
  if (task === undefined || !Object.hasOwn(tasks, task)) {
    const known = Object.keys(tasks).join(", ");
    return refuse(
      task === undefined ? `Name a task: ${known}.` : `There is no task "${task}". The tasks are: ${known}.`,
    );
  }
  if (!(await install())) return 1;
  const node = findNode();
  if (node === null) return 1;
  return runTask(task, args, node);
}

function refuse(sentence) {
  console.error(sentence);
  return 1;
}

// ---------------------------------------------------------------------------------------------------- running a task

/** Runs every command even when one fails, so that one run shows everything that needs to be fixed. */
async function runTask(task, args, node) {
  const steps = tasks[task];
  const argsAt = steps.some((step) => step.takesArgs) ? steps.findIndex((step) => step.takesArgs) : steps.length - 1;
  const reportDir = steps.some(isTests) ? fs.mkdtempSync(path.join(tmpdir(), "pawl-test-")) : null;
  const report = reportDir === null ? null : path.join(reportDir, "counts.json");
  const env = { ...envWith(node), ...(report === null ? {} : { PAWL_TEST_COUNTS: report }) };
  const runStep = async (step, index) => {
    if (step.title !== undefined && !step.isBeside) console.log(heading(step));
    step.before?.();
    const command = [...step.run(), ...(index === argsAt ? args : [])];
    if (step.isBeside) return runBeside(step, node, command, env);
    const { code, interrupted } = await runChild(node, command, { env, stdio: "inherit" });
    if (interrupted !== null) return { code, interrupted };
    const again = (command) => runChild(node, command, { env, stdio: "inherit" });
    return secondAttempt(judge(step, code, report, args), step, report, again);
  };
  let outcomes = [];
  try {
    const running = steps.map((step, index) => (step.isBeside ? runStep(step, index) : undefined));
    for (const [index, step] of steps.entries()) {
      running[index] ??= runStep(step, index);
      if (!step.isBeside && isInterrupted(await running[index])) break;
    }
    outcomes = await Promise.all(running);
  } finally {
    if (reportDir !== null) fs.rmSync(reportDir, { recursive: true, force: true });
  }
  const ended = outcomes.find(isInterrupted);
  if (ended !== undefined) return steps.length === 1 ? ended.code : ended.code || exitCodeOf(ended.interrupted);
  if (steps.length > 1 || steps.some(isTests)) {
    const failed = outcomes.some(({ code }) => code !== 0);
    for (const { code, output } of outcomes) if (code !== 0 && output !== undefined) console.log(output);
    for (const { failures = [] } of outcomes)
      for (const { file, test, error } of failures) console.log(`\n× ${file} > ${test}\n    ${firstLines(error)}`);
    console.log(`\n${failed ? "FAILED" : "PASSED"}  ${outcomes.map(({ said }) => said).join("  |  ")}`);
  }
  return outcomes.find(({ code }) => code !== 0)?.code ?? 0;
}

function heading({ title }) {
  return `\n=== ${title} ===`;
}

function isInterrupted(outcome) {
  return (outcome?.interrupted ?? null) !== null;
}

/** Runs a check while tests run: what it says comes in one piece when it has ended, and if it failed, once more at the end. */
async function runBeside(step, node, command, env) {
  const color = process.stdout.isTTY ? { FORCE_COLOR: "1" } : {};
  let output = `${heading(step)}\n`;
  const hear = (stream) => stream.setEncoding("utf8").on("data", (text) => (output += text));
  const stdio = ["ignore", "pipe", "pipe"];
  const { code, interrupted } = await runChild(node, command, { env: { ...env, ...color }, stdio }, (child) => {
    hear(child.stdout);
    hear(child.stderr);
  });
  if (interrupted !== null) return { code, interrupted };
  output = output.trimEnd();
  console.log(output);
  return { ...judge(step, code), output };
}

function isTests(step) {
  return step === tests || step === shortTests || step === longTests;
}

/** Reports how a command ended. A test that was skipped proves nothing, so a full run that skips one has failed. */
function judge(step, code, report, args) {
  if (!isTests(step)) return { code, said: `${step.title ?? ""}: ${code === 0 ? "ok" : "failed"}` };
  const counts = readCounts(report);
  if (counts === null) return { code: code || 1, said: `${step.title}: did not finish` };
  const { passed, failed, skipped, failures } = counts;
  const mayNotSkip = skipped > 0 && args.length === 0;
  const parts = [
    `${passed} of ${passed + failed + skipped} passed`,
    failed > 0 ? `${failed} failed` : "",
    skipped > 0 ? `${skipped} skipped${mayNotSkip ? " (which a full run may not)" : ""}` : "",
    code !== 0 && failed === 0 ? "vitest failed (see above)" : "",
  ];
  return { code: code || (mayNotSkip ? 1 : 0), said: `${step.title}: ${parts.filter(Boolean).join(", ")}`, failures };
}

/**
 * With PAWL_TEST_AGAIN, up to three files that failed are run once more, alone: on a busy machine a limit of time can end a test that is right. What
 * fails again has failed, and what passes is named all the same.
 */
async function secondAttempt(outcome, step, report, run) {
  const files = [...new Set((outcome.failures ?? []).map(({ file }) => file))];
  if (!process.env.PAWL_TEST_AGAIN || files.length === 0 || files.length > 3) return outcome;
  console.log(`\n=== Again, alone: ${files.join(", ")} ===`);
  fs.rmSync(report);
  const { code } = await run([...step.run(), "--maxWorkers=1", ...files]);
  const again = judge(step, code, report, files);
  const said = `${outcome.said}; again, alone: ${again.code === 0 ? "passed" : "failed"}`;
  return { ...again, said, failures: [...outcome.failures, ...(again.failures ?? [])] };
}

function firstLines(text) {
  return text.split("\n", 3).join("\n    ").slice(0, 600);
}

function readCounts(report) {
  try {
    return readJson(report);
  } catch {
    return null;
  }
}

function cleanDist() {
  fs.rmSync(path.join(root, "dist"), { recursive: true, force: true });
}

/** The script behind a command of an installed package, from the package's own `bin`. */
function bin(packageName, command = packageName) {
  const home = path.join(modules, packageName);
  const declared = readJson(path.join(home, "package.json")).bin;
  return path.join(home, typeof declared === "string" ? declared : declared[command]);
}

/**
 * The environment in which `node` is the given one, for the command and for all that it starts. Node 22 does not know
 * `using`, so there a hook translates it.
 */
function envWith(node) {
  const env = { ...process.env };
  const pathKey = Object.keys(env).find((key) => key.toUpperCase() === "PATH") ?? "PATH";
  env[pathKey] = [path.dirname(node), path.join(modules, ".bin"), env[pathKey]].filter(Boolean).join(path.delimiter);
  const { stdout } = spawnSync(node, ["--version"], { encoding: "utf8" });
  if (stdout.startsWith("v22.")) {
    const hook = pathToFileURL(path.join(root, "scripts", "lower-using.mjs")).href;
    env.NODE_OPTIONS = [env.NODE_OPTIONS, `--import=${hook}`].filter(Boolean).join(" ");
  }
  return env;
}

/** Runs a command to its end. `interrupted` is the signal that ended it or that we passed on to it, if any. */
function runChild(command, args, options, started = () => {}) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, ...options });
    started(child);
    const stopForwarding = forwardSignals(child);
    child.on("error", (error) => {
      stopForwarding();
      resolve({ code: refuse(`Could not run ${command}: ${error.message}`), interrupted: null });
    });
    // Not at its exit, which may come before the last of its output.
    child.on("close", (code, signal) => {
      const received = stopForwarding();
      resolve({ code: code ?? exitCodeOf(signal), interrupted: signal ?? received });
    });
  });
}

/** Passes signals on to the child, except a Ctrl-C, which the terminal has already sent to the child. */
function forwardSignals(child) {
  let received = null;
  const names = ["SIGINT", "SIGTERM", "SIGHUP"];
  const onSignal = (signal) => {
    received = signal;
    if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
  };
  for (const signal of names) process.on(signal, onSignal);
  return () => {
    for (const signal of names) process.off(signal, onSignal);
    return received;
  };
}

/** The exit code by which shells report death by this signal. */
function exitCodeOf(signal) {
  return 128 + (constants.signals[signal] ?? 0);
}

// ------------------------------------------------------------------------------------------------ the Node to run on

/** The package of tools/node that has a Node for this platform, whether or not there is one. */
function nodePackage() {
  return `node-${process.platform === "win32" ? "win" : process.platform}-${process.arch}`;
}

/**
 * The Node that PAWL_NODE names, or the one from tools/node; if that has none for this platform, the current one. A Node
 * that was not brought must be one that package.json allows.
 */
function findNode() {
  const chosen = process.env.PAWL_NODE;
  if (chosen) return checkChosen(chosen);
  const brought = path.join(modules, nodePackage(), "bin", process.platform === "win32" ? "node.exe" : "node");
  if (fs.existsSync(brought) && spawnSync(brought, ["--version"]).status === 0) return brought;
  const wanted = readJson(path.join(root, "package.json")).engines.node;
  if (satisfies(process.versions.node, wanted)) return process.execPath;
  console.error(
    `This needs Node ${wanted}, and npm has none to bring for ${process.platform} ${process.arch}; ` +
      `this is Node ${process.versions.node}. Install Node 24 from nodejs.org and run the command again.`,
  );
  return null;
}

/** The Node at this path, unless it does not run or package.json does not allow it. */
function checkChosen(chosen) {
  const { stdout } = spawnSync(chosen, ["-p", "process.versions.node + ' ' + process.execPath"], { encoding: "utf8" });
  const [, version, file] = /^(\d+\.\d+\.\d+)\S* (.+)/.exec(stdout ?? "") ?? [];
  const wanted = readJson(path.join(root, "package.json")).engines.node;
  if (version === undefined || !satisfies(version, wanted)) {
    const found = version === undefined ? "is no Node that runs" : `is Node ${version}`;
    console.error(`PAWL_NODE=${chosen} ${found}. Set it to the path of a Node ${wanted}, or unset it.`);
    return null;
  }
  console.log(`Running on Node ${version}, as PAWL_NODE says.`);
  return file;
}

/** Knows the part of semver ranges that "engines" uses: `>=` and `<`, joined by blanks (and) and `||` (or). */
function satisfies(version, range) {
  const compare = (left, right) =>
    left.map((part, i) => part - (right[i] ?? 0)).find((difference) => difference !== 0) ?? 0;
  const numbers = (text) => text.split(".").map(Number);
  return range.split("||").some((all) =>
    all
      .trim()
      .split(/\s+/)
      .every((comparator) => {
        const [, operator, bound] = /^(>=|<)(\d+(?:\.\d+)*)$/.exec(comparator) ?? [];
        if (operator === undefined) throw new Error(`cannot read "${comparator}" in the engines of package.json`);
        const order = compare(numbers(version), numbers(bound));
        return operator === ">=" ? order >= 0 : order < 0;
      }),
  );
}

function readJson(file) {
  return JSON.parse(fs.readFileSync(file, "utf8"));
}

// ------------------------------------------------------------------------------------------------- the dependencies

/** Makes node_modules match package-lock.json. A second process waits for the first and then finds it done. */
async function install() {
  if (isInstalled()) return true;
  const release = await lockInstall();
  try {
    if (isInstalled()) return true;
    if (matchesNpmsRecord()) {
      fs.writeFileSync(stampFile(), stamp());
      return true;
    }
    console.log("Installing the dependencies that package-lock.json names (npm ci) …");
    const { code, interrupted } = await runNpmCi();
    if (code !== 0 || interrupted !== null) {
      console.error("npm ci did not finish, so nothing was run. Mend what it says above, and run this again.");
      return false;
    }
    fs.writeFileSync(stampFile(), stamp());
    return true;
  } finally {
    release();
  }
}

function stampFile() {
  return path.join(modules, ".pawl-installed");
}

/** What node_modules was made from: the lock file, for one platform (a folder may be shared with a container). */
function stamp() {
  const lock = fs.readFileSync(path.join(root, "package-lock.json"));
  return `${createHash("sha256").update(lock).digest("hex")} ${process.platform}-${process.arch}\n`;
}

function isInstalled() {
  try {
    return fs.readFileSync(stampFile(), "utf8") === stamp();
  } catch {
    return false;
  }
}

/**
 * Whether an install made by hand already fits. npm writes its record of node_modules as the last thing it does; it fits
 * when it has what the lock file has, in the same versions, but for optional packages, which other platforms need.
 */
function matchesNpmsRecord() {
  let recorded;
  try {
    recorded = readJson(path.join(modules, ".package-lock.json")).packages;
  } catch {
    return false;
  }
  const locked = Object.entries(readJson(path.join(root, "package-lock.json")).packages);
  const wanted = new Map(locked.filter(([place]) => place.startsWith("node_modules/")));
  const same = (a, b) => a.version === b.version && a.integrity === b.integrity;
  for (const [place, entry] of wanted) {
    const found = recorded[place];
    if (found === undefined) {
      const mayBeMissing = (entry.optional || entry.devOptional) && place !== `node_modules/${nodePackage()}`;
      if (!mayBeMissing) return false;
    } else if (!same(found, entry) || !fs.existsSync(path.join(root, place))) return false;
  }
  return Object.keys(recorded).every((place) => !place.startsWith("node_modules/") || wanted.has(place));
}

/** Runs npm on the Node that npm itself runs on, because the one in node_modules is about to be replaced. */
function runNpmCi() {
  const args = ["ci", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"];
  const npmCli = process.env.npm_execpath;
  const [command, commandArgs, shell] =
    npmCli?.endsWith("npm-cli.js") === true
      ? [process.env.npm_node_execpath ?? process.execPath, [npmCli, ...args], false]
      : ["npm", args, process.platform === "win32"];
  return runChild(command, commandArgs, { shell, stdio: ["ignore", "inherit", "inherit"] });
}

/**
 * Takes the lock on installing: a file with the holder's process id, outside node_modules, which npm ci deletes. A lock
 * whose process is gone is taken over by moving it away, which only one can do; one that turns out to be alive is put back.
 */
async function lockInstall() {
  const lock = path.join(root, ".pawl-installing");
  for (let told = false; ; told = true) {
    try {
      fs.writeFileSync(lock, String(process.pid), { flag: "wx" });
      return () => fs.rmSync(lock, { force: true });
    } catch (error) {
      if (error.code !== "EEXIST") throw error;
    }
    if (isAbandoned(lock)) {
      const moved = `${lock}.${process.pid}`;
      try {
        fs.renameSync(lock, moved);
        if (!isAbandoned(moved)) fs.linkSync(moved, lock);
      } catch (error) {
        if (error.code !== "ENOENT" && error.code !== "EEXIST") throw error;
      }
      fs.rmSync(moved, { force: true });
      continue;
    }
    if (!told) console.log("Another run is installing the dependencies; waiting for it …");
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

function isAbandoned(lock) {
  let holder;
  try {
    holder = Number(fs.readFileSync(lock, "utf8"));
    // The file is made before the id is in it, so an empty one belongs to a process that is just taking it.
    if (holder === 0) return Date.now() - fs.statSync(lock).mtimeMs > 5_000;
  } catch {
    return false;
  }
  try {
    process.kill(holder, 0);
    return false;
  } catch (error) {
    return error.code === "ESRCH";
  }
}
