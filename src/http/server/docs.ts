/**
 * `GET /docs`: the API as a page for people, made of the OpenAPI document: each route with what it takes and returns, as types, and then the types that
 * have names.
 *
 * It has no script, and its style is a file of its own, so that its policy allows nothing inline. All text is escaped.
 */

import type { Routing } from "./route.ts";

interface Operation {
  readonly summary?: string;
  readonly description?: string;
  readonly tags?: readonly string[];
  readonly parameters?: readonly {
    readonly name: string;
    readonly in: string;
    readonly description?: string;
    readonly required?: boolean;
    readonly schema?: Schema;
  }[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: Schema }>> };
  readonly responses: Readonly<
    Record<
      string,
      { readonly description: string; readonly content?: Readonly<Record<string, { readonly schema: Schema }>> }
    >
  >;
}

/** What of JSON Schema the document uses. */
interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly format?: string;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly allOf?: readonly Schema[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly required?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly description?: string;
  readonly example?: unknown;
}

/** The document, as far as the page shows it. */
export interface ShownDocument {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components?: { readonly schemas?: Readonly<Record<string, Schema>> };
}

const STYLE = `body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#1a1a1a;background:#fff}
h2{margin-top:3rem;border-bottom:1px solid #ccc}h3{margin:2rem 0 .25rem}code{font:14px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}
h3 b{display:inline-block;min-width:4.5rem}table{border-collapse:collapse}td{padding:.1rem 1rem .1rem 0;vertical-align:top}nav a{margin-right:1rem}
@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}a{color:#9cf}}`;

const HEADERS = {
  "content-security-policy":
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cache-control": "no-cache",
};

export function docs({ app, document, settings }: Routing): void {
  let page: string | undefined;
  app.get("/docs", () => {
    page ??= pageOf(document() as unknown as ShownDocument, settings.prefix);
    return new Response(page, { headers: { ...HEADERS, "content-type": "text/html; charset=utf-8" } });
  });
  app.get("/docs/style.css", () => new Response(STYLE, { headers: { ...HEADERS, "content-type": "text/css" } }));
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** Escapes text, and what changes its direction. */
export const escaped = (text: string): string =>
  text
    .replace(/[&<>"']/g, (char) => ENTITIES[char] ?? "")
    .replace(/[\u202a-\u202e\u2066-\u2069]/g, (char) => `\\u${char.charCodeAt(0).toString(16)}`);

/** Escaped text, with what is between backticks as code. */
const rich = (text: string): string => escaped(text).replace(/`([^`]+)`/g, "<code>$1</code>");

function pageOf({ paths, components }: ShownDocument, prefix: string): string {
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );
  const groups = Map.groupBy(operations, ({ operation }) => operation.tags?.[0] ?? "other");
  const sections = Array.from(
    groups,
    ([tag, list]) => `<h2 id="${escaped(tag)}">${escaped(tag)}</h2>${list.map(shown).join("")}`,
  );
  const types = Object.entries(components?.schemas ?? {}).map(
    ([name, schema]) => `<h3 id="type-${escaped(name)}"><code>${escaped(name)}</code></h3>${typeRows(schema)}`,
  );
  sections.push(`<h2 id="types">types</h2>${types.join("")}`);
  const links = Array.from(groups.keys(), (tag) => `<a href="#${escaped(tag)}">${escaped(tag)}</a>`);
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Pawl: HTTP API</title><link rel="stylesheet" href="${escaped(prefix)}/docs/style.css"></head><body><h1>Pawl: HTTP API</h1>
<p>The same as a document for programs: <a href="${escaped(prefix)}/v1/openapi.json">openapi.json</a>.</p><nav>${links.join("")}<a href="#types">types</a></nav>
${sections.join("\n")}</body></html>`;
}

function shown({ path, method, operation }: { path: string; method: string; operation: Operation }): string {
  const { summary = "", description = "", parameters = [], requestBody, responses } = operation;
  const rows = parameters.map((one) =>
    rowOf(one.name, `${one.in}, `, one.required === true, one.schema, one.description),
  );
  const body = requestBody?.content["application/json"]?.schema;
  if (body?.$ref !== undefined) rows.push(rowOf("body", "", true, body));
  else
    for (const [name, part] of Object.entries(body?.properties ?? {}))
      rows.push(rowOf(name, "body, ", body?.required?.includes(name) === true, part));
  const statuses = Object.entries(responses).map(([status, one]) => {
    const schema = one.content?.["application/json"]?.schema;
    return [escaped(status), schema === undefined ? "" : typeOf(schema), rich(one.description)];
  });
  return `<h3><b>${escaped(method.toUpperCase())}</b> <code>${escaped(path)}</code></h3><p>${rich(summary)}. ${rich(description)}</p>${table(rows)}${table(statuses)}`;
}

function typeRows(schema: Schema): string {
  if (schema.properties === undefined) return `<p><code>${typeOf(schema)}</code></p>`;
  const { properties, required = [] } = schema;
  return table(Object.entries(properties).map(([name, part]) => rowOf(name, "", required.includes(name), part)));
}

function rowOf(
  name: string,
  where: string,
  isRequired: boolean,
  schema: Schema = {},
  description = schema.description ?? "",
): readonly string[] {
  const example = schema.example === undefined ? "" : ` Such as \`${JSON.stringify(schema.example)}\`.`;
  return [
    escaped(name),
    typeOf(schema),
    rich(`${where}${isRequired ? "required" : "optional"}. ${description}${example}`),
  ];
}

/** A schema as a type, in the words of TypeScript; as HTML. */
function typeOf(schema: Schema): string {
  const { $ref, enum: values, anyOf = schema.oneOf, allOf, items, properties, additionalProperties } = schema;
  if ($ref !== undefined) {
    const name = escaped($ref.slice($ref.lastIndexOf("/") + 1));
    return `<a href="#type-${name}">${name}</a>`;
  }
  if (values !== undefined) return values.map((one) => escaped(JSON.stringify(one))).join(" | ");
  if ("const" in schema) return escaped(JSON.stringify(schema.const));
  if (anyOf !== undefined) return [...new Set(anyOf.map(typeOf))].join(" | ");
  if (allOf !== undefined) return allOf.map(typeOf).join(" &amp; ");
  const types = [schema.type ?? []].flat().map((type) => {
    if (type === "array") return items === undefined ? "unknown[]" : arrayOf(typeOf(items));
    if (type === "object") return objectOf(properties, schema.required ?? [], additionalProperties);
    if (type === "string") return schema.format === "date-time" ? "time" : "string";
    return escaped(type) + rangeOf(schema);
  });
  return types.length === 0 ? "any" : types.join(" | ");
}

const arrayOf = (item: string): string => (item.includes(" | ") ? `(${item})[]` : `${item}[]`);

function objectOf(
  properties: Schema["properties"],
  required: readonly string[],
  others: Schema["additionalProperties"],
): string {
  const parts = Object.entries(properties ?? {}).map(
    ([name, part]) => `${escaped(name)}${required.includes(name) ? "" : "?"}: ${typeOf(part)}`,
  );
  if (typeof others === "object") parts.push(`[name]: ${typeOf(others)}`);
  return parts.length === 0 ? "object" : `{ ${parts.join(", ")} }`;
}

/** The range of a number, where it is one that a person would choose from. */
function rangeOf({ minimum, maximum = Number.MAX_SAFE_INTEGER }: Schema): string {
  if (minimum === undefined || minimum <= -Number.MAX_SAFE_INTEGER) return "";
  return maximum >= Number.MAX_SAFE_INTEGER ? ` ≥ ${minimum}` : ` from ${minimum} to ${maximum}`;
}

/** Rows of HTML: a name, a type, and what there is to say. */
const table = (rows: readonly (readonly string[])[]): string =>
  rows.length === 0
    ? ""
    : `<table>${rows.map(([name = "", type = "", text = ""]) => `<tr><td><code>${name}</code></td><td><code>${type}</code></td><td>${text}</td></tr>`).join("")}</table>`;
