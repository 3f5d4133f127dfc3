import { test } from "vitest";
import { simulate } from "../../src/testing/index.ts";
import { closings } from "./scenarios/closing.ts";

test("closings", async () => {
  await simulate(closings.name, { ...closings.options, seeds: 60 }, closings.scenario);
}, 600000);
