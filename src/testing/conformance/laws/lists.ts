/**
 * Lists: the rows of a space that are not deleted, by prefix, by kind and by status, page by page, in the order of their keys'
 * UTF-8 bytes or of their numbers.
 */

import assert from "node:assert/strict";
import type { ListQuery, Row } from "../../../kernel/contract.ts";
import { at, blank, only, plain, type Rule, range, rule, SPACE, type Writer } from "../law-context.ts";

/** In the order of UTF-8 bytes. JavaScript's own order has the last three between \ud7ff and \ue000. */
const ORDERED: readonly string[] = [
  "!",
  "-",
  "0",
  "10",
  "9",
  "A",
  "Z",
  "_",
  "a",
  "a!",
  "aa",
  "b",
  "z",
  "~",
  "\u00df",
  "\u00e4",
  "\u0416",
  "\u65e5",
  "\ud7ff",
  "\ue000",
  "\uff21",
  "\uffff",
  "\u{10000}",
  "\u{1f600}",
  "\u{10ffff}",
];

const LAST = "\u{10ffff}";

/** Keys that a careless store would find with a prefix that they do not have, or not find with a prefix that they have. */
const PREFIXES: readonly {
  readonly prefix: string;
  readonly has: readonly string[];
  readonly not: readonly string[];
}[] = [
  { prefix: "a", has: ["a", "a/", "aa", "a\u0308", `a${LAST}`, `a${LAST}${LAST}`], not: ["A", "\u00e4", "b", "`"] },
  { prefix: "a%", has: ["a%", "a%b"], not: ["a", "ab", "ab%"] },
  { prefix: "a_", has: ["a_", "a_b"], not: ["a", "ab", "aab"] },
  { prefix: "a*", has: ["a*", "a*b"], not: ["a", "ab"] },
  { prefix: "a[b]", has: ["a[b]", "a[b]c"], not: ["ab", "a[", "a[c]"] },
  { prefix: "a\\", has: ["a\\", "a\\b"], not: ["a", "a/"] },
  { prefix: "a'", has: ["a'", "a'b"], not: ["a", 'a"'] },
  { prefix: "caf\u00e9", has: ["caf\u00e9", "caf\u00e9s"], not: ["cafe", "cafe\u0301", "CAF\u00c9"] },
  { prefix: "cafe", has: ["cafe", "cafe\u0301"], not: ["caf\u00e9", "Cafe", "caff"] },
  { prefix: "x\ud7ff", has: ["x\ud7ff", `x\ud7ff${LAST}`], not: ["x", "x\ue000", "x\ud7fe"] },
  { prefix: "x\uffff", has: ["x\uffff", "x\uffffy"], not: ["x\ufffe", "x\u{10000}"] },
  { prefix: "x\u{1f3ff}", has: ["x\u{1f3ff}", "x\u{1f3ff}y"], not: ["x\u{1f3fe}", "x\u{1f400}", "x\u{1f400}y"] },
  { prefix: `x${LAST}`, has: [`x${LAST}`, `x${LAST}y`, `x${LAST}${LAST}`], not: ["x", "x\u{10fffe}", "y"] },
  { prefix: LAST, has: [LAST, `${LAST}y`, LAST.repeat(64)], not: ["\u{10fffe}", "z"] },
  { prefix: `${LAST}${LAST}`, has: [LAST.repeat(2), LAST.repeat(64)], not: [LAST, `${LAST}\u{10fffe}`] },
  { prefix: "\u007f", has: ["\u007f", "\u007fa"], not: ["\u0080", "~"] },
  { prefix: "\u07ff", has: ["\u07ff", "\u07ffa"], not: ["\u0800", "\u07fe"] },
];

async function paged(writer: Writer, prefix: string, limit: number): Promise<readonly string[]> {
  const all: string[] = [];
  for (;;) {
    const page = await writer.listKeys(prefix, { after: all.at(-1) ?? null, limit });
    assert.ok(page.length <= limit, `${page.length} rows on a page of ${limit}`);
    if (page.length === 0) return all;
    all.push(...page);
    assert.ok(all.length < 1000, "the pages have no end");
  }
}

type Asked = Omit<Partial<ListQuery>, "after" | "limit">;

async function pageOf(writer: Writer, asked: Partial<ListQuery>): Promise<readonly Row[]> {
  const query: ListQuery = { space: SPACE, prefix: "", after: null, limit: 1000, ...asked };
  return (await writer.retryBusy(() => writer.store.list(query))).map(plain);
}

const keysOf = (rows: readonly Row[]): readonly string[] => rows.map(({ key }) => key);

/** All matching rows, page by page, each page from where the one before it ended. */
async function walked(writer: Writer, asked: Asked, limit: number): Promise<readonly string[]> {
  const all: Row[] = [];
  for (;;) {
    const last = all.at(-1);
    const place = asked.order === undefined || asked.order === "key" ? last?.key : last?.id.toString();
    const page = await pageOf(writer, { ...asked, after: place ?? null, limit });
    assert.ok(page.length <= limit, `${page.length} rows on a page of ${limit}`);
    if (page.length === 0) return keysOf(all);
    all.push(...page);
    assert.ok(all.length < 1000, "the pages have no end");
  }
}

/** All orders, and how each sorts rows. */
const ORDERS: readonly { readonly order: ListQuery["order"]; readonly sorted: (rows: readonly Row[]) => Row[] }[] = [
  { order: undefined, sorted: (rows) => rows.toSorted((a, b) => (a.key < b.key ? -1 : 1)) },
  { order: "key", sorted: (rows) => rows.toSorted((a, b) => (a.key < b.key ? -1 : 1)) },
  { order: "newest", sorted: (rows) => rows.toSorted((a, b) => b.id - a.id) },
  { order: "oldest", sorted: (rows) => rows.toSorted((a, b) => a.id - b.id) },
];

const orderName = (order: ListQuery["order"]): string => order ?? "no order named";

/** Rows whose keys are in another order than their numbers, created in several commits. */
async function shuffled(writer: Writer, count: number, columns: (n: number) => Partial<Row> = () => ({})) {
  const keys = range(0, count).map((n) => `k${100 + ((n * 7) % count)}`);
  const rows: Row[] = [];
  for (const from of range(0, Math.ceil(count / 10)))
    rows.push(
      ...(await writer.make(
        ...keys.slice(from * 10, from * 10 + 10).map((key, n) => blank(key, columns(from * 10 + n))),
      )),
    );
  return rows;
}

/** Texts that a careless store would confuse with one another, or with a list of several. */
const KINDS = ["mail", "Mail", "mai", "mail ", "m_il", "%", "", "a,b", '{a,"b"}', "caf\u00e9", "cafe\u0301"] as const;
const STATUSES = [
  "waiting",
  "WAITING",
  "wait",
  "waiting ",
  "null",
  "%",
  "",
  "a,b",
  "[1]",
  "\u00e4",
  "a\u0308",
] as const;

export const lists: readonly Rule[] = [
  rule("a list is in the order of its keys' UTF-8 bytes", async (context) => {
    const writer = await context.connect();
    const [later, sooner] = [ORDERED.filter((_, n) => n % 2), ORDERED.filter((_, n) => n % 2 === 0)];
    for (const keys of [later.toReversed(), sooner]) await writer.make(...keys.map((key) => blank(key)));
    assert.deepEqual(await writer.listKeys(), ORDERED);
    assert.deepEqual(await writer.listKeys("", { after: "\ud7ff" }), ORDERED.slice(ORDERED.indexOf("\ue000")));
    assert.deepEqual(await writer.listKeys("", { after: "\u{10000}" }), ORDERED.slice(-2));
    assert.deepEqual(await paged(writer, "", 2), ORDERED);
  }),

  rule(
    "a prefix is plain text: no pattern, no case folding, no normal form, and any text may follow",
    async (context) => {
      const writer = await context.connect();
      const all = [...new Set(PREFIXES.flatMap(({ has, not }) => [...has, ...not]))];
      await writer.make(...all.map((key) => blank(key)));
      for (const { prefix, has, not } of PREFIXES)
        for (const { order } of ORDERS) {
          const found = new Set(keysOf(await pageOf(writer, { prefix, order })));
          const shown = `${JSON.stringify(prefix)}, ${orderName(order)}`;
          for (const key of has) assert.ok(found.has(key), `${JSON.stringify(key)} was not found by ${shown}`);
          for (const key of not) assert.ok(!found.has(key), `${JSON.stringify(key)} was found by ${shown}`);
        }
      assert.deepEqual([...(await writer.listKeys())].sort(), all.sort());
    },
  ),

  rule("a list continues after the given key, whether it exists or not", async (context) => {
    const writer = await context.connect();
    await writer.make(...["a", "b", "ba", "bb", "bc", "c"].map((key) => blank(key)));
    const cases: readonly [prefix: string, after: string | null, keys: readonly string[]][] = [
      ["", null, ["a", "b", "ba", "bb", "bc", "c"]],
      ["", "b", ["ba", "bb", "bc", "c"]],
      ["", "bab", ["bb", "bc", "c"]],
      ["", "c", []],
      ["", "!", ["a", "b", "ba", "bb", "bc", "c"]],
      ["b", null, ["b", "ba", "bb", "bc"]],
      ["b", "a", ["b", "ba", "bb", "bc"]],
      ["b", "b", ["ba", "bb", "bc"]],
      ["b", "bb", ["bc"]],
      ["b", "bbb", ["bc"]],
      ["b", "bc", []],
      ["b", "z", []],
      ["bb", "ba", ["bb"]],
      ["d", null, []],
    ];
    for (const [prefix, after, keys] of cases)
      assert.deepEqual(await writer.listKeys(prefix, { after }), keys, `prefix "${prefix}", after ${after}`);
  }),

  rule("a list has at most as many rows as requested, and its pages have every row once", async (context) => {
    const writer = await context.connect();
    const keys = range(100, 160).map((n) => `k${n}`);
    await writer.make(...["j", ...keys, "l"].map((key) => blank(key)));
    assert.deepEqual(await writer.listKeys("", { limit: 1 }), ["j"]);
    for (const limit of [1, 7, 60, 61]) assert.deepEqual(await paged(writer, "k", limit), keys);
  }),

  rule("deleted rows are not listed, and take no place on a page", async (context) => {
    const writer = await context.connect();
    const rows = await writer.make(...range(10, 40).map((n) => blank(`k${n}`)));
    for (const row of rows.slice(0, 20)) await writer.remove(row, 9e14);
    assert.deepEqual(await writer.listKeys("", { limit: 3 }), ["k30", "k31", "k32"]);
    assert.deepEqual(
      await paged(writer, "k", 4),
      range(30, 40).map((n) => `k${n}`),
    );
  }),

  rule("a list has the rows of its space, with all columns", async (context) => {
    const writer = await context.connect();
    const [mine] = await writer.make(
      blank("k", { fence: 3, wakes: 4, tries: 5, holder: "ann", kind: "mail", status: "waiting", dueMs: 6 }),
      blank("k", { space: "spac" }),
      blank("k2", { space: "space2" }),
      blank("k3", { space: "Space" }),
    );
    assert.deepEqual(await writer.list(), [mine]);
    assert.deepEqual(await writer.list("k"), [await writer.readOne(at("k"))]);
  }),

  rule("by number, a list begins with the newest or with the oldest", async (context) => {
    const writer = await context.connect();
    const rows = await shuffled(writer, 30);
    const newest = await writer.makeOne(blank("a"));
    for (const { order, sorted } of ORDERS) {
      const all = sorted([...rows, newest]);
      assert.deepEqual(await pageOf(writer, { order }), all, orderName(order));
      assert.deepEqual(await pageOf(writer, { order, limit: 3 }), all.slice(0, 3), orderName(order));
      assert.deepEqual(
        await pageOf(writer, { order, prefix: "k11" }),
        sorted(rows.filter(({ key }) => key.startsWith("k11"))),
      );
      assert.deepEqual(await pageOf(writer, { order, prefix: "l" }), []);
    }
  }),

  rule("by number, a list continues after the given number, whether it exists or not", async (context) => {
    const writer = await context.connect();
    const rows = (await shuffled(writer, 24)).toSorted((a, b) => a.id - b.id);
    const gone = only(rows.splice(9, 1));
    await writer.remove(gone, await writer.nowMs());
    await context.advanceTo(writer, (await writer.nowMs()) + 1);
    await writer.sweep();
    for (const { id } of [gone, ...rows]) {
      const after = String(id);
      const [sooner, later] = [rows.filter((row) => row.id < id), rows.filter((row) => row.id > id)];
      assert.deepEqual(await pageOf(writer, { order: "oldest", after }), later, `the oldest after ${after}`);
      assert.deepEqual(
        await pageOf(writer, { order: "newest", after }),
        sooner.toReversed(),
        `the newest after ${after}`,
      );
      assert.deepEqual(
        await pageOf(writer, { order: "newest", after, limit: 2, prefix: "k10" }),
        sooner
          .filter(({ key }) => key.startsWith("k10"))
          .toReversed()
          .slice(0, 2),
      );
    }
    for (const [order, after] of [
      ["newest", 0],
      ["oldest", Number.MAX_SAFE_INTEGER],
    ] as const)
      assert.deepEqual(await pageOf(writer, { order, after: String(after) }), []);
  }),

  rule("kinds and statuses filter a list, as plain texts", async (context) => {
    const writer = await context.connect();
    const kindOf = (n: number): string | null => KINDS[n % (KINDS.length + 1)] ?? null;
    const statusOf = (n: number): string | null => STATUSES[(n * 5 + 2) % (STATUSES.length + 1)] ?? null;
    const rows = await shuffled(writer, 71, (n) => ({ kind: kindOf(n), status: statusOf(n) }));
    const choices = <T extends string>(texts: readonly T[]): readonly (readonly string[] | undefined)[] => [
      undefined,
      [],
      ...texts.map((text) => [text]),
      texts.slice(0, 4),
      [texts[2] ?? "", texts[2] ?? "", "no such text"],
      [...texts],
    ];
    const isOf = (text: string | null, texts: readonly string[] | undefined) =>
      texts === undefined || (text !== null && texts.includes(text));
    const ask = async ({ order, sorted }: (typeof ORDERS)[number], asked: Pick<ListQuery, "kinds" | "statuses">) =>
      assert.deepEqual(
        await pageOf(writer, { order, ...asked }),
        sorted(rows.filter(({ kind, status }) => isOf(kind, asked.kinds) && isOf(status, asked.statuses))),
        `${orderName(order)}, ${JSON.stringify(asked)}`,
      );
    for (const order of ORDERS) {
      for (const kinds of choices(KINDS)) await ask(order, { kinds });
      for (const statuses of choices(STATUSES)) await ask(order, { statuses });
      for (const kinds of [undefined, [], ["mail"], KINDS.slice(0, 6), [...KINDS]])
        for (const statuses of [undefined, [], ["waiting"], STATUSES.slice(4), [...STATUSES]])
          await ask(order, { kinds, statuses });
    }
  }),

  rule("rows are filtered by their current kind and status, not by those of their creation", async (context) => {
    const writer = await context.connect();
    const [a, b, c] = await writer.make(
      blank("a", { kind: "mail", status: "waiting" }),
      blank("b", { kind: "mail", status: "waiting" }),
      blank("c"),
    );
    assert.ok(a !== undefined && b !== undefined && c !== undefined);
    await writer.change(a, { status: "done" });
    await writer.change(b, { kind: "post", status: null });
    await writer.change(c, { kind: "mail", status: "waiting" });
    for (const { order } of ORDERS) {
      const found = async (asked: Asked) =>
        keysOf(await pageOf(writer, { order, ...asked }))
          .toSorted()
          .join();
      assert.equal(await found({ kinds: ["mail"] }), "a,c", orderName(order));
      assert.equal(await found({ kinds: ["post"] }), "b", orderName(order));
      assert.equal(await found({ statuses: ["waiting"] }), "c", orderName(order));
      assert.equal(await found({ kinds: ["mail"], statuses: ["done"] }), "a", orderName(order));
    }
  }),

  rule("in every order, the pages of a filtered list have every row once", async (context) => {
    const writer = await context.connect();
    const rows = await shuffled(writer, 61, (n) => ({
      kind: n % 3 === 0 ? "mail" : n % 3 === 1 ? "post" : null,
      status: n % 4 === 0 ? null : "waiting",
    }));
    const [kinds, statuses] = [["post", "mail"], ["waiting"]];
    for (const { order, sorted } of ORDERS)
      for (const asked of [{}, { kinds }, { statuses }, { kinds, statuses }, { kinds, statuses, prefix: "k12" }]) {
        const wanted = sorted(
          rows.filter(
            ({ key, kind, status }) =>
              (!("kinds" in asked) || kind !== null) &&
              (!("statuses" in asked) || status !== null) &&
              (!("prefix" in asked) || key.startsWith("k12")),
          ),
        );
        assert.ok(wanted.length > 3);
        for (const limit of [1, 7, wanted.length, wanted.length + 1])
          assert.deepEqual(
            await walked(writer, { ...asked, order }, limit),
            keysOf(wanted),
            `${orderName(order)}, ${Object.keys(asked)}, pages of ${limit}`,
          );
      }
  }),

  rule("deleted rows are listed in no order, whatever their columns contain", async (context) => {
    const writer = await context.connect();
    const rows = await shuffled(writer, 40, () => ({ kind: "mail", status: "waiting" }));
    const [left, bare, full] = [
      rows.filter((_, n) => n % 4 === 1),
      rows.filter((_, n) => n % 4 === 0),
      rows.filter((_, n) => n % 4 > 1),
    ];
    for (const row of bare) await writer.remove(row, 9e14);
    for (const row of full) await writer.change(row, { value: null, dueMs: 9e14 });
    const choices = [{}, { kinds: ["mail"] }, { statuses: ["waiting"] }, { kinds: ["mail"], statuses: ["waiting"] }];
    for (const { order, sorted } of ORDERS)
      for (const asked of choices) {
        const wanted = sorted(left);
        assert.deepEqual(await pageOf(writer, { ...asked, order }), wanted, orderName(order));
        assert.deepEqual(await pageOf(writer, { ...asked, order, limit: 3 }), wanted.slice(0, 3), orderName(order));
        assert.deepEqual(await walked(writer, { ...asked, order }, 4), keysOf(wanted), orderName(order));
      }
  }),

  rule("in every order, a list stays in its space and its namespace", async (context) => {
    const columns = { kind: "mail", status: "waiting" };
    const [writer, other] = [await context.connect(), await context.connect("other")];
    const mine: Row[] = [];
    for (const n of range(10, 16)) {
      mine.push(await writer.makeOne(blank(`k${n}`, columns)));
      await other.make(blank(`k${n}`, columns), blank(`m${n}`, columns));
      await writer.make(...["spac", "spaces", "spice"].map((space) => blank(`n${n}`, { ...columns, space })));
    }
    for (const { order, sorted } of ORDERS)
      for (const asked of [{}, { kinds: ["mail"], statuses: ["waiting"] }])
        assert.deepEqual(await pageOf(writer, { ...asked, order }), sorted(mine), orderName(order));
  }),
];
