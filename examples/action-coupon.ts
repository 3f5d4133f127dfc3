// A thousand clients redeem one coupon at the same moment, and one of them gets it. Its reply is lost, so it asks again with its own key, and
// gets the same result.

import { open } from "pawl";

await using pawl = await open("coupons.db", { actions: { pepper: "a secret from your key store" } });
await pawl.actions.create({ id: "WELCOME10", expiresIn: "30 days" });

const redeem = (client: number) =>
  pawl.actions.tryConsume("WELCOME10", { by: `client ${client}`, consumerKey: `secret of client ${client}` });

const answers = await Promise.all(Array.from({ length: 1000 }, (_, client) => redeem(client)));
const winner = answers.findIndex(({ ok }) => ok);
console.log(answers.filter(({ ok }) => ok).length, "of", answers.length);

const loser = answers.find((answer) => !answer.ok);
console.log(loser?.ok === false && loser.code === "already_used" && loser.by === `client ${winner}`);

const again = await redeem(winner);
console.log(again.ok && again.replayed);

// Output:
// 1 of 1000
// true
// true
