/**
 * One of several processes whose clients all want the same one-time actions: for `processes.long.test.ts`.
 *
 * It reads a line of JSON and replies with one. "take" makes each of its clients ask for each of these actions, each in an order of
 * its own, and prints their results, or dies before it has; "ask" makes the clients named ask again.
 */

import { createInterface } from "node:readline";
import type { Asked, Heard, Wish } from "../actions.ts";
import { CLIENTS_EACH, nameOf, OPTIONS, secretOf } from "../actions.ts";
import { openOne } from "../shop.ts";

const [where = "", number = ""] = process.argv.slice(2);
const pawl = await openOne(where, { actions: OPTIONS });
const clients = Array.from({ length: CLIENTS_EACH }, (_, client) => nameOf(Number(number), client));

async function ask(action: string, client: string): Promise<Heard> {
  const answer = await pawl.actions.tryConsume(action, { by: client, consumerKey: secretOf(client) });
  if (answer.ok)
    return {
      action,
      client,
      ok: true,
      atMs: answer.consumedAt.getTime(),
      replayed: answer.replayed,
      payload: answer.payload,
    };
  return { action, client, ok: false, code: answer.code, by: answer.code === "already_used" ? answer.by : null };
}

/** Every client begins with another action, so that none of them leads the way for all. */
async function take(actions: readonly string[], diesAfter = Number.POSITIVE_INFINITY): Promise<Heard[]> {
  const heard: Heard[] = [];
  let won = 0;
  const go = async (client: string): Promise<void> => {
    const first = Math.floor(Math.random() * actions.length);
    for (const [i] of actions.entries()) {
      const answer = await ask(actions[(first + i) % actions.length] ?? "", client);
      heard.push(answer);
      if (answer.ok) won += 1;
      if (won >= diesAfter) process.kill(process.pid, "SIGKILL");
    }
  };
  await Promise.all(clients.map(go));
  if (diesAfter !== Number.POSITIVE_INFINITY) process.kill(process.pid, "SIGKILL");
  return heard;
}

const askAgain = (asked: readonly Asked[]): Promise<Heard[]> =>
  Promise.all(asked.map(({ action, client }) => ask(action, client)));

process.stdout.write("ready\n");
for await (const line of createInterface({ input: process.stdin })) {
  const wish: Wish = JSON.parse(line);
  const heard = "take" in wish ? await take(wish.take, wish.diesAfter) : await askAgain(wish.ask);
  process.stdout.write(`${JSON.stringify(heard)}\n`);
}
await pawl.close();
