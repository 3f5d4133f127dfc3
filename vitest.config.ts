/**
 * How the tests run: every `*.test.ts` of src/, test/ and examples/, in processes of their own, two at once or as many
 * as there are cores up to eight.
 *
 * A test that imports "pawl" gets the sources, by the same condition that examples use. A run without tests has failed.
 * Tests that need PostgreSQL share one server, which is started when the first of them asks for a database.
 */

import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";

export default defineConfig({
  ssr: { resolve: { conditions: ["pawl-source", "module", "node"], externalConditions: ["pawl-source", "node"] } },
  test: {
    include: ["src/**/*.test.ts", "test/**/*.test.ts", "examples/**/*.test.ts"],
    globalSetup: ["test/postgres/setup.ts"],
    pool: "forks",
    maxWorkers: Math.min(8, Math.max(2, availableParallelism())),
    testTimeout: 120_000,
    hookTimeout: 120_000,
    passWithNoTests: false,
    reporters: ["default"],
  },
});
