/**
 * Who sends a request: its API key, what that key may do, and how often.
 *
 * The key comes in `Authorization: Bearer …`. What is no key, by shape or checksum, is refused without a look at the store, and so is an unknown key from
 * where too many came; an unknown key, one that was revoked and one that has expired are refused with the same response. A key anywhere in the query is refused, because addresses end up in logs and
 * histories.
 *
 * A key belongs to one namespace, and a request gets the handle of that namespace: what is in another does not exist for it (G26).
 */

import { addressOf, Strangers } from "./addresses.ts";
import type { Allowances } from "./allowance.ts";
import { kernelOf, type ServedPawl, type ServedVerbs } from "./handle.ts";
import { mayDo, type Scope } from "./keys/decide.ts";
import type { ApiKeyInfo, ApiKeys } from "./keys/keys.ts";
import { LOOKS_LIKE_KEY, type ParsedApiKey, parseApiKey } from "./keys/text.ts";
import { type Problem, refuse } from "./problem.ts";
import { ReplySeal } from "./sealed.ts";
import type { Settings } from "./settings.ts";

/** The client of a request. */
export interface Caller {
  /** The id of its key; null on a server without keys. */
  readonly keyId: string | null;
  readonly namespace: string;
  readonly scopes: readonly Scope[];
  /** The handle of its namespace. */
  readonly root: ServedPawl;
  /** The same, with the key as the actor. */
  readonly pawl: ServedVerbs;
  /** Seals what only this key may read again; null on a server without keys. */
  readonly seal: ReplySeal | null;
  /** Throws `unauthorized` if the key may no longer be used, for a request that took its time. */
  readonly verifyAgain: () => Promise<void>;
  /** Calls back with a refusal when the key may no longer be used, for a request that waits. Returns a function that stops it. */
  readonly watch: (ended: (refusal: Problem) => void) => () => void;
}

export class Callers {
  readonly #pawl: ServedPawl;
  readonly #namespace: string;
  readonly #keys: ApiKeys;
  readonly #settings: Settings;
  readonly #allowances: Allowances | undefined;
  readonly #strangers: Strangers | undefined;

  constructor(
    pawl: ServedPawl,
    namespace: string,
    keys: ApiKeys,
    settings: Settings,
    allowances: Allowances | undefined,
  ) {
    this.#pawl = pawl;
    this.#namespace = namespace;
    this.#keys = keys;
    this.#settings = settings;
    this.#allowances = allowances;
    const { keyless } = settings;
    this.#strangers = keyless === undefined ? undefined : new Strangers(kernelOf(pawl).ports.clock, keyless);
  }

  /** The client of a request, which may do what has this scope; null for what needs no key. */
  async of(request: Request, env: unknown, scope: Scope | null): Promise<Caller> {
    if (hasKeyInQuery(request.url))
      throw unauthorized("An API key must be in the header Authorization, never in the address.");
    const everyone: Caller = {
      keyId: null,
      namespace: this.#namespace,
      scopes: this.#settings.hasKeys ? [] : ["admin"],
      root: this.#pawl,
      pawl: this.#pawl,
      seal: null,
      verifyAgain: async () => {},
      watch: () => () => {},
    };
    if (!this.#settings.hasKeys) return everyone;
    if (scope === null) {
      this.#strangers?.count(this.#addressOf(request, env));
      return everyone;
    }
    const bearer = bearerOf(request.headers.get("authorization")) ?? "";
    const parsed = parseApiKey(bearer);
    if (parsed !== null) await this.#refuseGuess(parsed, request, env);
    const key = parsed === null ? undefined : await this.#keys.verify(parsed);
    const root = key === undefined ? undefined : await this.handleOf(key.namespace);
    if (parsed === null || key === undefined || root === undefined) {
      this.#strangers?.count(this.#addressOf(request, env));
      throw unauthorized(NO_KEY);
    }
    await this.#allowances?.take(key.id);
    checkScope(key, scope);
    const { id, namespace, scopes } = key;
    const watch: Caller["watch"] = (ended) => this.#keys.watch(parsed, () => ended(unauthorized(NO_KEY)));
    return {
      keyId: id,
      namespace,
      scopes,
      root,
      pawl: root.with({ actor: `key:${id}` }),
      seal: new ReplySeal(bearer),
      verifyAgain: async () => {
        if ((await this.#keys.verify(parsed)) === undefined) throw unauthorized(NO_KEY);
      },
      watch,
    };
  }

  /** The handle of a namespace; undefined if the server has none. */
  async handleOf(namespace: string = this.#namespace): Promise<ServedPawl | undefined> {
    return namespace === this.#namespace ? this.#pawl : this.#settings.namespaces(namespace);
  }

  /**
   * From an address that is over its limit, what is no key of this store is refused without a query. A valid key is served from there, too: others may
   * share the address of one who guesses.
   */
  async #refuseGuess(parsed: ParsedApiKey, request: Request, env: unknown): Promise<void> {
    const refusal = this.#strangers?.refusal(this.#addressOf(request, env));
    if (refusal !== undefined && !(await this.#keys.isListed(parsed))) throw refusal;
  }

  #addressOf(request: Request, env: unknown): string {
    return addressOf(request, env, this.#settings.proxies);
  }
}

const NO_KEY = "This request needs a valid API key, in the header Authorization: Bearer pawl_….";

const unauthorized = (detail: string): Problem =>
  refuse("unauthorized", detail, { headers: { "www-authenticate": "Bearer" } });

/** Throws `scope_missing` unless the key may do what has this scope. */
export function checkScope(key: Pick<ApiKeyInfo, "scopes">, scope: Scope): void {
  if (mayDo(key, scope)) return;
  const { scopes } = key;
  throw refuse("scope_missing", `This needs an API key with the scope "${scope}".`, { data: { scope, scopes } });
}

function bearerOf(header: string | null): string | undefined {
  return header === null ? undefined : /^Bearer +([^ ]+) *$/i.exec(header)?.[1];
}

/** Not "key" alone, which is that of a bucket of a rate limit: an API key under it is known by its form. */
const KEY_NAMES = new Set(["api_key", "apikey", "access_token", "token", "authorization"]);

function hasKeyInQuery(url: string): boolean {
  const start = url.indexOf("?");
  if (start < 0) return false;
  for (const [name, value] of new URLSearchParams(url.slice(start)))
    if (KEY_NAMES.has(name.toLowerCase()) || LOOKS_LIKE_KEY.test(value) || LOOKS_LIKE_KEY.test(name)) return true;
  return false;
}
