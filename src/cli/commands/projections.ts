/** `pawl projections …`: how far projections are, why they do not get ahead, and building them again. */

import type { ProjectionGeneration, ProjectionInfo } from "../../stream/projections/status.ts";
import { type Column, framesShown } from "../output.ts";
import { declare, group, option, type Place } from "../program.ts";
import type { Plain } from "../values.ts";

type Shown = Plain<ProjectionInfo>;
type Generation = Plain<ProjectionGeneration>;

/** What readers see, or what is built first. */
const first = ({ live, building }: Shown): Generation | null => live ?? building;

function stateOf(one: Shown): string {
  const { live, building } = one;
  if (live?.failure != null || building?.failure != null) return "failed";
  if ((building ?? live)?.worker === null) return "no worker";
  return building === null ? "active" : "building";
}

const COLUMNS: readonly Column<Shown>[] = [
  { title: "PROJECTION", of: ({ name }) => name, isWhole: true },
  { title: "STATE", of: stateOf, isStatus: true },
  { title: "GENERATION", of: ({ live }) => live?.generation, isRight: true },
  { title: "BEHIND", of: (one) => first(one)?.behind, isRight: true },
  { title: "SINCE", of: (one) => first(one)?.behindSince },
  { title: "BUILDING", of: ({ building }) => building?.generation, isRight: true },
  { title: "PROBLEM", of: ({ live, building }) => (live?.failure ?? building?.failure)?.message },
];

const fieldsOf = (is: string, one: Generation | null): readonly (readonly [string, unknown])[] => [
  [is, one === null ? null : `generation ${one.generation}`],
  ["  behind", one?.behind],
  ["  since", one?.behindSince],
  ["  worker", one?.worker],
  ["  failed at", one?.failure?.at],
  ["  failures", one?.failure?.count],
  [
    "  at event",
    one?.failure == null || one.failure.version === 0 ? null : `${one.failure.version} of ${one.failure.stream}`,
  ],
  ["  error", one?.failure?.message],
];

export function projectionsCommand(place: Place): void {
  const projections = group(place, "projections", "show how far projections are, and build them again");

  declare(projections, {
    usage: "list",
    summary: "list projections",
    isDefault: true,
    run: async (session) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: COLUMNS,
          page: async () => ({ items: await backend.projections.list(), next: null }),
          keyOf: ({ name }) => name,
          none: "no projections",
        },
        {},
      );
    },
  });

  declare(projections, {
    usage: "show <projection>",
    summary: "show what readers see, what is being built, and why it does not get ahead",
    run: async (session, [name = ""]) => {
      const backend = await session.backend("read");
      await session.show<Shown>({
        get: () => backend.projections.get(name),
        fields: (one) => [
          ["projection", one.name],
          ["state", stateOf(one)],
          ...fieldsOf("readers see", one.live),
          ...fieldsOf("building", one.building),
        ],
        more: ({ live, building }) => [
          ...framesShown("what readers see", live?.failure?.stack),
          ...framesShown("what is being built", building?.failure?.stack),
        ],
      });
    },
  });

  declare<{ from?: "kept" }>(projections, {
    usage: "rebuild <projection>",
    summary: "build it again beside what readers see, with the code that built it last",
    options: [option("--from <which>", "kept: leave out events that were removed").choices(["kept"])],
    run: async (session, [name = ""], { from }) => {
      const generation = await (await session.backend("write")).projections.rebuild(name, { from });
      session.done(`generation ${generation} of projection ${name} is being built`, { projection: name, generation });
    },
  });

  declare(projections, {
    usage: "delete <projection>",
    summary: "delete it with its rows; needs --yes",
    help: "A worker that has its code builds it again when it is started. Tables of a projection into SQL stay.",
    run: async (session, [name = ""]) => {
      await session.confirm(`this deletes projection ${name} with its rows`);
      await (await session.backend("write")).projections.delete(name);
      session.done(`projection ${name} is deleted`, { projection: name });
    },
  });
}
