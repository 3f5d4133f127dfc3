/** Goal: an apply that was too slow once, or that stumbled over one event, does not make a projection apply one event at a time for ever. */

import { expect, test } from "vitest";
import { PageSize } from "./page-size.ts";

const sizes = (pages: PageSize, count: number): readonly number[] =>
  Array.from({ length: count }, () => {
    const { size } = pages;
    pages.applied();
    return size;
  });

test("pages are as large as they may be while nothing fails", () => {
  expect(sizes(new PageSize(400), 3)).toEqual([400, 400, 400]);
});

test("after a failure one event is applied, and after each success twice as many, up to half of what failed", () => {
  const pages = new PageSize(400);
  pages.failed(400);
  expect(sizes(pages, 10)).toEqual([1, 2, 4, 8, 16, 32, 64, 128, 200, 200]);
});

test("one event that fails says nothing of larger pages, and neither does a failure before any event", () => {
  for (const tried of [1, undefined]) {
    const pages = new PageSize(8);
    pages.failed(tried);
    expect(sizes(pages, 5)).toEqual([1, 2, 4, 8, 8]);
  }
});

test("a larger page is tried again after many that succeeded", () => {
  const pages = new PageSize(8);
  pages.failed(4);
  expect(sizes(pages, 20)).toEqual([1, ...Array(16).fill(2), 2, 4, 4]);
  pages.failed(2);
  expect(pages.size).toBe(1);
});
