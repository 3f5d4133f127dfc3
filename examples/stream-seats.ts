// Seats of one show: two hundred callers book at the same moment, on one stream. Their commands run one after another in a few commits, so there
// is no retry loop, and no seat is sold twice. A list of all bookings is kept up to date by reading all streams from where the last reading ended.

import { aggregate, event, open } from "pawl";

const Booked = event<{ seat: number; by: string }>("Booked");

const show = aggregate("show", {
  initial: { free: 50 },
  on: [[Booked, ({ free }) => ({ free: free - 1 })]],
  commands: {
    book: ({ free }, by: string, { emit, refuse }) => {
      if (free === 0) refuse("sold_out");
      emit(Booked({ seat: free, by }));
      return free;
    },
  },
});

await using pawl = await open("seats.db");
const tonight = pawl.aggregate(show, "show-2030-05-01");
const booked = await Promise.all(Array.from({ length: 200 }, (_, n) => tonight.tryExecute("book", `guest-${n}`)));
const seats = booked.flatMap((one) => (one.ok ? [one.output] : []));
console.log(
  `${seats.length} seats sold, ${new Set(seats).size} of them different, ${200 - seats.length} guests refused`,
);

// The cursor is where to continue: store it with what was made of the events.
const bySeat = new Map<number, string>();
let cursor: string | undefined;
async function update(): Promise<number> {
  const reading = pawl.events.read({ after: cursor, events: [Booked], prefix: "show-" });
  let count = 0;
  for await (const { data } of reading) {
    bySeat.set(data.seat, data.by);
    count += 1;
  }
  cursor = reading.cursor;
  return count;
}
console.log("read:", await update(), "then:", await update(), "seat 50:", bySeat.get(50));
await pawl.aggregate(show, "show-2030-05-02").execute("book", "ann");
console.log("read:", await update());

// Output:
// 50 seats sold, 50 of them different, 150 guests refused
// read: 50 then: 0 seat 50: guest-0
// read: 1
