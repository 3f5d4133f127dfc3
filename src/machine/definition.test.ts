/**
 * Goal: an invalid definition is refused at run time too; the drawing shows what the definition has.
 * Method: one row for each mistake; drawings are read back and compared with the definition.
 */

import { describe, expect, test } from "vitest";
import { machine } from "./definition.ts";

const make = (name: unknown, definition?: unknown) => machine(name as never, definition as never);
const states = { a: ["b"], b: [] };

describe("a definition", () => {
  test("has its states, the initial state and the final states", () => {
    const one = machine("order", { initial: "b", transitions: { a: [], b: ["a", "c"], c: [] } });
    expect([one.name, one.initial, one.states, one.finalStates]).toEqual(["order", "b", ["a", "b", "c"], ["a", "c"]]);
  });

  test("cannot be changed", () => {
    const one = machine("order", { initial: "a", transitions: { a: [] } });
    expect(() => Object.assign(one, { name: "other" })).toThrow(TypeError);
    expect(() => (one.states as string[]).push("b")).toThrow(TypeError);
    const targets = ["b"] as ("a" | "b")[];
    const two = machine("order", { initial: "a", transitions: { a: targets, b: [] } });
    targets.pop();
    expect(two.toText()).toContain("● a → b");
  });

  test.each([
    {
      mistake: "no name",
      given: [undefined, { initial: "a", transitions: states }],
      says: "the machine's name must be a string",
    },
    {
      mistake: "an empty name",
      given: ["", { initial: "a", transitions: states }],
      says: "the machine's name must not be empty",
    },
    { mistake: "nothing else", given: ["m"], says: "the machine's definition must be a plain object" },
    {
      mistake: "a part that is not known",
      given: ["m", { initial: "a", transitions: states, transition: {} }],
      says: 'must not have "transition"',
    },
    { mistake: "no transitions", given: ["m", { initial: "a" }], says: "the transitions must be an object" },
    {
      mistake: "transitions as a list",
      given: ["m", { initial: "a", transitions: [["a", "b"]] }],
      says: "the transitions must be an object",
    },
    { mistake: "no states", given: ["m", { initial: "a", transitions: {} }], says: "the number of states" },
    {
      mistake: "a state with a control character",
      given: ["m", { initial: "a", transitions: { a: [], "b\n": [] } }],
      says: "the state must not contain control",
    },
    {
      mistake: "targets that are no list",
      given: ["m", { initial: "a", transitions: { a: "b", b: [] } }],
      says: "the transitions of a must be a list",
    },
    {
      mistake: "a target that is no state",
      given: ["m", { initial: "a", transitions: { a: ["c"], b: [] } }],
      says: "a target of a must be a state of the machine: a, b",
    },
    {
      mistake: "a target that every object has",
      given: ["m", { initial: "a", transitions: { a: ["constructor"] } }],
      says: "a target of a",
    },
    {
      mistake: "a target twice",
      given: ["m", { initial: "a", transitions: { a: ["b", "b"], b: [] } }],
      says: "must not name a state twice",
    },
    {
      mistake: "a first state that is none",
      given: ["m", { initial: "c", transitions: states }],
      says: "the initial state must be",
    },
    { mistake: "no first state", given: ["m", { transitions: states }], says: "the initial state must be" },
    {
      mistake: "a word for unknown that is not known",
      given: ["m", { initial: "a", transitions: states, unknown: "make" }],
      says: 'unknown must be "create" or "refuse"',
    },
    {
      mistake: "room for none",
      given: ["m", { initial: "a", transitions: states, maxParked: 0 }],
      says: "maxParked must be",
    },
    {
      mistake: "guards that are no object",
      given: ["m", { initial: "a", transitions: states, guards: [] }],
      says: "the guards must be an object",
    },
    {
      mistake: "a guard of no state",
      given: ["m", { initial: "a", transitions: states, guards: { c: {} } }],
      says: "a guarded state must be",
    },
    {
      mistake: "a guard to no state",
      given: ["m", { initial: "a", transitions: states, guards: { a: { c: () => true } } }],
      says: "a guard of a must be",
    },
    {
      mistake: "a guard where there is no way",
      given: ["m", { initial: "a", transitions: states, guards: { b: { a: () => true } } }],
      says: "must belong to a transition",
    },
    {
      mistake: "a guard that is no function",
      given: ["m", { initial: "a", transitions: states, guards: { a: { b: true } } }],
      says: "must be a function",
    },
    {
      mistake: "guards of a state that are no object",
      given: ["m", { initial: "a", transitions: states, guards: { a: () => true } }],
      says: "the guards of a must be",
    },
  ])("is refused with $mistake", ({ given, says }) => {
    expect(() => make(given[0], given[1])).toThrow(says);
  });

  test.each([{ a: undefined }, { a: { b: undefined } }, undefined])("may leave a guard out: %j", (guards) => {
    expect(make("m", { initial: "a", transitions: states, guards }).toText()).toContain("● a → b");
  });

  test("a state may be named like what every object has", () => {
    const transitions = { constructor: ["toString"], toString: [], ["__proto__"]: ["constructor"] };
    const one = make("m", { initial: "constructor", transitions });
    expect(one.states).toEqual(["constructor", "toString", "__proto__"]);
  });
});

const review = machine("document", {
  initial: "draft",
  transitions: {
    draft: ["review", "deleted"],
    review: ["draft", "approved", "review"],
    approved: ["published", "draft"],
    published: ["archived", "draft"],
    archived: ["deleted"],
    deleted: [],
    old: ["archived"],
  },
  guards: { review: { approved: () => true } },
});

describe("a drawing", () => {
  test("in text has each state and the states it leads to", () => {
    expect(review.toText().split("\n")).toEqual([
      "document",
      "● draft     → review, deleted",
      "  review    → draft, approved?, review",
      "  approved  → published, draft",
      "  published → archived, draft",
      "  archived  → deleted",
      "◎ deleted",
      "  old       → archived (nothing leads here)",
      "● first   ◎ final   ? guarded",
    ]);
  });

  const svg = review.toSvg();

  test("is the same each time", () => {
    expect(review.toSvg()).toBe(svg);
  });

  test("has a box for each state, a second one for a final state, an arrow for each transition and one for the initial state", () => {
    const ways = 2 + 3 + 2 + 2 + 1 + 1;
    expect(textsOf(svg).toSorted()).toEqual(["document", ...review.states].toSorted());
    expect(count(svg, /<rect /g)).toBe(1 + review.states.length + 1);
    expect(count(svg, / Z" fill=/g)).toBe(ways + 1);
    expect(count(svg, /stroke-dasharray/g)).toBe(1);
  });

  test("has no overlapping boxes, and all of them within the document", () => {
    const [picture, ...boxes] = [
      ...svg.matchAll(/<rect (?:x="([\d.]+)" y="([\d.]+)" )?width="([\d.]+)" height="([\d.]+)" rx="8"/g),
    ].map(([, x = "0", y = "0", width, height]) => ({
      x: Number(x),
      y: Number(y),
      width: Number(width),
      height: Number(height),
    }));
    expect(boxes.length).toBe(review.states.length);
    for (const [i, a] of boxes.entries()) {
      expect(a.x + a.width).toBeLessThan(picture?.width ?? 0);
      expect(a.y + a.height).toBeLessThan(picture?.height ?? 0);
      for (const b of boxes.slice(i + 1))
        expect(a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y).toBe(
          true,
        );
    }
  });

  test("escapes names", () => {
    const evil = `</text><script>alert("1")</script>&'`;
    const drawn = make(evil, { initial: evil, transitions: { [evil]: [] } }).toSvg();
    expect(drawn).not.toContain("<script");
    expect(drawn).toContain("&lt;/text&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;");
    expect(drawn).not.toMatch(/ (id|class|style|href|on\w+)=/);
  });

  test("escapes characters that are invisible or reverse the direction of text", () => {
    const sly = make("a\u202eb", { initial: "pa\u200bid", transitions: { "pa\u200bid": [] } });
    for (const drawn of [sly.toText(), sly.toSvg()]) {
      expect(drawn).toContain("a\\u202eb");
      expect(drawn).toContain("pa\\u200bid");
      expect(drawn).not.toMatch(/[\u202e\u200b]/);
    }
  });

  test("of one state is a document too", () => {
    const one = machine("light", { initial: "on", transitions: { on: ["on"] } });
    expect(one.toText()).toBe("light\n● on → on\n● first   ◎ final   ? guarded");
    expect(textsOf(one.toSvg())).toEqual(["light", "on"]);
  });
});

const textsOf = (svg: string) => [...svg.matchAll(/<text [^>]*>([^<]*)</g)].map(([, text]) => text);
const count = (text: string, what: RegExp) => [...text.matchAll(what)].length;
