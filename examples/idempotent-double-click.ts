// A button is clicked twice. The order and the response are one commit, so there is one order, and a repeated request gets its response.

import { IdempotencyInProgressError, open } from "pawl";

await using pawl = await open("shop.db");
const stock = pawl.slot<number>("stock/teapot", { initial: 10 });

/** The page generates the key when it is shown, and sends it with every click. */
async function order(key: string): Promise<string> {
  try {
    const { value, replayed } = await pawl.idempotent(key, { scope: "ann" }, ({ commit }) =>
      commit((tx) => {
        const { value: left } = tx.slot(stock).update((pieces) => pieces - 1);
        return { item: "teapot", left };
      }),
    );
    return `ordered a ${value.item}, ${value.left} are left${replayed ? " (as before)" : ""}`;
  } catch (error) {
    if (error instanceof IdempotencyInProgressError) return "another click is under way";
    throw error;
  }
}

console.log(await Promise.all([order("page-1"), order("page-1")]));
console.log("the page is loaded again:", await order("page-1"));
console.log("another page:", await order("page-2"));
console.log((await stock.get()).value);

// Output:
// [ 'ordered a teapot, 9 are left', 'another click is under way' ]
// the page is loaded again: ordered a teapot, 9 are left (as before)
// another page: ordered a teapot, 8 are left
// 8
