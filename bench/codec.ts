/**
 * What the JSON codec costs beside bare JSON: for each shape the median time of encode and decode, and of `JSON.stringify`
 * and `JSON.parse` for the same value (for tagged values: for the JSON they are written as).
 *
 * The two take turns in many short rounds, and the ratio is the median of the rounds' ratios, so that a busy machine
 * slows both and spoils neither.
 *
 *     node bench/codec.ts
 */

import type { Place } from "../src/kernel/codec/codec.ts";
import { jsonCodec } from "../src/kernel/codec/json.ts";

const ROUND_COUNT = 101;
const ROUND_NS = 3_000_000;
const at: Place = { namespace: "bench", space: "run", key: "1" };

const order = {
  id: "order-1042",
  customer: { name: "Ann Example", email: "ann@example.org" },
  items: [
    { sku: "A-1", count: 2, price: 1250 },
    { sku: "B-7", count: 1, price: 999 },
  ],
  paid: true,
  note: null,
  at: 1_730_000_000_000,
};

const shapes: Record<string, unknown> = {
  null: null,
  number: 12_345.5,
  string: "charge-8a1f",
  "object, 40 bytes": { id: "order-42", paid: true, total: 1999 },
  "object, 200 bytes": order,
  "same, with a $ in a text": { ...order, note: "$20 off" },
  "100 objects": Array.from({ length: 100 }, (_, id) => ({ ...order, id })),
  "1,000 numbers": Array.from({ length: 1000 }, (_, i) => i * 3),
  "text, 10 kB": "lorem ipsum ".repeat(850),
  "tagged: a Date in 200 bytes": { ...order, at: new Date(1_730_000_000_000) },
  "tagged: a missing field": { ...order, note: undefined },
};

// What the loops compute goes here, so that no work is optimised away.
let sink: unknown;

function nsPerCall(act: () => unknown, callCount: number): number {
  const start = process.hrtime.bigint();
  for (let i = 0; i < callCount; i++) sink = act();
  return Number(process.hrtime.bigint() - start) / callCount;
}

function median(figures: readonly number[]): number {
  return figures.toSorted((a, b) => a - b)[figures.length >> 1] ?? Number.NaN;
}

function compare(name: string, bare: () => unknown, ours: () => unknown): void {
  const callCount = Math.max(10, Math.ceil(ROUND_NS / Math.max(nsPerCall(bare, 2000), nsPerCall(ours, 2000))));
  const rounds = Array.from({ length: ROUND_COUNT }, () => {
    const bareNs = nsPerCall(bare, callCount);
    const oursNs = nsPerCall(ours, callCount);
    return { bareNs, oursNs, ratio: oursNs / bareNs };
  });
  const bareText = median(rounds.map((round) => round.bareNs))
    .toFixed(0)
    .padStart(7);
  const oursText = median(rounds.map((round) => round.oursNs))
    .toFixed(0)
    .padStart(7);
  const ratioText = median(rounds.map((round) => round.ratio)).toFixed(2);
  console.log(`  ${name}   JSON ${bareText} ns   codec ${oursText} ns   ${ratioText}x`);
}

for (const [name, value] of Object.entries(shapes)) {
  const text = jsonCodec.encode(value, at);
  const json: unknown = name.startsWith("tagged") ? JSON.parse(text) : value;
  console.log(`${name} (${text.length} characters)`);
  compare(
    "encode",
    () => JSON.stringify(json),
    () => jsonCodec.encode(value, at),
  );
  compare(
    "decode",
    () => JSON.parse(text),
    () => jsonCodec.decode(text, at),
  );
}
if (sink === undefined) console.log("nothing was measured");
