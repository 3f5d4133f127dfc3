/**
 * What a successful response must have, so that what uses it finds it: anything else did not come from a Pawl server, or not in one piece.
 *
 * A route is named by its method and path, with `*` for ids, which are in no message: the path of a signal has a secret. The routes and members are those
 * of the OpenAPI document; a test compares them. Only members that this release reads are listed, so that other releases of the server may differ in the rest.
 */

const LIST = ["items", "next"];
const LOCKS = {
  "GET *": ["name", "holders", "waiters"],
  "POST */acquire": ["grant", "fence"],
  "POST */renew": ["fence"],
  "POST */release": ["released"],
  "POST */force-release": ["released"],
  "GET */history": LIST,
  "GET */why": ["isWaiting"],
};

const below = (prefix: string, routes: Readonly<Record<string, readonly string[]>>) =>
  Object.entries(routes).map(([route, members]) => [route.replace(/ (.*)/, ` /${prefix}/$1`), members] as const);

/** The members of each route that returns JSON. */
export const MEMBERS: ReadonlyMap<string, readonly string[]> = new Map([
  ["POST /runs", ["id"]],
  ["GET /runs", LIST],
  ...below("runs", {
    "GET *": ["id", "status"],
    "GET */history": LIST,
    "GET */result": ["status"],
    "POST */signals": ["isNew"],
    "POST */cancel": ["status"],
    "GET */why": ["isWaiting"],
    "POST bulk": LIST,
  }),
  ...below("workflows", { "GET paused": LIST, "POST */resume": ["wasPaused"] }),
  ["GET /slots", LIST],
  ...below("slots", { "GET *": ["version"], "PUT *": ["version"], "DELETE *": ["deleted"] }),
  ...below("locks", LOCKS),
  ...below("semaphores", LOCKS),
  ...below("rate-limits", { "POST */acquire": ["waitedMs"], "GET *": ["max", "remaining"] }),
  ["POST /actions", ["id", "ref", "isNew"]],
  ["GET /actions", LIST],
  ...below("actions", {
    "GET *": ["ref", "state"],
    "GET */history": LIST,
    "POST */consume": ["consumedAt", "usesLeft"],
    "POST */claim": ["fence", "leaseEndsAt"],
    "POST */complete": ["consumedAt", "usesLeft"],
    "POST */abandon": ["isNew"],
    "POST */cancel": ["canceledAt", "isNew"],
  }),
  ...below("dedupe", { "POST *": ["deduplicated"] }),
  ...below("machines", {
    "GET *": LIST,
    "POST */*": ["id", "state", "version"],
    "GET */*": ["id", "state", "version"],
    "POST */*/transition": ["id", "state", "version"],
    "GET */*/history": LIST,
  }),
  ...below("streams", { "GET *": ["version"], "POST */events": ["version", "ids"], "GET */events": LIST }),
  ["GET /events", LIST],
  ["GET /reactions", LIST],
  ...below("reactions", {
    "GET *": ["name"],
    "GET */targets": LIST,
    "POST */unblock": ["changed"],
    "POST */reset": ["changed"],
    "POST */prioritize": ["changed"],
    "POST */pause": ["changed"],
    "POST */resume": ["changed"],
    "POST */skip": ["stream", "version"],
    "GET */dead-letters": LIST,
  }),
  ["GET /projections", LIST],
  ...below("projections", { "GET *": ["live", "building"], "POST */rebuild": ["generation"] }),
  ["POST /schedules", ["name", "state"]],
  ["GET /schedules", LIST],
  ...below("schedules", {
    "GET *": ["name", "state"],
    "PATCH *": ["name", "state"],
    "DELETE *": ["deleted"],
    "POST */pause": ["name", "state"],
    "POST */resume": ["name", "state"],
    "POST */trigger": ["run"],
    "POST */backfill": ["runs", "next"],
    "GET */preview": LIST,
    "GET */history": LIST,
  }),
  ["POST /tasks", ["task", "isNew"]],
  ["GET /tasks", LIST],
  ...below("tasks", {
    "GET *": ["id", "outcome"],
    "POST */cancel": ["canceled", "outcome"],
    "POST redrive": ["redriven"],
    "POST */redrive": ["id", "outcome"],
    "GET */attempts": LIST,
    "GET */deliveries": LIST,
  }),
  ...below("signals", { "POST *": ["task", "isNew"] }),
  ["POST /keys", ["id", "name"]],
  ["GET /keys", LIST],
  ...below("keys", {
    "GET *": ["id", "name"],
    "GET */history": LIST,
    "POST */rotate": ["id", "name"],
    "POST */revoke": ["id", "name"],
  }),
]);

const isList = (value: unknown): boolean => Array.isArray(value) && value.every((one) => one !== null);

/** What a member is, where it is the same everywhere. Of the others, it is enough that they are there. */
const IS: Readonly<Record<string, (value: unknown) => boolean>> = {
  ...Object.fromEntries(["items", "ids", "runs", "holders", "waiters"].map((name) => [name, isList])),
  next: (value) => value === null || typeof value === "string",
  ...is("string", "id", "name", "ref", "status", "state", "grant", "consumedAt", "leaseEndsAt", "canceledAt"),
  ...is("number", "version", "fence", "usesLeft", "max", "remaining", "waitedMs"),
  ...is("boolean", "isNew", "isWaiting", "deleted", "deduplicated", "wasPaused", "canceled"),
};

function is(type: string, ...names: readonly string[]): Record<string, (value: unknown) => boolean> {
  return Object.fromEntries(names.map((name) => [name, (value: unknown) => typeof value === type]));
}

/** Routes by method and length; a word comes before an id, as in the server: POST /runs/bulk. */
const ROUTES = new Map<string, { readonly route: string; readonly words: readonly string[] }[]>();
for (const route of [...MEMBERS.keys()].sort((a, b) => Number(a.endsWith("*")) - Number(b.endsWith("*")))) {
  const [method = "", path = ""] = route.split(" ");
  const words = path.split("/").slice(1);
  const form = `${method} ${words.length}`;
  ROUTES.set(form, [...(ROUTES.get(form) ?? []), { route, words }]);
}

/** The name of the route that a path leads to: words that routes have stay, all others are ids. */
export function routeOf(method: string, path: string): string {
  const parts = path.split("/").slice(1);
  const found = ROUTES.get(`${method} ${parts.length}`)?.find(({ words }) =>
    words.every((word, i) => (word === "*" ? i > 0 : word === parts[i])),
  );
  return found?.route ?? `${method} /${parts[0]}${"/*".repeat(parts.length - 1)}`;
}

/** What the JSON of a response lacks; undefined if nothing. A response without a body is for routes that return none. */
export function lackOf(route: string, json: unknown): string | undefined {
  const members = MEMBERS.get(route);
  if (members === undefined) return undefined;
  if (json === undefined) return "it has no body";
  if (typeof json !== "object" || json === null || Array.isArray(json)) return "it is not a JSON object";
  const values = json as Readonly<Record<string, unknown>>;
  const lacking = members.find((name) => !(name in values) || IS[name]?.(values[name]) === false);
  return lacking === undefined ? undefined : `it has no "${lacking}", or another than expected`;
}
