/** `pawl actions …`: one-time actions, without their payloads and PINs. */

import type { ActionItem } from "../backend.ts";
import type { Column } from "../output.ts";
import { declare, group, LIST_OPTIONS, type Listed, listOption, option, type Place } from "../program.ts";

/** By its own id, or by the ref of one whose id only its creator knows. */
const nameOf = ({ id, ref }: ActionItem): string => id ?? `ref:${ref}`;

const COLUMNS: readonly Column<ActionItem>[] = [
  { title: "ACTION", of: nameOf, isWhole: true },
  { title: "STATE", of: ({ state }) => state, isStatus: true },
  { title: "OWNER", of: ({ owner }) => owner },
  { title: "USES", of: ({ uses, usesLeft }) => `${uses - usesLeft}/${uses}`, isRight: true },
  { title: "CREATED", of: ({ createdAt }) => createdAt },
  { title: "EXPIRES", of: ({ expiresAt }) => expiresAt },
  { title: "LAST USE", of: ({ lastUse }) => lastUse?.by ?? lastUse?.at },
];

const FIELDS = (action: ActionItem): readonly (readonly [string, unknown])[] => [
  ["action", action.id],
  ["ref", action.ref],
  ["state", action.state],
  ["owner", action.owner],
  ["reason", action.reason],
  ["tags", action.tags],
  ["created", action.createdAt],
  ["active from", action.activeAt],
  ["expires", action.expiresAt],
  ["uses left", `${action.usesLeft} of ${action.uses}`],
  ["PIN tries left", action.pinTriesLeft],
  ["last use", action.lastUse === null ? null : `${action.lastUse.at} ${action.lastUse.by ?? ""}`.trim()],
  ["claimed until", action.claim?.until],
  ["canceled", action.canceled?.at],
];

export function actionsCommand(place: Place): void {
  const actions = group(place, "actions", "show one-time actions, and cancel them");

  declare<Listed<{ owner?: string; state?: readonly string[]; tag?: string }>>(actions, {
    usage: "list",
    summary: "list actions, the newest first",
    isDefault: true,
    options: [
      option("--owner <owner>", "only actions of this owner"),
      listOption("--state <states>", "only actions in this state, as active or consumed"),
      option("--tag <tag>", "only actions with this tag"),
      ...LIST_OPTIONS(),
    ],
    run: async (session, _, { owner, state, tag, ...options }) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: COLUMNS,
          page: (page) => backend.actions.list({ ...page, owner, state, tag }),
          keyOf: ({ ref }) => ref,
          none: "no actions",
        },
        options,
      );
    },
  });

  declare(actions, {
    usage: "show <action>",
    summary: "show one action, by its id or as ref:…",
    run: async (session, [action = ""]) => {
      const backend = await session.backend("read");
      await session.show({ get: () => backend.actions.get(action), fields: FIELDS });
    },
  });

  declare(actions, {
    usage: "history <action>",
    summary: "list what happened to an action",
    run: async (session, [action = ""]) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: [
            { title: "VERSION", of: ({ version }) => version, isRight: true },
            { title: "AT", of: ({ at }) => at },
            { title: "WHAT", of: ({ name }) => name },
            { title: "DATA", of: ({ data }) => data },
          ],
          page: async () => ({ items: await backend.actions.history(action), next: null }),
          keyOf: ({ version }) => String(version),
          none: "nothing happened to it",
        },
        {},
      );
    },
  });

  declare<{ by?: string; reason?: string }>(actions, {
    usage: "cancel <action>",
    summary: "cancel an action, so that it cannot be used; needs --yes",
    options: [option("--by <who>", "who does it; on a server it is the API key"), option("--reason <text>", "why")],
    run: async (session, [action = ""], { by: given, reason }) => {
      const by = session.actor(given);
      await session.confirm(`this cancels action ${action} for good`);
      await (await session.backend("write")).actions.cancel(action, { by, reason });
      session.done(`action ${action} is canceled`, { action });
    },
  });
}
