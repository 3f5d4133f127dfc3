/**
 * API keys over HTTP: `apiKeys(pawl)`. They need a key with the scope `admin`.
 */

import type {
  ApiKeyEntry,
  ApiKeyInfo,
  ApiKeyListOptions,
  ApiKeyPage,
  CreateApiKeyOptions,
  CreatedApiKey,
  RotateApiKeyOptions,
} from "../server/keys/keys.ts";
import { PawlHttpError } from "./errors.ts";
import { type Paged, paged } from "./pages.ts";
import { momentOf, sent, shown } from "./shapes.ts";
import type { WirePage } from "./slots.ts";
import { path, type Transport } from "./transport.ts";

export class ClientKeys {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Creates a key, and returns it; it cannot be read again. Throws `response_not_kept` if the response was lost on its way: the key is there, and no one has it; revoke
   * it and create another.
   */
  async create(options: Omit<CreateApiKeyOptions, "by">): Promise<CreatedApiKey> {
    const { expiresAt, ...rest } = options;
    const body = { ...sent(rest), ...(expiresAt === undefined ? {} : { expiresAt: momentOf(expiresAt) }) };
    return withKey(await this.#transport.call({ method: "POST", path: path("keys"), body }));
  }

  /** Lists keys, without the keys: awaited, a page; iterated, all of them. */
  list(options: ApiKeyListOptions = {}): Paged<ApiKeyPage, ApiKeyInfo> {
    return paged<ApiKeyPage, ApiKeyInfo>(
      async (after = options.after) => {
        const query = { ...sent(options), after };
        const json = await this.#transport.call({ method: "GET", path: path("keys"), query });
        const { items, next } = shown<WirePage<ApiKeyInfo>>(json);
        return { keys: items, next };
      },
      ({ keys }) => keys,
    );
  }

  /** Returns a key, without the key. Throws `key_not_found`. */
  async get(id: string): Promise<ApiKeyInfo> {
    return shown(await this.#transport.call({ method: "GET", path: path("keys", id) }));
  }

  /** Replaces a key; its id stays. With `grace`, the old one is accepted for that long, too. */
  async rotate(id: string, options?: Omit<RotateApiKeyOptions, "by">): Promise<CreatedApiKey> {
    return withKey(
      await this.#transport.call({ method: "POST", path: path("keys", id, "rotate"), body: sent(options) }),
    );
  }

  /** Ends a key for good. */
  async revoke(id: string): Promise<ApiKeyInfo> {
    return shown(await this.#transport.call({ method: "POST", path: path("keys", id, "revoke"), isRepeatable: true }));
  }

  /** What was done to a key, and by whom. */
  async history(id: string): Promise<readonly ApiKeyEntry[]> {
    const json = await this.#transport.call({ method: "GET", path: path("keys", id, "history") });
    return shown<{ items: ApiKeyEntry[] }>(json).items;
  }
}

/** The server keeps no secrets, so a response that is sent again has none. */
function withKey(json: unknown): CreatedApiKey {
  const created = shown<CreatedApiKey | ApiKeyInfo>(json);
  if ("key" in created) return created;
  throw new PawlHttpError({
    status: 0,
    code: "response_not_kept",
    message: `the response with API key "${created.id}" was lost, and keys are not kept: revoke it and create another, or rotate it`,
    data: { id: created.id },
  });
}
