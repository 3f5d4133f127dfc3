import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { refusalOf } from "./node-version.ts";

test("the versions are those of package.json", () => {
  const manifest = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
  expect(manifest.engines.node).toBe(">=22.22.3 <23 || >=24.15");
});

test.each(["22.22.3", "22.23.0", "24.15.0", "24.21.0", "25.0.0", "26.0.0-nightly2026"])("Node %s will do", (version) =>
  expect(refusalOf(version)).toBeUndefined(),
);

test.each(["14.21.3", "18.20.8", "20.20.2", "22.22.2", "22.3.9", "23.11.1", "24.0.0", "24.14.9"])(
  "Node %s is refused, with what is needed",
  (version) => expect(refusalOf(version)).toMatch(/needs Node 22 from 22\.22\.3 on, or Node 24\.15 .*this is Node \d/),
);
