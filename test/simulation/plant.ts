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

/**
 * Plants many bugs in one process, each in its own copy of the code: modules that are imported with `?guard=` and its number, and all that they
 * import. Returns how many edits were made in each copy so far.
 */
export function plantCopies(copies: readonly { readonly edits: readonly Edit[] }[]): readonly number[] {
  const made = copies.map(() => 0);
  registerHooks({
    resolve(specifier, context, next) {
      const resolved = next(specifier, context);
      const number = numberIn(context.parentURL);
      const isOurs = resolved.url.startsWith("file:") && !resolved.url.includes("/node_modules/");
      return number === null || !isOurs ? resolved : { ...resolved, url: `${resolved.url}?guard=${number}` };
    },
    load(url, context, next) {
      const loaded = next(url, context);
      const number = numberIn(url);
      if (number === null || loaded.source == null) return loaded;
      const { pathname } = new URL(url);
      const edits = copies[number]?.edits.filter(({ file }) => pathname.endsWith(`/src/${file}`)) ?? [];
      made[number] = (made[number] ?? 0) + edits.length;
      return { ...loaded, source: edits.reduce(replaceOnce, String(loaded.source)) };
    },
  });
  return made;
}

function numberIn(url: string | undefined): number | null {
  const number = url === undefined ? null : (/\?guard=(\d+)$/.exec(url)?.[1] ?? null);
  return number === null ? null : Number(number);
}

export function replaceOnce(source: string, { file, from, to }: Edit): string {
  const parts = source.split(from);
  if (parts.length !== 2)
    throw new Error(`${file} has this text ${parts.length - 1} times instead of once; update the edit: ${from}`);
  return parts.join(to);
}
