/**
 * A process that takes orders, a few concurrently, until it is killed: for `kills.ts`.
 *
 * An order is a row of `orders` and a marker slot, and one less in stock, in one transaction. It prints "begun", "acked" and "dies" with
 * the id, each before it does anything further, so that what it did not print has not happened. It kills itself with SIGKILL at the moment
 * and in the order that it was given.
 */

import { writeSync } from "node:fs";
import { setImmediate } from "node:timers/promises";
import { open, type Tx } from "../../../src/index.ts";
import type { Moment, Way } from "../kills.ts";
import { connectShop } from "../libraries/library.ts";

const [, , way, where, name, moment, nthText] = process.argv as [string, string, Way, string, string, Moment, string];
const nth = Number(nthText);
const AT_ONCE = 3;
const STOCKS = 4;

const say = (line: string) => writeSync(1, `${line}\n`);
const die = () => process.kill(process.pid, "SIGKILL");

const pawl = await open(where);
const isPawls = way === "transact.sql on PostgreSQL" || way === "transact.sql on SQLite";
const isApart = way === "pg and Pawl apart";
const shop = isPawls ? undefined : await connectShop(isApart ? "pg" : way, where);
const insert = `insert into orders (id, item) values (${way === "transact.sql on SQLite" ? "?, ?" : "$1, $2"})`;

/** One order. `last` is called when everything but the commit is done. */
function order(id: string, number: number, last: () => void): Promise<void> {
  const marker = pawl.slot<string>(`order/${id}`);
  const stock = pawl.slot<number>(`stock/${number % STOCKS}`, { initial: 0 });
  const decide = (tx: Tx) => {
    tx.slot(marker).set(id, { expectedVersion: 0 });
    tx.slot(stock).update((n) => n - 1);
  };
  if (shop !== undefined)
    return shop.order(id, async (executor) => {
      if (isApart) await pawl.transact(decide, { touches: [marker, stock] });
      else await pawl.within(executor, decide, { touches: [marker, stock] });
      last();
    });
  return pawl.transact.sql(async (sql, tx) => {
    await sql.query(insert, [id, "teapot"]);
    await tx(decide, { touches: [marker, stock] });
    last();
  });
}

let count = 0;
async function work(): Promise<void> {
  for (;;) {
    const number = count++;
    const id = `${name}-${number}`;
    const isLast = number === nth;
    const dies = () => {
      say(`dies ${id}`);
      die();
    };
    say(`begun ${id}`);
    await order(id, number, () => {
      if (isLast && moment === "before COMMIT") dies();
      // By then, what follows has been written to the socket, and its answer has not been read.
      if (isLast && moment === "COMMIT sent") void setImmediate().then(dies);
    });
    if (isLast && moment === "after COMMIT") dies();
    say(`acked ${id}`);
    // Where everything is synchronous, nothing else would ever get its turn.
    await setImmediate();
  }
}

say("ready");
await Promise.all(Array.from({ length: AT_ONCE }, work));
