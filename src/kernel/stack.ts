/**
 * Where user code threw: the frames of an error's stack, kept with a failure so that an operator can find the line. The message is not repeated.
 *
 * Frames name files and functions, and no values. They are for operators on the database; a server does not send them.
 */

const MOST_CHARS = 2000;

/** The frames of an error, one on each line, at most 2,000 characters; undefined if it has none, as what is not an error. */
export function framesOf(error: unknown): string | undefined {
  let stack: unknown;
  try {
    stack = error instanceof Error ? error.stack : undefined;
  } catch {
    return undefined;
  }
  if (typeof stack !== "string") return undefined;
  let frames = "";
  for (const line of stack.split("\n")) {
    if (!/^\s+at /.test(line)) continue;
    const next = `${frames === "" ? "" : `${frames}\n`}${line.trim()}`;
    if (next.length > MOST_CHARS) break;
    frames = next;
  }
  return frames === "" ? undefined : frames.toWellFormed();
}

/** As a member of what is stored. */
export function withFrames(error: unknown): { readonly stack?: string } {
  const stack = framesOf(error);
  return stack === undefined ? {} : { stack };
}
