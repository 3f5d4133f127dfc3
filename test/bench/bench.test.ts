import { describe, expect, it } from "vitest";
import { drawChart } from "../../bench/chart.ts";
import { median } from "../../bench/result.ts";
import { drawTable } from "../../bench/table.ts";
import { reportOf, resultWith } from "./reports.ts";

describe("what is shown", () => {
  it.each([
    { of: [3, 1, 2], is: 2 },
    { of: [4, 1, 2, 3], is: 2.5 },
    { of: [5], is: 5 },
  ])("the median of $of is $is", ({ of, is }) => {
    expect(median(of)).toBe(is);
  });

  it.each([
    { is: "at least", ratio: 0.5, ours: 5, reached: true },
    { is: "at least", ratio: 0.5, ours: 4.9, reached: false },
    { is: "at most", ratio: 1.5, ours: 15, reached: true },
    { is: "at most", ratio: 1.5, ours: 15.1, reached: false },
  ] as const)("$ours beside 10 has reached $is $ratio: $reached", ({ is, ratio, ours, reached }) => {
    expect(resultWith(ours, { is, ratio }).reached).toBe(reached);
  });

  it("a missed target is said in the table and seen in the chart", () => {
    const report = reportOf(resultWith(4, { is: "at least", ratio: 0.5 }));
    expect(drawTable(report)).toContain("MISSED");
    expect(drawChart([report])).toContain('<rect class="missed"');
    const better = reportOf(resultWith(6, { is: "at least", ratio: 0.5 }));
    expect(drawTable(better)).not.toContain("MISSED");
    expect(drawChart([better])).not.toContain('<rect class="missed"');
  });

  it("what could not be measured is said", () => {
    const report = { ...reportOf(resultWith(6, null)), notes: ["nobody has checked"] };
    expect(drawTable(report)).toContain("nobody has checked");
  });

  it("a chart is well-formed whatever the names are", () => {
    const chart = drawChart([reportOf({ ...resultWith(6, null), title: "a < b && c > d" })]);
    expect(chart).toContain("a &lt; b &amp;&amp; c &gt; d");
  });
});
