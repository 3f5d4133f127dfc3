/**
 * The real process around `main`. It runs when it is loaded.
 *
 * A command that has something to finish asks for the interruption: then a first SIGINT or SIGTERM tells it, and a second one ends the process. Others end with
 * the first.
 */

import { pause } from "../kernel/ports.ts";
import { nodePorts } from "../node/ports.ts";
import { EXIT } from "./exit-codes.ts";
import { main } from "./main.ts";

// That node:sqlite is experimental in some releases of Node is known, and not the user's concern.
process.removeAllListeners("warning");
process.on("warning", ({ name, message }) => {
  if (name !== "ExperimentalWarning") process.stderr.write(`pawl: warning: ${message}\n`);
});

process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  // The reader has what it wanted, as `head` does.
  if (error.code === "EPIPE") process.exit(0);
  // At once, as a full disk does not get what is still to come either.
  process.stderr.write(`pawl: the output could not be written: ${error.message} (output_failed)\n`, () =>
    process.exit(EXIT.failed),
  );
});
// There is nowhere left to say it.
process.stderr.on("error", () => {
  process.exitCode = EXIT.failed;
});

let interrupting: AbortController | undefined;
const interruption = (): AbortSignal => {
  if (interrupting !== undefined) return interrupting.signal;
  const controller = new AbortController();
  interrupting = controller;
  for (const [signal, code] of [["SIGINT", 130] as const, ["SIGTERM", 143] as const])
    process.on(signal, () => {
      if (controller.signal.aborted) process.exit(code);
      controller.abort();
    });
  return controller.signal;
};

const code = await main(process.argv.slice(2), {
  out: process.stdout,
  err: process.stderr,
  stdin: process.stdin,
  env: process.env,
  interruption,
  pause: (ms, abortSignal) => pause(nodePorts.clock, ms, abortSignal),
});
// A pipe takes what is written only when its reader does.
for (const stream of [process.stdout, process.stderr])
  await new Promise<void>((written) => stream.write("", () => written()));
// A timer or a connection of a module of the user must not keep the process.
process.exit(code);
