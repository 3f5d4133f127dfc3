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
import { moment, PAGE, plain, type Sendings, sent } from "./options.ts";
import { type Paged, paged } from "./pages.ts";
import { shown } from "./shapes.ts";
import type { WirePage } from "./slots.ts";
import { path, type Transport } from "./transport.ts";

/** Who does it is the key of the client. */
const CREATE: Sendings<Omit<CreateApiKeyOptions, "by">> = {
  name: plain,
  scopes: plain,
  namespace: plain,
  expiresAt: moment,
};
const LIST: Sendings<ApiKeyListOptions> = { ...PAGE, namespace: plain };
const ROTATE: Sendings<Omit<RotateApiKeyOptions, "by">> = { grace: plain };

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
    const body = sent(options, CREATE);
    return withKey(await this.#transport.post(path("keys"), body));
  }

  /** Lists keys, without the keys: awaited, a page; iterated, all of them. */
  list(options: ApiKeyListOptions = {}): Paged<ApiKeyPage, ApiKeyInfo> {
    return paged<ApiKeyPage, ApiKeyInfo>(
      async (after = options.after) => {
        const query = { ...sent(options, LIST), after };
        const json = await this.#transport.get(path("keys"), query);
        const { items, next } = shown<WirePage<ApiKeyInfo>>(json);
        return { keys: items, next };
      },
      ({ keys }) => keys,
    );
  }

  /** Returns a key, without the key. Throws `key_not_found`. */
  async get(id: string): Promise<ApiKeyInfo> {
    return shown(await this.#transport.get(path("keys", id)));
  }

  /** Replaces a key; its id stays. With `grace`, the old one is accepted for that long, too. */
  async rotate(id: string, options?: Omit<RotateApiKeyOptions, "by">): Promise<CreatedApiKey> {
    return withKey(await this.#transport.post(path("keys", id, "rotate"), sent(options, ROTATE)));
  }

  /** Ends a key for good. */
  async revoke(id: string): Promise<ApiKeyInfo> {
    return shown(await this.#transport.post(path("keys", id, "revoke"), undefined, true));
  }

  /** What was done to a key, and by whom. */
  async history(id: string): Promise<readonly ApiKeyEntry[]> {
    const json = await this.#transport.get(path("keys", id, "history"));
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
