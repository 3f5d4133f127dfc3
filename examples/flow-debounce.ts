// A search index is updated once the edits of a document have stopped, and after ten seconds at the latest.

import { workflow } from "pawl";
import { openTest } from "pawl/testing";

const update = workflow(
  {
    name: "update-index",
    debounce: { period: "2s", maxWait: "10s", key: (edit: { document: string; text: string }) => edit.document },
  },
  async (ctx, { document, text }) => {
    await ctx.step("index", () => console.log(`${document} is indexed with "${text}"`));
  },
);

const pawl = openTest();
pawl.work([update]);

const first = await pawl.start(update, { document: "a", text: "h" });
await pawl.clock.advance("1s");
const second = await pawl.start(update, { document: "a", text: "he" });
console.log("one run for both:", first.id === second.id);
await pawl.clock.advance("1s");
await pawl.start(update, { document: "a", text: "hello" });
await pawl.clock.advance("2s");
console.log((await first.status()).status);
await pawl.close();

// Output:
// one run for both: true
// a is indexed with "hello"
// completed
