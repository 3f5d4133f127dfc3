import { describe, expect, it, test } from "vitest";
import { bytesShown, counted, cut, escaped, fieldLines, jsonLine, shown, tableLines, widthOf } from "./output.ts";

const texts = [
  { rule: "plain text stays", text: "order-1 äöü 日本", becomes: "order-1 äöü 日本" },
  { rule: "an escape sequence is shown", text: "\u001b[31mred", becomes: "\\u001b[31mred" },
  { rule: "a line end is shown", text: "a\nb\r\tc", becomes: "a\\nb\\r\\tc" },
  { rule: "DEL and C1 are shown", text: "\u007f\u009b", becomes: "\\u007f\\u009b" },
  { rule: "an override of the direction is shown", text: "gpj.\u202eexe", becomes: "gpj.\\u202eexe" },
  {
    rule: "isolates and marks of the direction are shown",
    text: "\u2066\u2069\u200f\u061c",
    becomes: "\\u2066\\u2069\\u200f\\u061c",
  },
  { rule: "invisible characters are shown", text: "a\u200bb\ufeff", becomes: "a\\u200bb\\ufeff" },
  { rule: "a tag character beyond 16 bits is shown whole", text: "\u{e0041}", becomes: "\\u{e0041}" },
  { rule: "half of a surrogate pair is shown", text: "a\ud800b", becomes: "a\\ud800b" },
];
test.each(texts)("escaped: $rule", ({ text, becomes }) => expect(escaped(text)).toBe(becomes));

test.each(texts)("JSON is data as it was, and safe to print: $rule", ({ text }) => {
  const line = jsonLine({ text });
  expect(JSON.parse(line)).toEqual({ text });
  expect(escaped(line)).toBe(line);
});

describe("widths", () => {
  it.each([
    { text: "abc", width: 3 },
    { text: "日本", width: 4 },
    { text: "e\u0301", width: 1 },
    { text: "🚀", width: 2 },
  ])("of $text is $width", ({ text, width }) => expect(widthOf(text)).toBe(width));

  it.each([
    { rule: "what fits stays", text: "abc", width: 3, becomes: "abc" },
    { rule: "what is longer ends with a mark", text: "abcd", width: 3, becomes: "ab…" },
    { rule: "a wide character is not halved", text: "日本語", width: 4, becomes: "日…" },
    { rule: "no room, no text", text: "abc", width: 0, becomes: "" },
  ])("cut: $rule", ({ text, width, becomes }) => expect(cut(text, width)).toBe(becomes));
});

test.each([
  { rule: "a time is UTC to the second", value: "2026-11-18T19:53:33.123Z", becomes: "2026-11-18 19:53:33Z" },
  { rule: "nothing is empty", value: null, becomes: "" },
  { rule: "a list of words has commas", value: ["a", "b"], becomes: "a, b" },
  { rule: "an object is JSON", value: { a: [1] }, becomes: '{"a":[1]}' },
  { rule: "a truth is yes or no", value: true, becomes: "yes" },
  { rule: "a text inside an object is escaped twice", value: { a: "\u202e" }, becomes: '{"a":"\\u202e"}' },
])("a cell: $rule", ({ value, becomes }) => expect(shown(value)).toBe(becomes));

const columns = [
  { title: "NAME", of: ({ name }: Row) => name },
  { title: "STATUS", of: ({ status }: Row) => status, isStatus: true },
  { title: "N", of: ({ n }: Row) => n, isRight: true },
];
interface Row {
  readonly name: string;
  readonly status: string;
  readonly n: number;
}
const rows: readonly Row[] = [
  { name: "a-rather-long-name", status: "failed", n: 1 },
  { name: "b", status: "completed", n: 1000 },
];

describe("tables", () => {
  it("are aligned, numbers to the right", () => {
    expect(tableLines(columns, rows, { color: false })).toEqual([
      "NAME                STATUS        N",
      "a-rather-long-name  failed        1",
      "b                   completed  1000",
    ]);
  });

  it("are cut to the width, the widest column first", () => {
    const lines = tableLines(columns, rows, { color: false, width: 26 });
    expect(lines).toEqual(["NAME       STATUS        N", "a-rather…  failed        1", "b          completed  1000"]);
  });

  it("never cut what is whole, however wide it is", () => {
    const whole = columns.map((column) => ({ ...column, isWhole: column.title === "NAME" }));
    const lines = tableLines(whole, rows, { color: false, width: 30 });
    expect(lines.slice(1)).toEqual(["a-rather-long-name  failed     1", "b                   compl…  1000"]);
  });

  it("stop shrinking where a column would be of no use", () => {
    const lines = tableLines(columns, rows, { color: false, width: 5 });
    expect(lines[1]).toBe("a-rat…  failed     1");
  });

  it("color status words only", () => {
    const [, failed] = tableLines(columns, rows, { color: true });
    expect(failed).toBe("a-rather-long-name  \u001b[31mfailed   \u001b[0m     1");
  });
});

test("fields without a value are left out", () => {
  const fields = [
    ["id", "x"],
    ["parent", null],
    ["status", "failed"],
  ] as const;
  expect(fieldLines(fields, { color: false })).toEqual(["id      x", "status  failed"]);
});

test.each([
  [0, "0 tasks"],
  [1, "1 task"],
  [2, "2 tasks"],
])("%d are counted as %s", (count, text) => expect(counted(count, "task")).toBe(text));

test.each([
  [0, "0 B"],
  [1023, "1023 B"],
  [1024, "1.0 KiB"],
  [5 * 1024 ** 3, "5.0 GiB"],
])("%d bytes are %s", (bytes, text) => expect(bytesShown(bytes)).toBe(text));
