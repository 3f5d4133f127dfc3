// Goal: the check of links (links.ts) finds every kind of dead link, and nothing else.
// Method: small pages, a row for each kind.

import { expect, test } from "vitest";
import { anchorsOf, findDeadLinks } from "./links.ts";

const others = { "docs/a.md": "# A page\n\n## Why, and how\n\n## Why, and how\n", "docs/b.svg": "<svg/>" };

const rows = [
  { rule: "a file that is there", text: "[a](docs/a.md)", dead: [] },
  { rule: "a file that is not there", text: "[a](docs/none.md)", dead: ["docs/none.md"] },
  { rule: "two links on a line", text: "[a](docs/a.md) [b](none.md)", dead: ["none.md"] },
  { rule: "a file outside of the package", text: "[a](../docs/a.md)", dead: ["../docs/a.md"] },
  { rule: "a folder that is there", text: "[a](docs) [a](docs/)", dead: [] },
  { rule: "a folder that is not there", text: "[a](doc)", dead: ["doc"] },
  { rule: "an image that is there", text: "![b](docs/b.svg)", dead: [] },
  { rule: "an image that is not there", text: "![b](docs/c.svg)", dead: ["docs/c.svg"] },
  { rule: "a link around code", text: "[`a`](none.ts)", dead: ["none.ts"] },
  { rule: "a reference", text: "[a][1]\n\n[1]: none.md", dead: ["none.md"] },
  { rule: "an HTML attribute", text: `<img src="none.png">`, dead: ["none.png"] },
  { rule: "a title beside the link", text: `[a](docs/a.md "A")`, dead: [] },
  { rule: "a heading that is there", text: "[a](docs/a.md#why-and-how)", dead: [] },
  { rule: "a second heading of the same name", text: "[a](docs/a.md#why-and-how-1)", dead: [] },
  { rule: "a heading that is not there", text: "[a](docs/a.md#what)", dead: ["docs/a.md#what"] },
  { rule: "a heading of a page that is not there", text: "[a](none.md#what)", dead: ["none.md#what"] },
  { rule: "a heading of the page itself", text: "# Top\n\n[a](#top) [b](#bottom)", dead: ["#bottom"] },
  { rule: "a line of a file that has no headings", text: "[b](docs/b.svg#L1)", dead: ["docs/b.svg#L1"] },
  { rule: "code is no link", text: "`[a](none.md)`\n\n```\n[a](none.md)\n```\n", dead: [] },
  { rule: "an address is not followed", text: "[a](https://example.com/none.md) [b](mailto:a@example.com)", dead: [] },
];

test.each(rows)("$rule", ({ text, dead }) => {
  const files = new Map(Object.entries({ "README.md": text, ...others }));
  expect(findDeadLinks(files)).toEqual(dead.map((link) => `README.md: ${link}`));
});

test("a page in a folder is followed from that folder", () => {
  const files = new Map(Object.entries({ ...others, "docs/c.md": "[a](a.md) [b](../docs/a.md) [c](docs/a.md)" }));
  expect(findDeadLinks(files)).toEqual(["docs/c.md: docs/a.md"]);
});

test("a heading in a code block is none", () => {
  expect(anchorsOf("# One `two`\n\n```sh\n# three\n```\n\n## [Four](five.md) six\n")).toEqual(["one-two", "four-six"]);
});
