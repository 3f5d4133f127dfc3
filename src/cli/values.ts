/**
 * What commands show, as JSON.
 *
 * Times of Pawl are ISO texts. Values of the user have the form that they have over HTTP, in which what JSON cannot hold has a tag, as `{"$bigint":"12"}`
 * (`src/http/server/values.ts`). So a command shows the same whether it works on a store or through a server, and what it shows can be given to a command again.
 */

/** A result as it is after `plain`. */
export type Plain<T> = T extends Date
  ? string
  : T extends readonly (infer Item)[]
    ? readonly Plain<Item>[]
    : T extends object
      ? { readonly [Name in keyof T]: Plain<T[Name]> }
      : T;

/** A result of the library or the client as JSON; the fields with these names hold values of the user, whose form `toWire` knows. */
export function plain<T>(result: T, toWire: (value: unknown) => unknown, values: readonly string[]): Plain<T> {
  const inside = (part: unknown): unknown => {
    if (part instanceof Date) return part.toISOString();
    if (typeof part !== "object" || part === null) return part;
    if (Array.isArray(part)) return part.map(inside);
    return Object.fromEntries(
      Object.entries(part).flatMap(([name, one]) =>
        one === undefined ? [] : [[name, values.includes(name) ? toWire(one) : inside(one)]],
      ),
    );
  };
  return inside(result) as Plain<T>;
}

/** Whether the text is in the list, whatever its type. */
export const isOneOf = (text: string, list: readonly string[]): boolean => list.includes(text);
