// A login link. A mail scanner that opens it first does not use it up, because `get` changes nothing; the button on the page does. The link
// is 256 random bits, of which the database has only a hash, and the session that it opens is encrypted until then.

import { hkdfSync } from "node:crypto";
import { open } from "pawl";

const key = new Uint8Array(hkdfSync("sha256", "a secret from your key store", "", "actions", 32));
await using pawl = await open("logins.db", { actions: { keys: { current: "2030", ring: { "2030": key } } } });

const { id } = await pawl.actions.create({ owner: "ann", expiresIn: "15 minutes", payload: { user: "ann" } });
const link = `https://example.com/login/${id}`;

/** GET /login/:id shows a page with a button. */
const show = async (url: string) => (await pawl.actions.get(url.slice(url.lastIndexOf("/") + 1)))?.state ?? "unknown";

/** POST /login/:id, from the button. */
const logIn = (url: string) => pawl.actions.consume<{ user: string }>(url.slice(url.lastIndexOf("/") + 1));

console.log("the scanner sees a link that is", await show(link));
console.log("and so does ann:", await show(link));
console.log((await logIn(link)).payload);
console.log("now it is", await show(link));
await logIn(link).catch((error: { code: string }) => console.log(error.code));
console.log("a link that was made up is", await show("https://example.com/login/guess"));

// Output:
// the scanner sees a link that is active
// and so does ann: active
// { user: 'ann' }
// now it is consumed
// already_used
// a link that was made up is unknown
