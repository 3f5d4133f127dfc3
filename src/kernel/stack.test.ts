import { expect, test } from "vitest";
import { framesOf } from "./stack.ts";

const withStack = (stack: unknown): Error => Object.defineProperty(new Error("x"), "stack", { value: stack });

const rows: { rule: string; error: unknown; frames: string | undefined }[] = [
  {
    rule: "frames, without the message",
    error: withStack("Error: a\n    at f (a.ts:1:2)\n    at b.ts:3:4"),
    frames: "at f (a.ts:1:2)\nat b.ts:3:4",
  },
  {
    rule: "a message of several lines is left out",
    error: withStack("Error: secret\nsecond line\n    at f (a.ts:1:2)"),
    frames: "at f (a.ts:1:2)",
  },
  { rule: "an error without frames has none", error: withStack("Error: a"), frames: undefined },
  { rule: "neither has one whose stack is no text", error: withStack(1), frames: undefined },
  { rule: "nor what is no error", error: "thrown", frames: undefined },
  {
    rule: "whole frames are kept, up to 2,000 characters",
    error: withStack(`Error: a${`\n    at ${"f".repeat(900)}`.repeat(3)}`),
    frames: [1, 2].map(() => `at ${"f".repeat(900)}`).join("\n"),
  },
];

test.each(rows)("$rule", ({ error, frames }) => {
  expect(framesOf(error)).toBe(frames);
});

test("a stack that cannot be read is none", () => {
  const error = Object.defineProperty(new Error("x"), "stack", {
    get: () => {
      throw new Error("no");
    },
  });
  expect(framesOf(error)).toBeUndefined();
});
