/** `pawl workflows …`: which workflows are paused, so that no runs of them begin. */

import { declare, group, option, type Place } from "../program.ts";

export function workflowsCommand(place: Place): void {
  const workflows = group(place, "workflows", "pause workflows, so that none of their runs begin, and resume them");

  declare(workflows, {
    usage: "paused",
    summary: "list the workflows that are paused",
    isDefault: true,
    run: async (session) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: [
            { title: "WORKFLOW", of: ({ workflow }) => workflow, isWhole: true },
            { title: "SINCE", of: ({ since }) => since },
            { title: "REASON", of: ({ reason }) => reason },
          ],
          page: async () => ({ items: await backend.workflows.paused(), next: null }),
          keyOf: ({ workflow }) => workflow,
          none: "no workflow is paused",
        },
        {},
      );
    },
  });

  declare<{ reason?: string }>(workflows, {
    usage: "pause <workflow>",
    summary: "let no more runs of a workflow begin, in all processes",
    options: [option("--reason <text>", "why")],
    run: async (session, [workflow = ""], { reason }) => {
      await (await session.backend("write")).workflows.pause(workflow, reason);
      session.done(`no runs of ${workflow} begin until it is resumed`, { workflow, isPaused: true });
    },
  });

  declare(workflows, {
    usage: "resume <workflow>",
    summary: "let runs of a workflow begin again",
    run: async (session, [workflow = ""]) => {
      const wasPaused = await (await session.backend("write")).workflows.resume(workflow);
      session.done(wasPaused ? `runs of ${workflow} begin again` : `${workflow} was not paused`, {
        workflow,
        wasPaused,
      });
    },
  });
}
