/**
 * Goal: this release replays the histories of every earlier one to the same end, and still finds what contradicts them (G23).
 * Method: histories and their outcomes are kept as files, in a folder for each release. With PAWL_GOLDEN=<release> they are lived and written
 * instead; a file that is there is never written again.
 */

import { existsSync, globSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { workflow } from "../../src/index.ts";
import { jsonCodec } from "../../src/kernel/codec/json.ts";
import { openTest, replayHistory, saveHistory } from "../../src/testing/index.ts";
import { WORDS } from "../../src/workflow/stored.ts";
import { STORIES, type Story } from "./golden/stories.ts";

const root = join(import.meta.dirname, "golden");
const NOWHERE = { namespace: "", space: "", key: "" };

async function live({ code, others = [], live }: Story): Promise<string> {
  await using pawl = openTest();
  let worker = pawl.work([code, ...others]);
  const id = await live(pawl, async () => {
    await pawl.clock.during(worker.stop({ timeout: 1 }));
    worker = pawl.work([code, ...others]);
  });
  return await saveHistory(pawl, id);
}

const outcomeOf = async ({ code }: Story, history: string): Promise<string> =>
  jsonCodec.encode(shown(await replayHistory(code, history)), NOWHERE);

/** Errors without stacks, which name the files of one machine. */
function shown(replayed: object): object {
  const error = "error" in replayed && replayed.error instanceof Error ? replayed.error : undefined;
  return error === undefined ? replayed : { ...replayed, error: `${error.name}: ${error.message}` };
}

const release = process.env["PAWL_GOLDEN"];
if (release !== undefined) {
  const folder = join(root, release);
  mkdirSync(folder, { recursive: true });
  for (const [name, story] of Object.entries(STORIES)) {
    // What is kept is never written again.
    if (existsSync(join(folder, `${name}.history.json`))) continue;
    const history = await live(story);
    writeFileSync(join(folder, `${name}.history.json`), history);
    writeFileSync(join(folder, `${name}.outcome.json`), `${await outcomeOf(story, history)}\n`);
  }
}

const releases = readdirSync(root, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => name);
const read = (...path: string[]): string => readFileSync(join(root, ...path), "utf8");
const storyOf = (name: string): Story => {
  const story = STORIES[name];
  if (story === undefined) throw new Error(`the story "${name}" is gone, and its history is kept`);
  return story;
};

describe.each(releases)("the histories of release %s", (release) => {
  const names = globSync("*.history.json", { cwd: join(root, release) }).map((file) => file.split(".")[0] ?? "");

  test.each(names)("%s comes to the same end", async (name) => {
    const outcome = await outcomeOf(storyOf(name), read(release, `${name}.history.json`));
    expect(outcome).toBe(read(release, `${name}.outcome.json`).trim());
  });

  test.each(names)("%s is contradicted, with both sides, by code that asks for something else", async (name) => {
    const other = workflow(storyOf(name).code.name, async (ctx) => ctx.step("something else", () => 1));
    const replayed = await replayHistory(other, read(release, `${name}.history.json`));
    expect(replayed).toMatchObject({
      ok: false,
      contradiction: { code: "history_contradiction", data: { code: 'waits for "step something else"' } },
    });
  });
});

test("every word that a history can have is in one of them", () => {
  const kept = releases.flatMap((release) =>
    globSync("*.history.json", { cwd: join(root, release) }).map((file) => read(release, file)),
  );
  const found = new Set(kept.flatMap((text) => [...text.matchAll(/^\{"name":"(\w+)/gm)].map(([, word]) => word)));
  // A history ends with its deletion, and is never replayed after it.
  expect(Object.keys(WORDS).filter((word) => !found.has(word) && word !== "deleted")).toEqual([]);
});

test("each story that is lived today comes to the end that its latest history came to", async () => {
  const latest = releases.at(-1) ?? "";
  for (const [name, story] of Object.entries(STORIES)) {
    const history = await live(story);
    expect(await outcomeOf(story, history), name).toBe(read(latest, `${name}.outcome.json`).trim());
  }
});
