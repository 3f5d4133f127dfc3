/**
 * What the JSON codec costs beside bare JSON: for each shape the median over rounds of encode and decode, and the ratio to
 * `JSON.stringify` and `JSON.parse` of the same value (tagged values: of the JSON they are written as).
 *
 * The contenders take turns within a round, so that a busy machine slows both.
 *
 *     node bench/codec.ts
 */

import type { Place } from "../src/kernel/codec/codec.ts";
import { jsonCodec } from "../src/kernel/codec/json.ts";

const ROUND_COUNT = 15;
const ROUND_NS = 20_000_000;
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

function medians(...acts: (() => unknown)[]): number[] {
  const rounds = acts.map((): number[] => []);
  const callCount = Math.max(10, Math.ceil(ROUND_NS / Math.max(...acts.map((act) => nsPerCall(act, 200)))));
  for (let round = 0; round < ROUND_COUNT; round++) {
    for (const [i, act] of acts.entries()) rounds[i]?.push(nsPerCall(act, callCount));
  }
  return rounds.map((times) => times.sort((a, b) => a - b)[ROUND_COUNT >> 1] ?? Number.NaN);
}

function line(name: string, bareNs = Number.NaN, oursNs = Number.NaN): string {
  return `${name.padEnd(8)} JSON ${bareNs.toFixed(0).padStart(7)} ns   codec ${oursNs.toFixed(0).padStart(7)} ns   ${(oursNs / bareNs).toFixed(2)}x`;
}

for (const [name, value] of Object.entries(shapes)) {
  const text = jsonCodec.encode(value, at);
  const json: unknown = JSON.parse(text);
  console.log(`${name} (${text.length} characters)`);
  console.log(
    `  ${line(
      "encode",
      ...medians(
        () => JSON.stringify(json),
        () => jsonCodec.encode(value, at),
      ),
    )}`,
  );
  console.log(
    `  ${line(
      "decode",
      ...medians(
        () => JSON.parse(text),
        () => jsonCodec.decode(text, at),
      ),
    )}`,
  );
}
if (sink === undefined) console.log("nothing was measured");
