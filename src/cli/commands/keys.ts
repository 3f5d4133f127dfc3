/** `pawl keys …`: the API keys of a server. */

import type { KeyItem } from "../backend.ts";
import type { Column } from "../output.ts";
import {
  declare,
  group,
  LIST_OPTIONS,
  type Listed,
  listOption,
  option,
  type Place,
  parseMoment,
  UsageError,
} from "../program.ts";
import { DEFAULT_NAMESPACE, type Session } from "../session.ts";

const COLUMNS: readonly Column<KeyItem>[] = [
  { title: "ID", of: ({ id }) => id, isWhole: true },
  { title: "NAME", of: ({ name }) => name },
  { title: "NAMESPACE", of: ({ namespace }) => namespace },
  { title: "SCOPES", of: ({ scopes }) => scopes },
  { title: "CREATED", of: ({ createdAt }) => createdAt },
  { title: "EXPIRES", of: ({ expiresAt }) => expiresAt },
  { title: "REVOKED", of: ({ revokedAt }) => revokedAt },
];

const FIELDS = (key: KeyItem): readonly (readonly [string, unknown])[] => [
  ["id", key.id],
  ["name", key.name],
  ["namespace", key.namespace],
  ["scopes", key.scopes],
  ["created", key.createdAt],
  ["expires", key.expiresAt],
  ["revoked", key.revokedAt],
];

const byOption = () => option("--by <who>", "who does it, for the history; on a server it is the API key");

/** A key is shown once: the key alone, so that a script can take it, and what it is on stderr, as its id is needed to end it. */
function showOnce(session: Session, created: KeyItem & { readonly key: string }, also = ""): void {
  if (session.isJson) session.json(created);
  else {
    const { id, scopes, namespace } = created;
    session.say(`key ${id} with ${scopes.join(", ")} for namespace ${namespace}${also}; it is shown only now:`);
    session.print([created.key]);
  }
}

/**
 * A server keeps its keys in its own namespace, whatever they give access to. Throws where a key would be kept in a namespace that was meant as what it gives
 * access to.
 */
function checkNamespace({ url, options: { namespace } }: Session, forNamespace: string | undefined): void {
  if (url !== undefined || namespace === undefined || namespace === DEFAULT_NAMESPACE || forNamespace !== undefined)
    return;
  throw new UsageError(
    `keys are kept in the namespace of the server, and a key in ${namespace} is accepted only by pawl serve --namespace ${namespace}: give --for-namespace ${namespace} instead, which is what the key gives access to; for such a server, give both`,
  );
}

/** Whether this command asks the server with this very key. */
async function isOwnKey({ url, options: { key } }: Session, id: string): Promise<boolean> {
  if (url === undefined || key === undefined) return false;
  const { parseApiKey } = await import("../../http/server/keys/text.ts");
  return parseApiKey(key)?.id === id;
}

export function keysCommand(place: Place): void {
  const keys = group(place, "keys", "create, rotate and revoke the API keys of a server");

  declare<{ scope: readonly string[]; forNamespace?: string; expires?: string; by?: string }>(keys, {
    usage: "create <name>",
    summary: "create a key, and print it once",
    options: [
      listOption("--scope <scopes>", "read, write, operate, admin; several with commas").makeOptionMandatory(),
      option("--for-namespace <name>", "what it gives access to (default: the server's own)"),
      option("--expires <when>", "a duration as 90d, or a time as 2027-01-31 (default: never)"),
      byOption(),
    ],
    help: "Each scope includes none of the others, except admin, which includes all. The name says what the key is for.\nKeys are kept in the namespace of the server that accepts them: --namespace is only for one of pawl serve --namespace.",
    run: async (session, [name = ""], { scope, forNamespace, expires, by: given }) => {
      const by = session.actor(given);
      checkNamespace(session, forNamespace);
      const expiresAt = expires === undefined ? undefined : await parseMoment(expires, "--expires");
      const backend = await session.backend("create");
      showOnce(session, await backend.keys.create({ name, scopes: scope, namespace: forNamespace, expiresAt, by }));
    },
  });

  declare<Listed<{ forNamespace?: string }>>(keys, {
    usage: "list",
    summary: "list keys, without the keys themselves",
    isDefault: true,
    options: [option("--for-namespace <name>", "only keys of this namespace"), ...LIST_OPTIONS()],
    run: async (session, _, { forNamespace, ...options }) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: COLUMNS,
          page: (page) => backend.keys.list({ ...page, namespace: forNamespace }),
          keyOf: ({ id }) => id,
          none:
            session.options.namespace === undefined
              ? "no keys"
              : `no keys are kept in namespace ${session.namespace}: --for-namespace lists those of the server that give access to it`,
        },
        options,
      );
    },
  });

  declare(keys, {
    usage: "show <id>",
    summary: "show one key, without the key itself",
    run: async (session, [id = ""]) => {
      const backend = await session.backend("read");
      await session.show({ get: () => backend.keys.get(id), fields: FIELDS });
    },
  });

  declare(keys, {
    usage: "history <id>",
    summary: "list what was done to a key, and by whom",
    run: async (session, [id = ""]) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: [
            { title: "AT", of: ({ at }) => at },
            { title: "WHAT", of: ({ name }) => name },
            { title: "BY", of: ({ by }) => by },
          ],
          page: async () => ({ items: await backend.keys.history(id), next: null }),
          keyOf: ({ version }) => String(version),
          none: "nothing was done to it",
        },
        {},
      );
    },
  });

  declare<{ grace?: string; by?: string }>(keys, {
    usage: "rotate <id>",
    summary: "replace a key, and print the new one once",
    options: [option("--grace <duration>", "how long the old one is accepted, too (default: 0)"), byOption()],
    run: async (session, [id = ""], { grace, by: given }) => {
      const by = session.actor(given);
      const backend = await session.backend("write");
      const rotated = await backend.keys.rotate(id, { grace, by });
      showOnce(
        session,
        rotated,
        `; the old one ${grace === undefined ? "has ended" : `is accepted for ${grace} more`}`,
      );
    },
  });

  declare<{ by?: string }>(keys, {
    usage: "revoke <id>",
    summary: "end a key for good; needs --yes",
    options: [byOption()],
    run: async (session, [id = ""], { by: given }) => {
      const by = session.actor(given);
      const isOwn = await isOwnKey(session, id);
      await session.confirm(`this ends key ${id} for good${isOwn ? ", which is the key of this command itself" : ""}`);
      const revoked = await (await session.backend("write")).keys.revoke(id, by);
      if (isOwn) session.say(`key ${id} was the key of this command itself: the next one needs another`);
      session.done(`key ${id} is revoked`, revoked);
    },
  });
}
