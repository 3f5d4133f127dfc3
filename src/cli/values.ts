/**
 * Values as programs in any language get them: plain JSON.
 *
 * What Pawl stores has more types than JSON. On the command line a date is its ISO text, an error its name, message and code, and what has no JSON at all is
 * described. So a command shows the same whether it works on a store or through a server.
 */

/** A value as it is after `plain`. */
export type Plain<T> = T extends Date
  ? string
  : T extends readonly (infer Item)[]
    ? readonly Plain<Item>[]
    : T extends object
      ? { readonly [Name in keyof T]: Plain<T[Name]> }
      : T;

/** How deep values are shown; what is deeper becomes a text. */
const DEEPEST = 64;

export function plain<T>(value: T): Plain<T> {
  return plainAt(value, DEEPEST) as Plain<T>;
}

function plainAt(value: unknown, depth: number): unknown {
  if (typeof value === "bigint") return String(value);
  if (typeof value === "number") return Number.isFinite(value) ? value : String(value);
  if (typeof value === "function" || typeof value === "symbol") return String(value);
  if (typeof value !== "object" || value === null) return value;
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString();
  if (depth === 0) return "…";
  const inside = (one: unknown): unknown => plainAt(one, depth - 1);
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  if (Array.isArray(value)) return value.map(inside);
  if (value instanceof Map) return [...value].map(inside);
  if (value instanceof Set) return [...value].map(inside);
  if (value instanceof Error) return errorOf(value, inside);
  if ("toJSON" in value && typeof value.toJSON === "function") return inside(value.toJSON());
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, one]) => (one === undefined ? [] : [[name, inside(one)]])),
  );
}

function errorOf(error: Error, inside: (one: unknown) => unknown): object {
  const { code, data } = error as { readonly code?: unknown; readonly data?: unknown };
  return {
    name: error.name,
    message: error.message,
    ...(code === undefined ? {} : { code: inside(code) }),
    ...(data === undefined ? {} : { data: inside(data) }),
  };
}

/** Whether the text is in the list, whatever its type. */
export const isOneOf = (text: string, list: readonly string[]): boolean => list.includes(text);
