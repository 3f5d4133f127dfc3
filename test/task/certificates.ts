/**
 * Certificates for tests, made on the spot: an authority, and what it or another one signs. X.509 version 3 in DER, as far as TLS looks at it.
 *
 * They are written by hand because Node cannot make certificates, and a program that can is not on every machine.
 */

import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { isIP } from "node:net";

export interface Certificate {
  /** PEM. */
  readonly cert: string;
  readonly key: string;
}

export interface Authority extends Certificate {
  /** Signs a certificate for names and addresses. Default: it is valid from yesterday to tomorrow. */
  issue(names: readonly string[], validity?: Validity): Certificate;
}

export interface Validity {
  readonly from?: Date;
  readonly until?: Date;
}

const DAY_MS = 24 * 60 * 60_000;
export const daysFromNow = (days: number): Date => new Date(Date.now() + days * DAY_MS);

/** Identifiers of algorithms and fields, in DER. */
const OID = {
  commonName: [0x55, 0x04, 0x03],
  subjectAltName: [0x55, 0x1d, 0x11],
  basicConstraints: [0x55, 0x1d, 0x13],
  ecdsaWithSha256: [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
} as const;

const TAG = {
  boolean: 1,
  integer: 2,
  bits: 3,
  octets: 4,
  oid: 6,
  utf8: 12,
  utcTime: 23,
  sequence: 48,
  set: 49,
} as const;
const TRUE = Buffer.from([0xff]);

function der(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

const sequence = (...parts: readonly Uint8Array[]): Buffer => der(TAG.sequence, ...parts);
const oid = (bytes: readonly number[]): Buffer => der(TAG.oid, Buffer.from(bytes));
const nameOf = (text: string): Buffer =>
  sequence(der(TAG.set, sequence(oid(OID.commonName), der(TAG.utf8, Buffer.from(text)))));
/** YYMMDDhhmmssZ */
const time = (at: Date): Buffer =>
  der(TAG.utcTime, Buffer.from(`${at.toISOString().replace(/\D/g, "").slice(2, 14)}Z`));
const extension = (id: readonly number[], value: Buffer): Buffer => sequence(oid(id), der(TAG.octets, value));
/** A name, or an address of IPv4. */
const altName = (name: string): Buffer =>
  isIP(name) === 0 ? der(0x82, Buffer.from(name)) : der(0x87, Buffer.from(name.split(".").map(Number)));

interface Made {
  readonly subject: string;
  readonly issuer: string;
  readonly publicKey: KeyObject;
  readonly signedWith: KeyObject;
  readonly validity: Validity;
  readonly extensions: readonly Buffer[];
}

let serial = 0;

function certificate({ subject, issuer, publicKey, signedWith, validity, extensions }: Made): string {
  const { from = daysFromNow(-1), until = daysFromNow(1) } = validity;
  const algorithm = sequence(oid(OID.ecdsaWithSha256));
  serial += 1;
  const content = sequence(
    der(0xa0, der(TAG.integer, Buffer.from([2]))),
    der(TAG.integer, Buffer.from([1, serial])),
    algorithm,
    nameOf(issuer),
    sequence(time(from), time(until)),
    nameOf(subject),
    publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, sequence(...extensions)),
  );
  const signature = der(TAG.bits, Buffer.from([0]), sign("sha256", content, signedWith));
  const base64 = sequence(content, algorithm, signature).toString("base64");
  return `-----BEGIN CERTIFICATE-----\n${base64.replace(/.{1,64}/g, "$&\n")}-----END CERTIFICATE-----\n`;
}

const pemOf = (key: KeyObject): string => String(key.export({ type: "pkcs8", format: "pem" }));

export function authority(name: string): Authority {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const isAuthority = extension(OID.basicConstraints, sequence(der(TAG.boolean, TRUE)));
  const own = { issuer: name, signedWith: privateKey };
  const cert = certificate({ ...own, subject: name, publicKey, validity: {}, extensions: [isAuthority] });
  return {
    cert,
    key: pemOf(privateKey),
    issue(names, validity = {}) {
      const keys = generateKeyPairSync("ec", { namedCurve: "P-256" });
      const extensions = [extension(OID.subjectAltName, sequence(...names.map(altName)))];
      const subject = `a server of ${name}`;
      const made = certificate({ ...own, subject, publicKey: keys.publicKey, validity, extensions });
      return { cert: made, key: pemOf(keys.privateKey) };
    },
  };
}
