/** Made-up reports of the benchmark. */

import { measureOf, type Report, type Result, resultOf } from "../../bench/result.ts";

export const resultWith = (ours: number, target: Result["target"]): Result =>
  resultOf({
    id: "x",
    title: "x",
    unit: "ms",
    base: measureOf("base", [10]),
    ours: measureOf("ours", [ours]),
    target,
  });

export function reportOf(result: Result): Report {
  const disk = { fileSystem: "f", syncMs: 1 };
  const machine = { platform: "p", cpu: "c", cores: 1, memoryGiB: 1, node: "n", database: "SQLite 3", disk };
  return { date: "2001-02-03", mode: "full", seconds: 1, machine, results: [result], notes: [] };
}
