/** `pawl keys …`: the API keys of a server. */

import type { KeyItem } from "../backend.ts";
import type { Column } from "../output.ts";
import { declare, group, LIST_OPTIONS, type Listed, listOption, option, type Place, parseMoment } from "../program.ts";
import type { Session } from "../session.ts";

const COLUMNS: readonly Column<KeyItem>[] = [
  { title: "ID", of: ({ id }) => id },
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

const byOption = () => option("--by <who>", "who does it, for the history");

/** A key is shown once: the key alone, so that a script can take it, and what it is for people on stderr. */
function showOnce(session: Session, created: KeyItem & { readonly key: string }): void {
  if (session.isJson) session.json(created);
  else {
    const { id, scopes, namespace } = created;
    session.note(`key ${id} with ${scopes.join(", ")} for namespace ${namespace}; it is shown only now:`);
    session.print([created.key]);
  }
}

export function keysCommand(place: Place): void {
  const keys = group(place, "keys", "create, rotate and revoke the API keys of a server");

  declare<{ scope: readonly string[]; forNamespace?: string; expires?: string; by?: string }>(keys, {
    usage: "create <name>",
    summary: "create a key, and print it once",
    options: [
      listOption("--scope <scopes>", "read, write, operate, admin; several with commas").makeOptionMandatory(),
      option("--for-namespace <name>", "what it gives access to (default: the namespace)"),
      option("--expires <when>", "a duration as 90d, or a time as 2027-01-31 (default: never)"),
      byOption(),
    ],
    help: "Each scope includes none of the others, except admin, which includes all. The name says what the key is for.",
    run: async (session, [name = ""], { scope, forNamespace, expires, by }) => {
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
          none: "no keys",
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
    run: async (session, [id = ""], options) => {
      const backend = await session.backend("write");
      showOnce(session, await backend.keys.rotate(id, options));
    },
  });

  declare<{ by?: string }>(keys, {
    usage: "revoke <id>",
    summary: "end a key for good; needs --yes",
    options: [byOption()],
    run: async (session, [id = ""], { by }) => {
      await session.confirm(`this ends key ${id} for good`);
      const revoked = await (await session.backend("write")).keys.revoke(id, by);
      session.done(`key ${id} is revoked`, revoked);
    },
  });
}
