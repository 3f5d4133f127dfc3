/**
 * Plants a bug: replaces text in source files while they are loaded, in this process only.
 *
 * Each replacement must find its text exactly once, so that a bug that is no longer planted is noticed.
 */

import { registerHooks } from "node:module";

export interface Edit {
  /** The end of the file's path. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

export function plant(edits: readonly Edit[]): void {
  registerHooks({
    load(url, context, nextLoad) {
      const loaded = nextLoad(url, context);
      const mine = edits.filter((edit) => url.endsWith(edit.file));
      if (mine.length === 0 || loaded.source == null) return loaded;
      return { ...loaded, source: mine.reduce(replaceOnce, String(loaded.source)) };
    },
  });
}

export function replaceOnce(source: string, { file, from, to }: Edit): string {
  const parts = source.split(from);
  if (parts.length !== 2) throw new Error(`${file} has ${parts.length - 1} times, and should have once: ${from}`);
  return parts.join(to);
}
