/** `pawl locks …`: who holds locks and who waits, and releasing one by force. */

import type { LockKind } from "../../lock/stored.ts";
import type { LockItem, LockLine } from "../backend.ts";
import { type Column, counted, tableLines } from "../output.ts";
import { declare, group, LIST_OPTIONS, type Listed, option, type Place } from "../program.ts";

const kindOption = () =>
  option("--kind <kind>", "mutex, semaphore or rwlock (default: mutex)").choices(["mutex", "semaphore", "rwlock"]);

const COLUMNS: readonly Column<LockLine>[] = [
  { title: "LOCK", of: ({ name }) => name, isWhole: true },
  { title: "HELD", of: ({ held, permits }) => (permits === null ? held : `${held}/${permits}`), isRight: true },
  { title: "WAITING", of: ({ waiting }) => waiting, isRight: true },
  { title: "HOLDER", of: ({ holder }) => holder },
  { title: "FENCE", of: ({ fence }) => fence, isRight: true },
  { title: "UNTIL", of: ({ until }) => until },
];

type Party = LockItem["holders"][number] | LockItem["waiters"][number];

const PARTIES: readonly Column<Party>[] = [
  { title: "TICKET", of: (party) => ("ticket" in party ? party.ticket : null), isWhole: true },
  { title: "WHO", of: ({ run, by }) => (run === null ? (by ?? "plain code") : `run ${run}`) },
  { title: "MODE", of: ({ mode }) => mode },
  { title: "SINCE", of: ({ since }) => since },
  { title: "UNTIL", of: ({ until }) => until },
  { title: "FENCE", of: (party) => ("fence" in party ? party.fence : null), isRight: true },
];

interface KindOption {
  readonly kind?: LockKind;
}

export function locksCommand(place: Place): void {
  const locks = group(place, "locks", "show who holds locks and who waits");

  declare<Listed<KindOption & { prefix?: string }>>(locks, {
    usage: "list",
    summary: "list locks of one kind",
    isDefault: true,
    options: [kindOption(), option("--prefix <text>", "only locks whose names begin with this"), ...LIST_OPTIONS()],
    run: async (session, _, { kind = "mutex", prefix, ...options }) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: COLUMNS,
          page: (page) => backend.locks.list({ ...page, kind, prefix }),
          keyOf: ({ name }) => name,
          none: `no locks of the kind ${kind}`,
        },
        options,
      );
    },
  });

  declare<KindOption>(locks, {
    usage: "show <name>",
    summary: "show the holders of a lock, and the first 100 that wait",
    options: [kindOption()],
    run: async (session, [name = ""], { kind = "mutex" }) => {
      const backend = await session.backend("read");
      await session.show({
        get: () => backend.locks.get({ kind, name }),
        fields: ({ permits, holders, waiting }) => [
          ["lock", name],
          ["kind", kind],
          ["permits", permits],
          ["held", holders.length],
          ["waiting", waiting],
        ],
        more: ({ holders, waiters }, look) => [
          ...(holders.length === 0 ? [] : ["", "Holders", ...tableLines(PARTIES, holders, look)]),
          ...(waiters.length === 0 ? [] : ["", "Waiting", ...tableLines(PARTIES, waiters, look)]),
        ],
      });
    },
  });

  declare<KindOption>(locks, {
    usage: "history <name>",
    summary: "list what operators did to a lock",
    options: [kindOption()],
    run: async (session, [name = ""], { kind = "mutex" }) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: [
            { title: "AT", of: ({ at }) => at },
            { title: "WHAT", of: (entry) => entry.name },
            { title: "DATA", of: ({ data }) => data },
          ],
          page: async () => ({ items: await backend.locks.history({ kind, name }), next: null }),
          keyOf: ({ at, data }) => `${at} ${JSON.stringify(data)}`,
          none: "nothing was done to it by force",
        },
        {},
      );
    },
  });

  declare<KindOption & { by?: string; reason: string }>(locks, {
    usage: "force-release <name>",
    summary: "release a lock for all of its holders; needs --yes",
    options: [
      kindOption(),
      option("--by <who>", "who does it, for the audit trail; on a server it is the API key"),
      option("--reason <text>", "why, for the audit trail").makeOptionMandatory(),
    ],
    run: async (session, [name = ""], { kind = "mutex", by: given, reason }) => {
      const by = session.actor(given, { isNeeded: true });
      await session.confirm(`this takes ${kind} ${name} from its holders, and only the fence stops what they still do`);
      const backend = await session.backend("write");
      const released = await backend.locks.forceRelease({ kind, name }, { by, reason });
      session.done(`${kind} ${name} was released for ${counted(released.released, "holder")}`, released);
    },
  });
}
