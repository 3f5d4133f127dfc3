/**
 * Requests drawn from an OpenAPI document: valid ones, and ones with one part made invalid.
 */

export interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly anyOf?: readonly Schema[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | Schema;
  readonly format?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly example?: unknown;
}

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly schema: Schema;
}

interface Operation {
  readonly operationId: string;
  readonly description: string;
  readonly parameters?: readonly Parameter[];
  readonly security: readonly unknown[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: Schema }>> };
  readonly responses: Readonly<Record<string, { readonly content?: Readonly<Record<string, unknown>> }>>;
}

export interface Drawn {
  readonly rule: string;
  readonly url: string;
  readonly body: unknown;
}

export interface ShownOperation extends Operation {
  readonly path: string;
  readonly method: string;
  readonly body: Schema | undefined;
  valid(seed: number): Drawn;
  invalid(): readonly Drawn[];
  /** The path with these values for its parameters. */
  at(values: (name: string) => string): string;
}

/** The operations of a document. */
export function operationsOf(document: unknown): readonly ShownOperation[] {
  const { paths, components } = document as {
    readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
    readonly components: { readonly schemas: Readonly<Record<string, Schema>> };
  };
  const resolved = (schema: Schema): Schema =>
    schema.$ref === undefined ? schema : resolved(components.schemas[schema.$ref.split("/").at(-1) ?? ""] ?? {});
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => drawing(path, method, operation, resolved)),
  );
}

function drawing(
  path: string,
  method: string,
  operation: Operation,
  resolve: (schema: Schema) => Schema,
): ShownOperation {
  const { parameters = [], requestBody } = operation;
  const given = requestBody?.content["application/json"]?.schema;
  const body = given === undefined ? undefined : resolve(given);
  const inQuery = parameters.filter((one) => one.in === "query");
  const at = (values: (name: string) => string): string =>
    path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(values(name)));
  const exampleOf = (name: string): string =>
    String(parameters.find((one) => one.in === "path" && one.name === name)?.schema.example ?? "x");
  const urlWith = (query: Readonly<Record<string, unknown>>): string => {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(query))
      for (const one of Array.isArray(value) ? value : [value]) search.append(name, String(one));
    return search.size === 0 ? at(exampleOf) : `${at(exampleOf)}?${search}`;
  };
  const queryOf = (draw: Draw): Record<string, unknown> => {
    const query: Record<string, unknown> = {};
    for (const { name, required, schema } of inQuery)
      if (required === true || draw.flips()) query[name] = sample(resolve(schema), draw, resolve);
    return query;
  };
  const least = (): Drawn => {
    const draw = new Draw(0, false);
    return { rule: "valid", url: urlWith(queryOf(draw)), body: body && sample(body, draw, resolve) };
  };
  return {
    ...operation,
    path,
    method,
    body,
    at,
    valid: (seed) => {
      const draw = new Draw(seed * 7919 + path.length);
      return { rule: "valid", url: urlWith(queryOf(draw)), body: body && sample(body, draw, resolve) };
    },
    invalid: () => {
      const all: Drawn[] = [];
      const valid = least();
      const query = queryOf(new Draw(0, false));
      all.push({ ...valid, rule: "an unknown parameter", url: urlWith({ ...query, unknown: "1" }) });
      for (const { name, required, schema } of inQuery) {
        const { type, enum: words, format } = resolve(schema);
        const isFree = type === "string" && words === undefined && format === undefined;
        if (!isFree && resolve(schema).anyOf === undefined)
          all.push({ ...valid, rule: `${name} of another type`, url: urlWith({ ...query, [name]: "\u2603" }) });
        const { [name]: _, ...rest } = query;
        if (required === true) all.push({ ...valid, rule: `without ${name}`, url: urlWith(rest) });
      }
      if (body === undefined || typeof valid.body !== "object" || valid.body === null) return all;
      const object = valid.body as Readonly<Record<string, unknown>>;
      all.push({ ...valid, rule: "an unknown member", body: { ...object, unknown: 1 } });
      all.push({ ...valid, rule: "a list for a body", body: [] });
      for (const [name, part] of Object.entries(body.properties ?? {})) {
        const wrong = otherThan(resolve(part));
        if (wrong !== undefined)
          all.push({ ...valid, rule: `${name} of another type`, body: { ...object, [name]: wrong } });
        const { [name]: _, ...rest } = object;
        if (body.required?.includes(name) === true) all.push({ ...valid, rule: `without ${name}`, body: rest });
      }
      return all;
    },
  };
}

/** Draws from a seed: which optional parts are there, and which alternative it is. */
class Draw {
  #state: number;
  readonly #isRandom: boolean;

  constructor(seed: number, isRandom = true) {
    this.#state = seed + 1;
    this.#isRandom = isRandom;
  }

  below(count: number): number {
    if (!this.#isRandom) return 0;
    this.#state = (this.#state * 48_271) % 2_147_483_647;
    return this.#state % count;
  }

  flips(): boolean {
    return this.#isRandom && this.below(2) === 1;
  }
}

function sample(schema: Schema, draw: Draw, resolve: (schema: Schema) => Schema): unknown {
  if (schema.const !== undefined) return schema.const;
  if (schema.enum !== undefined) return schema.enum[draw.below(schema.enum.length)];
  if (schema.example !== undefined && schema.type !== "object") return schema.example;
  if (schema.anyOf !== undefined)
    return sample(resolve(schema.anyOf[draw.below(schema.anyOf.length)] ?? {}), draw, resolve);
  const type = typeof schema.type === "string" ? schema.type : schema.type?.[0];
  switch (type) {
    case "string":
      return schema.format === "date-time" ? "2030-01-01T00:00:00.000Z" : "text";
    case "integer":
    case "number":
      return Math.max(schema.minimum ?? 1, 1);
    case "boolean":
      return draw.flips();
    case "array":
      return [sample(resolve(schema.items ?? {}), draw, resolve)];
    case "object": {
      const parts = Object.entries(schema.properties ?? {}).filter(
        ([name]) => schema.required?.includes(name) === true || draw.flips(),
      );
      return Object.fromEntries(parts.map(([name, part]) => [name, sample(resolve(part), draw, resolve)]));
    }
    case "null":
      return null;
    default:
      return { any: ["value", 1, null] };
  }
}

/** A value that does not fit; undefined if everything fits. */
function otherThan({ type, anyOf, enum: words }: Schema): unknown {
  if (words !== undefined) return "no such word";
  if (anyOf !== undefined) return true;
  if (type === undefined) return undefined;
  return type === "boolean" ? "true" : type === "object" ? 1 : type === "array" ? 1 : true;
}
