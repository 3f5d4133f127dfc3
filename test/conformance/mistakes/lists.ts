/** Mistakes of stores: lists. */

import { compareUtf8 } from "../../../src/kernel/check.ts";
import { keyText, type Row } from "../../../src/kernel/contract.ts";
import {
  allOf,
  type Broken,
  COMPARE,
  choosing,
  isByNumber,
  isChosen,
  isOneOf,
  listing,
  listingDeleted,
  pageOf,
  rewrite,
} from "../broken.ts";

export const lists: readonly Broken[] = [
  {
    bug: "sorts a list as JavaScript does",
    by: listing({ compare: { key: (a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0) } }),
    breaks: ["a list is"],
  },
  {
    bug: "takes a prefix for a pattern",
    by: listing({
      isIn: (key, prefix) =>
        new RegExp(
          `^${prefix
            .replace(/[\\[\]*']/g, "\\$&")
            .replaceAll("%", ".*")
            .replaceAll("_", ".")}`,
          "su",
        ).test(key),
    }),
    breaks: ["a prefix is"],
  },
  {
    bug: "finds a prefix in any case",
    by: listing({ isIn: (key, prefix) => key.toLowerCase().startsWith(prefix.toLowerCase()) }),
    breaks: ["a prefix is"],
  },
  {
    bug: "finds a prefix in any normal form",
    by: listing({ isIn: (key, prefix) => key.normalize("NFD").startsWith(prefix.normalize("NFD")) }),
    breaks: ["a prefix is"],
  },
  {
    bug: "ends a prefix at the last character there is",
    by: listing({
      isIn: (key, prefix) => compareUtf8(key, prefix) >= 0 && compareUtf8(key, `${prefix}\u{10ffff}`) <= 0,
    }),
    breaks: ["a prefix is"],
  },
  {
    bug: "ends a prefix at its last unit and one",
    by: listing({
      isIn: (key, prefix) => {
        const end = prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1);
        return prefix === "" || (key >= prefix && key < end);
      },
    }),
    breaks: ["a prefix is"],
  },
  {
    bug: "lists from the key named on",
    by: listing({
      goOn: (rows, last, order) =>
        rows.filter((row) => COMPARE[order](row, last) > 0 || (order === "key" && row.key === last.key)),
    }),
    breaks: [
      "a list is",
      "a list continues",
      "a list has at",
      "deleted rows are not",
      "in every order, the pages",
      "deleted rows are listed",
    ],
  },
  {
    bug: "continues after a key only if it exists",
    by: listing({
      goOn: (rows, last, order) =>
        order === "key"
          ? rows.slice(rows.findIndex(({ key }) => key === last.key) + 1)
          : rows.filter((row) => COMPARE[order](row, last) > 0),
    }),
    breaks: ["a list continues"],
  },
  {
    bug: "returns one row more than requested",
    by: (store) => ({ list: (query) => store.list({ ...query, limit: query.limit + 1 }) }),
    breaks: [
      "a list is",
      "a list has at",
      "deleted rows are not",
      "by number, a list begins",
      "by number, a list continues",
      "in every order, the pages",
      "deleted rows are listed",
    ],
  },
  {
    bug: "lists deleted rows",
    by: listingDeleted((query) => !isByNumber(query)),
    breaks: ["deleted rows are not", "deleted rows are listed"],
  },
  {
    bug: "lists the rows of spaces that begin alike",
    by: (store, world) => ({
      async list(query) {
        const rows: Row[] = [...(await store.list(query))];
        for (const space of world.spaces)
          if (space !== query.space && space.startsWith(query.space))
            rows.push(...(await store.list({ ...query, space })));
        return rows.sort(COMPARE[query.order ?? "key"]).slice(0, query.limit);
      },
    }),
    breaks: ["names that look", "a list has the", "in every order, a list"],
  },
  {
    bug: "lists rows without their holders",
    by: (store) => ({ list: async (query) => (await store.list(query)).map((row) => ({ ...row, holder: null })) }),
    breaks: ["names of 256", "a list has the"],
  },
  {
    bug: "lists by key, whatever the order",
    by: (store) => ({ list: (query) => store.list({ ...query, order: "key" }) }),
    breaks: [
      "by number, a list begins",
      "by number, a list continues",
      "kinds and statuses",
      "in every order, the pages",
      "deleted rows are listed",
      "in every order, a list",
    ],
  },
  {
    bug: "takes the newest for the oldest",
    by: listing({ compare: { newest: COMPARE.oldest, oldest: COMPARE.newest } }),
    breaks: [
      "by number, a list begins",
      "by number, a list continues",
      "kinds and statuses",
      "in every order, the pages",
      "deleted rows are listed",
      "in every order, a list",
    ],
  },
  {
    bug: "turns round the page of the oldest",
    by: listing({
      cut: (rows, { order, limit }) => (order === "newest" ? rows.slice(-limit) : rows),
    }),
    breaks: [
      "by number, a list begins",
      "by number, a list continues",
      "in every order, the pages",
      "deleted rows are listed",
    ],
  },
  {
    bug: "continues after the text of a number",
    by: listing({
      goOn: (rows, last, order) =>
        rows.filter((row) =>
          order === "key"
            ? COMPARE.key(row, last) > 0
            : order === "oldest"
              ? String(row.id) > last.key
              : String(row.id) < last.key,
        ),
    }),
    breaks: ["by number, a list continues", "in every order, the pages", "deleted rows are listed"],
  },
  {
    bug: "lists from the number named on",
    by: listing({
      goOn: (rows, last, order) =>
        rows.filter((row) => COMPARE[order](row, last) > 0 || (order !== "key" && row.id === last.id)),
    }),
    breaks: ["by number, a list continues", "in every order, the pages", "deleted rows are listed"],
  },
  {
    bug: "continues after a number only if it exists",
    by: listing({
      goOn: (rows, last, order) =>
        order === "key"
          ? rows.filter((row) => COMPARE.key(row, last) > 0)
          : rows.slice(rows.findIndex(({ id }) => id === last.id) + 1),
    }),
    breaks: ["by number, a list continues"],
  },
  {
    bug: "takes no kinds for all kinds",
    by: choosing((text, texts) => texts.length === 0 || isOneOf(text, texts)),
    breaks: ["kinds and statuses"],
  },
  {
    bug: "folds the case of kinds and statuses in a list",
    by: choosing((text, texts) => texts.some((one) => one.toLowerCase() === text?.toLowerCase())),
    breaks: ["kinds and statuses"],
  },
  {
    bug: "trims kinds and statuses",
    by: choosing((text, texts) => texts.some((one) => one.trim() === text?.trim())),
    breaks: ["kinds and statuses"],
  },
  {
    bug: "sends the kinds as one text, with commas between",
    by: choosing((text, texts) => text !== null && texts.join().split(",").includes(text)),
    breaks: ["kinds and statuses"],
  },
  {
    bug: "uses only the first of the kinds",
    by: choosing((text, [first]) => first !== undefined && text === first),
    breaks: ["kinds and statuses", "in every order, the pages"],
  },
  {
    bug: "lists rows without a kind with those of any",
    by: choosing((text, texts) => texts.length > 0 && (text === null || texts.includes(text))),
    breaks: ["kinds and statuses", "rows are", "in every order, the pages"],
  },
  {
    bug: "chooses by kind or by status, where both are named",
    by: listing({
      isChosen: (row, query) =>
        isChosen(row, query) ||
        (query.kinds !== undefined &&
          query.statuses !== undefined &&
          (isOneOf(row.kind, query.kinds) || isOneOf(row.status, query.statuses))),
    }),
    breaks: ["kinds and statuses", "rows are", "in every order, the pages"],
  },
  {
    bug: "does not choose where it goes by number",
    by: (store) => ({
      list: (query) => store.list(isByNumber(query) ? { ...query, kinds: undefined, statuses: undefined } : query),
    }),
    breaks: ["kinds and statuses", "rows are", "in every order, the pages"],
  },
  {
    bug: "chooses by what a row was when it was made",
    by: (store) => {
      const made = new Map<string, Row>();
      const asMade = listing({ isChosen: (row, query) => isChosen(made.get(keyText(row)) ?? row, query) });
      return {
        ...asMade(store),
        commit: (batch) =>
          store.commit(
            rewrite(batch, (puts) => {
              for (const { was, row } of puts) if (was === null) made.set(keyText(row), row);
              return puts;
            }),
          ),
      };
    },
    breaks: ["rows are"],
  },
  {
    bug: "cuts the page, and then chooses",
    by: (store) => ({
      list: async (query) =>
        (await store.list({ ...query, kinds: undefined, statuses: undefined })).filter((row) => isChosen(row, query)),
    }),
    breaks: ["in every order, the pages"],
  },
  {
    bug: "returns one row more than requested if it filters",
    by: (store) => ({
      list: ({ limit, ...query }) => store.list({ ...query, limit: query.kinds === undefined ? limit : limit + 1 }),
    }),
    breaks: ["in every order, the pages", "deleted rows are listed"],
  },
  {
    bug: "lists deleted rows by number",
    by: listingDeleted(isByNumber),
    breaks: ["deleted rows are listed"],
  },
  {
    bug: "lists deleted rows that still have a kind",
    by: listingDeleted(({ kinds }) => kinds !== undefined),
    breaks: ["deleted rows are listed"],
  },
  {
    bug: "lists all spaces by number",
    by: (store, world) => ({
      async list(query) {
        if (!isByNumber(query)) return store.list(query);
        const spaces = await Promise.all([...world.spaces].map((space) => allOf(store, space)));
        return pageOf(spaces.flat(), query);
      },
    }),
    breaks: ["in every order, a list"],
  },
  {
    bug: "lists all namespaces by number",
    by: (store, world) => ({
      async list(query) {
        if (!isByNumber(query)) return store.list(query);
        const all = [...world.namespaces].map((namespace) => allOf(world.database.connect(namespace), query.space));
        return pageOf((await Promise.all(all)).flat(), query);
      },
    }),
    breaks: ["in every order, a list"],
  },
];
