/**
 * Goal: processes that are killed at any moment while they close streams, in the middle of a file of the archive too, lose no event and store none twice.
 * Method: two real processes append to three streams and close them, into one folder; one of them is killed by SIGKILL again and again, at what it says it is doing.
 * In the end, all streams are read from the archive and the store.
 */

import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { jsonLinesArchive, open } from "../../src/index.ts";
import { Child, spawnNode } from "../node/child.ts";
import { grounds } from "../sql/grounds.ts";
import { all } from "./kit.ts";

const KILLS = 25;
const PHASES = ["archiving", "passing", "archived", "appended", "closed"];

test.each(grounds)(
  "processes that are killed while they close streams lose nothing, on %s",
  { timeout: 600_000 },
  async (_, make) => {
    const ground = await make();
    const folder = mkdtempSync(join(tmpdir(), "pawl-closing-"));
    const acknowledged = new Map<string, string>();
    const start = (name: string) =>
      new Child(spawnNode(join(import.meta.dirname, "children", "closer.ts"), [ground.where, folder, name]), name);
    const hear = (line: string) => {
      const [what, stream = "", id = ""] = line.split(" ");
      if (what === "appended") acknowledged.set(id, stream);
    };
    try {
      let children = [start("one"), start("two")];
      for (let kill = 0; kill < KILLS; kill++) {
        const [victim, other] = children as [Child, Child];
        // Each phase in its turn, the first of them or a later one.
        for (let left = 1 + (kill % 3); left > 0; ) {
          const line = await victim.line();
          hear(line);
          if (line.startsWith(PHASES[kill % PHASES.length] ?? "")) left -= 1;
        }
        await victim.kill();
        for (const line of victim.rest()) hear(line);
        children = [other, start(`victim ${kill}`)];
      }
      for (const child of children) {
        await child.kill();
        for (const line of child.rest()) hear(line);
      }
      const pawl = await open(ground.where, { archive: jsonLinesArchive(folder), logger: false });
      let closings = 0;
      for (const stream of ["s-0", "s-1", "s-2"]) {
        await pawl.streams.close(stream);
        const events = await all(pawl.stream(stream).read());
        expect(events.map(({ version }) => version)).toEqual(events.map((_, index) => index + 1));
        expect(new Set(events.map(({ id }) => id)).size).toBe(events.length);
        for (const [index, { name }] of events.entries())
          if (index > 0) expect(name === "Opened").toBe(events[index - 1]?.name === "$closed");
        const ids = new Set(events.map(({ id }) => id));
        for (const [id, of] of acknowledged) if (of === stream) expect(ids.has(id)).toBe(true);
        const left = await all(pawl.stream(stream).read({ from: "kept" }));
        expect(left.map(({ name }) => name)).toEqual(["$closed"]);
        closings += events.filter(({ name }) => name === "$closed").length;
      }
      expect(acknowledged.size).toBeGreaterThan(0);
      expect(closings).toBeGreaterThan(10);
      expect(
        readdirSync(folder)
          .filter((name) => !name.startsWith(".writing-"))
          .toSorted(),
      ).toEqual(["s-0.jsonl", "s-1.jsonl", "s-2.jsonl"]);
      await pawl.close();
    } finally {
      rmSync(folder, { recursive: true, force: true });
      await ground.leave();
    }
  },
);
