/**
 * Goal: events are what the HTML standard says, however the bytes are cut.
 */

import { expect, test } from "vitest";
import { EventParser, type ServerEvent } from "./sse.ts";

const text =
  ': hi\n\nid: 1\nevent: value\ndata: {"a":"ü😀"}\n\ndata: one\r\ndata:two\r\n\r\nid: 2\rdata\r\rdata: x\nretry: 5\nunknown: y\n\nid: 3\n\ndata: never finished';
const expected: ServerEvent[] = [
  { id: "1", event: "value", data: '{"a":"ü😀"}' },
  { id: "1", event: "message", data: "one\ntwo" },
  { id: "2", event: "message", data: "" },
  { id: "2", event: "message", data: "x" },
];

test("events are parsed, wherever the bytes are cut", () => {
  const bytes = new TextEncoder().encode(text);
  for (let size = 1; size <= bytes.length; size++) {
    const parser = new EventParser();
    const events: ServerEvent[] = [];
    for (let at = 0; at < bytes.length; at += size) events.push(...parser.push(bytes.subarray(at, at + size)));
    expect(events).toEqual(expected);
  }
});
