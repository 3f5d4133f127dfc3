/** `pawl streams …`: event streams, and their events. */

import type { StreamEvent } from "../../stream/event.ts";
import type { StreamLine } from "../backend.ts";
import type { Column } from "../output.ts";
import { declare, group, LIST_OPTIONS, type Listed, numberOption, option, type Place } from "../program.ts";
import { LISTED } from "../session.ts";
import type { Plain } from "../values.ts";

const COLUMNS: readonly Column<StreamLine>[] = [
  { title: "STREAM", of: ({ stream }) => stream, isWhole: true },
  { title: "VERSION", of: ({ version }) => version, isRight: true },
  { title: "STATUS", of: ({ status }) => status },
];

const EVENTS: readonly Column<Plain<StreamEvent>>[] = [
  { title: "VERSION", of: ({ version }) => version, isRight: true },
  { title: "AT", of: ({ at }) => at },
  { title: "EVENT", of: ({ name }) => name },
  { title: "DATA", of: ({ data }) => data },
  { title: "ACTOR", of: ({ actor }) => actor },
];

export function streamsCommand(place: Place): void {
  const streams = group(place, "streams", "list event streams, and read their events");

  declare<Listed<{ prefix?: string }>>(streams, {
    usage: "list",
    summary: "list streams",
    isDefault: true,
    options: [option("--prefix <text>", "only streams whose ids begin with this"), ...LIST_OPTIONS()],
    run: async (session, _, { prefix, ...options }) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: COLUMNS,
          page: (page) => backend.streams.list({ ...page, prefix }),
          keyOf: ({ stream }) => stream,
          none: "no streams",
        },
        options,
      );
    },
  });

  declare<{ from?: number; backwards?: boolean; limit?: number }>(streams, {
    usage: "read <id>",
    summary: "list the events of a stream, in their order",
    options: [
      numberOption("--from <version>", "the first version", 1, Number.MAX_SAFE_INTEGER),
      option("--backwards", "from the newest to the oldest"),
      numberOption("--limit <n>", "how many to show (default: 50)", 1, 1000),
    ],
    run: async (session, [id = ""], { from, backwards = false, limit = LISTED }) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: EVENTS,
          page: async () => {
            const items = await backend.streams.read(id, { from, backwards, limit });
            return { items, next: null };
          },
          keyOf: ({ version }) => String(version),
          none: "no events",
        },
        {},
      );
    },
  });
}
