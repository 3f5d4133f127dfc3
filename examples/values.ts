// A value that can be stored is read as it was written. One that cannot is refused, with the path to the problem, before anything is written.

import { InvalidValueError, open } from "pawl";

await using pawl = await open("values.db");
const order = pawl.slot("order");

await order.set({
  placed: new Date(0),
  total: 12_345_678_901_234_567_890n,
  tags: new Set(["new"]),
  stock: new Map([["xl", 3]]),
  note: undefined,
  photo: new Uint8Array([1, 2, 3]),
});
console.log((await order.get()).value);

try {
  await order.set({ items: [{ price: 1 }, { price: () => 2 }] });
} catch (error) {
  if (!(error instanceof InvalidValueError)) throw error;
  console.log(error.code, error.data.path);
}

// Output:
// {
//   placed: 1970-01-01T00:00:00.000Z,
//   total: 12345678901234567890n,
//   tags: Set(1) { 'new' },
//   stock: Map(1) { 'xl' => 3 },
//   note: undefined,
//   photo: Uint8Array(3) [ 1, 2, 3 ]
// }
// invalid_value $.items[1].price
