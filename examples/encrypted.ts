// Values encrypted at rest: a transform around the codec, bound to the address of the value, so that a ciphertext that was moved to
// another key is refused.

// biome-ignore lint/style/noRestrictedImports: an IV must be random, and a codec is no decision.
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";
import { DatabaseSync } from "node:sqlite";
import { jsonCodec, open, type Place, transformed } from "pawl";

const key = Buffer.from(hkdfSync("sha256", "a secret from your key store", "", "pawl", 32));
const placeOf = (at: Place) => JSON.stringify([at.namespace, at.space, at.key]);

const codec = transformed(jsonCodec, {
  name: "aes",
  seal(text, at) {
    const iv = randomBytes(12);
    const cipher = createCipheriv("aes-256-gcm", key, iv).setAAD(Buffer.from(placeOf(at)));
    const sealed = Buffer.concat([cipher.update(text, "utf8"), cipher.final()]);
    return Buffer.concat([iv, cipher.getAuthTag(), sealed]).toString("base64");
  },
  open(text, at) {
    const bytes = Buffer.from(text, "base64");
    const decipher = createDecipheriv("aes-256-gcm", key, bytes.subarray(0, 12), { authTagLength: 16 });
    decipher.setAAD(Buffer.from(placeOf(at))).setAuthTag(bytes.subarray(12, 28));
    return Buffer.concat([decipher.update(bytes.subarray(28)), decipher.final()]).toString("utf8");
  },
});

const pawl = await open("secret.db", { codec });
await pawl.slot("card").set({ number: "4242" });
console.log((await pawl.slot("card").get()).value);
await pawl.close();

const stored = new DatabaseSync("secret.db").prepare("select value from pawl_now").get();
console.log(String(stored?.["value"]).slice(0, 5), String(stored?.["value"]).includes("4242"));

// Output:
// { number: '4242' }
// ~aes: false
