/** Mistakes of stores: columns. */

import { keyText } from "../../../src/kernel/contract.ts";
import { type Broken, page, rewrite, rewriting, taking, writingRows } from "../broken.ts";

export const columns: readonly Broken[] = [
  {
    bug: "does not write the tries of a new row",
    by: writingRows((row, was) => (was ? row : { ...row, tries: 0 })),
    breaks: ["every column comes", "whole numbers come", "a list has the", "due returns the kind"],
  },
  {
    bug: "does not write changed wakes",
    by: writingRows((row, was) => (was ? { ...row, wakes: was.wakes } : row)),
    breaks: ["a change of", "whole numbers come"],
  },
  {
    bug: "writes a changed kind only with a changed time",
    by: writingRows((row, was) => (was && was.dueMs === row.dueMs ? { ...row, kind: was.kind } : row)),
    breaks: ["a change of", "what was committed before", "a record without a", "a changed time", "rows are"],
  },
  {
    bug: "keeps what becomes null",
    by: writingRows((row, was) =>
      was ? { ...row, holder: row.holder ?? was.holder, status: row.status ?? was.status } : row,
    ),
    breaks: ["a change of", "a deleted row is read", "rows are"],
  },
  {
    bug: "keeps numbers in 32 bits",
    by: writingRows((row) => ({ ...row, wakes: row.wakes | 0 })),
    breaks: ["whole numbers come"],
  },
  {
    bug: "keeps numbers in 15 digits",
    by: writingRows((row) => ({ ...row, fence: Number(row.fence.toPrecision(15)) })),
    breaks: ["whole numbers come"],
  },
  {
    bug: "trims values",
    by: writingRows((row) => ({ ...row, value: row.value?.trim() ?? null })),
    breaks: ["texts come back"],
  },
  {
    bug: "takes an empty value for none",
    by: writingRows((row) => ({ ...row, value: row.value || null })),
    breaks: ["texts come back", "an empty value", "a sweep removes deleted"],
  },
  {
    bug: "brings values into a normal form",
    by: writingRows((row) => ({ ...row, value: row.value?.normalize("NFC") ?? null })),
    breaks: ["texts come back"],
  },
  {
    bug: "cuts long values",
    by: writingRows((row) => ({ ...row, value: row.value?.slice(0, 65_536) ?? null })),
    breaks: ["a value and"],
  },
  {
    bug: "cuts long entries",
    by: rewriting((puts) =>
      puts.map((put) => ({
        ...put,
        entries: put.entries.map((entry) => ({ ...entry, data: entry.data.slice(0, 65_536) })),
      })),
    ),
    breaks: ["a value and"],
  },
  {
    bug: "folds the case of names",
    by: taking((key) => keyText(key).toLowerCase()),
    breaks: ["names that look", "each record has", "a list is", "a prefix is", "a page has only"],
  },
  {
    bug: "brings names into a normal form",
    by: taking((key) => keyText(key).normalize("NFC")),
    breaks: ["names that look", "a prefix is"],
  },
  {
    bug: "pads names with blanks",
    by: taking((key) => keyText(key).trimEnd()),
    breaks: ["names that look"],
  },
  {
    bug: "cuts names at 255 characters",
    by: taking(({ space, key }) => `${space.slice(0, 255)}\n${key.slice(0, 255)}`),
    breaks: ["names of 256"],
  },
  {
    bug: "runs space and key together",
    by: taking(({ space, key }) => space + key),
    breaks: ["names that look"],
  },
  {
    bug: "does not read deleted rows",
    by: (store) => ({
      read: async (keys) => (await store.read(keys)).map((row) => (row?.value === null ? null : row)),
    }),
    breaks: [
      "a deleted row is read",
      "a sweep removes deleted",
      "a deleted row is swept",
      "a sweep removes at",
      "a sweep stays",
    ],
  },
  {
    bug: "starts the log again when a row is created again",
    by: (store, world) => ({
      commit: (batch) =>
        store.commit(
          rewrite(batch, (puts) => {
            for (const { was, row } of puts)
              if (was?.value === null && row.value !== null) world.notes.set(keyText(row), was.head);
            return puts;
          }),
        ),
      entries: async (key, after, limit, maxBytes) =>
        page(await store.entries(key, 0, 1e6), Math.max(after, world.notes.get(keyText(key)) ?? 0), limit, maxBytes),
    }),
    breaks: ["a row that is created", "a sweep removes deleted"],
  },
];
