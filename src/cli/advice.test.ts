import { expect, test } from "vitest";
import { inCommands } from "./advice.ts";

test.each([
  {
    says: 'step "pay it" may or may not have happened: find out, then call run.resolveStep("pay it", { done: true, value }) or { done: false }',
    becomes:
      "step \"pay it\" may or may not have happened: find out, then pawl run resolve 'r 1' 'pay it' with --value <json> or --not-done",
  },
  {
    says: 'run "r 1" is pending, and workflow "it\'s" is paused since 2030-01-01T00:00:00.000Z (lunch): no runs of it begin until pawl.workflows.resume',
    becomes:
      "run \"r 1\" is pending, and workflow \"it's\" is paused since 2030-01-01T00:00:00.000Z (lunch): no runs of it begin until pawl workflows resume 'it'\\''s'",
  },
  {
    says: 'its max is 1 (pawl.runs.list({ workflow: "mail" }) shows runs with their status)',
    becomes: "its max is 1 (pawl runs --workflow mail shows runs with their status)",
  },
  { says: "it was claimed 5 times", becomes: "it was claimed 5 times" },
])("$says", ({ says, becomes }) => expect(inCommands(says, "r 1")).toBe(becomes));
