/**
 * Where a task may send its call, as rules: which URLs are targets at all, and which addresses may be called.
 *
 * A URL is looked at after it was parsed, so `127.1`, `0x7f.1` and their like are the addresses that they stand for. A name is
 * resolved once for each attempt, and every one of its addresses must be allowed: a result with good and bad addresses is refused as a whole. An address
 * that has another one inside it, as those of IPv4 in IPv6, is judged by that one.
 *
 * Private addresses, and ports of databases and their like, are allowed only where the operator lists them (`allow` and `allowPorts` of `httpTasks`).
 */

import { checkList } from "../kernel/check.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { InvalidTargetError } from "./errors.ts";

/** A range of addresses. */
export interface Range {
  readonly bytes: readonly number[];
  readonly bits: number;
}

/** What the operator of a process lets its calls reach beyond public addresses. */
export interface Allowed {
  readonly allow: readonly Range[];
  readonly allowPorts: ReadonlySet<number>;
}

/** Ports of other protocols, to which a request could be misread as a command: those that browsers refuse, too. */
const REFUSED_PORTS: ReadonlySet<number> = new Set([
  0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110,
  111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532,
  540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061,
  6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
]);

/**
 * What listens on these ports trusts its network, as databases, caches and brokers do: a call could read it, change it, or be misread as its commands. Browsers do
 * not refuse them, and a web server may have one of them, so an operator can allow it.
 */
const GUARDED_PORTS: ReadonlyMap<number, string> = new Map(
  (
    [
      ["Kerberos", [88]],
      ["SMB", [445]],
      ["rsync", [873]],
      ["SOCKS", [1080]],
      ["Java RMI", [1099]],
      ["SQL Server", [1433, 1434]],
      ["Oracle Database", [1521, 1522, 2483, 2484]],
      ["MQTT", [1883, 8883]],
      ["ZooKeeper", [2181]],
      ["Docker", [2375, 2376]],
      ["etcd", [2379, 2380]],
      ["SMTP", [2525]],
      ["Firebird", [3050]],
      ["iSCSI", [3260]],
      ["LDAP", [3268, 3269]],
      ["MySQL", [3306, 33060]],
      ["remote desktops", [3389, 5900, 5901]],
      ["NATS", [4222]],
      ["XMPP", [5222, 5269]],
      ["PostgreSQL", [5432, 5433, 6432]],
      ["AMQP", [5671, 5672]],
      ["CouchDB", [5984, 6984]],
      ["Windows Remote Management", [5985, 5986]],
      ["Redis", [6379, 6380, 16379, 26379]],
      ["Cassandra", [7199, 9042, 9142, 9160]],
      ["Neo4j", [7687]],
      ["Kafka", [9092]],
      ["Elasticsearch", [9200, 9300]],
      ["memcached", [11211]],
      ["CockroachDB", [26257]],
      ["MongoDB", [27017, 27018, 27019, 27020]],
      ["RethinkDB", [28015, 29015]],
      ["Db2", [50000]],
      ["STOMP", [61613]],
      ["ActiveMQ", [61616]],
    ] as const
  ).flatMap(([protocol, ports]) => ports.map((port) => [port, protocol])),
);

const LONGEST_URL = 8192;

/** The URL of a target. Throws `invalid_target`. */
export function checkTarget(given: unknown, what = "the targetUrl"): URL {
  const text = given instanceof URL ? given.href : given;
  if (typeof text !== "string") throw new InvalidTargetError(what, "must be a URL");
  if (text.length > LONGEST_URL)
    throw new InvalidTargetError(what, `must not be longer than ${LONGEST_URL} characters`);
  // The parser would remove them silently.
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
  if (/[\u0000-\u0020\u007f]/.test(text))
    throw new InvalidTargetError(what, "must not contain spaces or control characters");
  if (!URL.canParse(text)) throw new InvalidTargetError(what, "must be a URL, as in https://example.com/hook");
  const url = new URL(text);
  if (url.protocol !== "http:" && url.protocol !== "https:")
    throw new InvalidTargetError(what, `must begin with http:// or https://, not ${url.protocol}`);
  if (url.username !== "" || url.password !== "")
    throw new InvalidTargetError(what, "must not contain a user or a password: send them in a header");
  if (url.port !== "" && REFUSED_PORTS.has(Number(url.port)))
    throw new InvalidTargetError(what, `must not name port ${url.port}, which is that of another protocol`);
  url.hash = "";
  return url;
}

/** What a URL names, for a message: an address or a name. */
export const hostOf = (url: URL): string => literalOf(url) ?? url.hostname;

/** The address that a URL names itself, without a name to resolve; undefined for a name. */
export function literalOf({ hostname }: URL): string | undefined {
  if (hostname.startsWith("[")) return hostname.slice(1, -1);
  return parseIpv4(hostname) === undefined ? undefined : hostname;
}

/** Why a call to this URL is refused, as far as that is known before its name is resolved; undefined if it may be allowed. */
export function refusalOfUrl(url: URL, { allow, allowPorts }: Allowed): string | undefined {
  const port = Number(url.port);
  const protocol = allowPorts.has(port) ? undefined : GUARDED_PORTS.get(port);
  if (protocol !== undefined) return `is on port ${port}, which is that of ${protocol}`;
  const literal = literalOf(url);
  return literal === undefined ? refusalOfName(url.hostname, allow) : refusalOf(literal, allow);
}

/** Names that stand for this machine, as RFC 6761 says. */
const LOCAL_NAME = /^(?:.+\.)?localhost\.?$/i;

/** Why a call to this name is refused, whatever it resolves to; undefined if that depends on it. */
function refusalOfName(hostname: string, allow: readonly Range[]): string | undefined {
  if (!LOCAL_NAME.test(hostname)) return undefined;
  const isPossible = allow.some((range) => LOOPBACK.some((one) => overlap(one, range)));
  return isPossible ? undefined : "is of this machine";
}

function overlap(a: Range, b: Range): boolean {
  return a.bits < b.bits ? isWithin(b.bytes, a) : isWithin(a.bytes, b);
}

/** Why a call to this address is refused; undefined if it is allowed. */
export function refusalOf(address: string, allow: readonly Range[]): string | undefined {
  const bytes = parseAddress(address);
  if (bytes === undefined) return "is no address";
  return refusalOfBytes(bytes, allow);
}

function refusalOfBytes(bytes: readonly number[], allow: readonly Range[]): string | undefined {
  if (allow.some((range) => isWithin(bytes, range))) return undefined;
  if (bytes.length === 4) return REFUSED_IPV4.find(([range]) => isWithin(bytes, range))?.[1];
  if (isWithin(bytes, MAPPED)) return refusalOfBytes(bytes.slice(12), allow);
  if (isWithin(bytes, NAT64)) return refusalOfBytes(bytes.slice(12), allow);
  const refused = REFUSED_IPV6.find(([range]) => isWithin(bytes, range))?.[1];
  if (refused !== undefined) return refused;
  if (!isWithin(bytes, GLOBAL)) return "is not a public address";
  return isIsatap(bytes) ? refusalOfBytes(bytes.slice(12), allow) : undefined;
}

/** An interface of ISATAP (RFC 5214) in any network: 0:5efe or 200:5efe, whatever the two bits of scope are, and then an IPv4 address. */
function isIsatap(bytes: readonly number[]): boolean {
  return ((bytes[8] ?? 0) & 0xfc) === 0 && bytes[9] === 0 && bytes[10] === 0x5e && bytes[11] === 0xfe;
}

/** Ranges as an operator lists them: "10.0.0.0/8", "127.0.0.1", "fd00::/8". */
export function parseRanges(given: readonly string[], what: string): readonly Range[] {
  return given.map((text) => {
    const range = parseRange(text);
    if (range === undefined)
      throw new InvalidArgumentError(
        what,
        `must be ranges of addresses such as "10.0.0.0/8", or "127.0.0.1" and "::1" for this machine, not ${JSON.stringify(text)}`,
      );
    return range;
  });
}

/** Ports as an operator lists them. */
export function parsePorts(given: readonly number[], what: string): ReadonlySet<number> {
  checkList(given, what);
  for (const port of given) {
    if (!Number.isInteger(port) || port < 1 || port > 65_535)
      throw new InvalidArgumentError(what, `must be whole numbers from 1 to 65535, not ${String(port)}`);
    if (REFUSED_PORTS.has(port))
      throw new InvalidArgumentError(
        what,
        `must not have ${port}: no task may call this port, which browsers refuse, too`,
      );
  }
  return new Set(given);
}

function parseRange(text: unknown): Range | undefined {
  if (typeof text !== "string") return undefined;
  const [address = "", bits, ...rest] = text.split("/");
  const bytes = parseAddress(address);
  if (bytes === undefined || rest.length > 0) return undefined;
  const most = bytes.length * 8;
  if (bits === undefined) return { bytes, bits: most };
  if (!/^\d{1,3}$/.test(bits) || Number(bits) > most) return undefined;
  const range = { bytes, bits: Number(bits) };
  // 10.0.0.1/8 is more likely a mistake than a way to write 10.0.0.0/8.
  return bytes.every((byte, i) => (byte & ~maskOf(range.bits, i)) === 0) ? range : undefined;
}

function isWithin(bytes: readonly number[], range: Range): boolean {
  if (bytes.length !== range.bytes.length) return false;
  // A loop: each call of a task looks at some twenty ranges.
  for (let i = 0; i < bytes.length; i++)
    if ((((bytes[i] ?? 0) ^ (range.bytes[i] ?? 0)) & maskOf(range.bits, i)) !== 0) return false;
  return true;
}

/** The bits of the byte at `index` that belong to the first `bits`. */
function maskOf(bits: number, index: number): number {
  const own = Math.min(8, Math.max(0, bits - 8 * index));
  return (0xff << (8 - own)) & 0xff;
}

/** The bytes of an address: 4 or 16; undefined if it is none. One with a zone ("%eth0") is none: it is of one link. */
export function parseAddress(text: string): readonly number[] | undefined {
  return text.includes(":") ? parseIpv6(text) : parseIpv4(text);
}

const IPV4 = /^(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})$/;

function parseIpv4(text: string): readonly number[] | undefined {
  // Most hosts are names.
  const parts = IPV4.exec(text);
  if (parts === null) return undefined;
  const bytes = parts.slice(1).map(Number);
  return bytes.every((byte) => byte <= 255) ? bytes : undefined;
}

function parseIpv6(text: string): readonly number[] | undefined {
  const halves = text.split("::");
  if (halves.length > 2) return undefined;
  const [left, right] = halves.map((half, i) => (half === "" ? [] : groupsOf(half, i === halves.length - 1)));
  if (left === undefined) return undefined;
  if (halves.length === 1) return left.length === 16 ? left : undefined;
  if (right === undefined) return undefined;
  const missing = 16 - left.length - right.length;
  return missing < 2 ? undefined : [...left, ...new Array<number>(missing).fill(0), ...right];
}

/** The bytes of some groups of an IPv6 address. The last group of the whole address may be an IPv4 address. */
function groupsOf(text: string, isEnd: boolean): readonly number[] | undefined {
  const bytes: number[] = [];
  const groups = text.split(":");
  for (const [i, group] of groups.entries()) {
    if (group.includes(".")) {
      const last = isEnd && i === groups.length - 1 ? parseIpv4(group) : undefined;
      if (last === undefined) return undefined;
      bytes.push(...last);
    } else {
      if (!/^[0-9a-f]{1,4}$/i.test(group)) return undefined;
      const value = Number.parseInt(group, 16);
      bytes.push(value >> 8, value & 0xff);
    }
  }
  return bytes.length <= 16 ? bytes : undefined;
}

function known(text: string): Range {
  const range = parseRange(text);
  if (range === undefined) throw new Error(`no range: ${text}`);
  return range;
}

const REFUSED_IPV4: readonly (readonly [Range, string])[] = (
  [
    ["0.0.0.0/8", "is of this machine"],
    ["10.0.0.0/8", "is private"],
    ["100.64.0.0/10", "is of a carrier's NAT"],
    ["127.0.0.0/8", "is of this machine"],
    ["168.63.129.16/32", "is of a cloud's metadata service"],
    ["169.254.0.0/16", "is link-local"],
    ["172.16.0.0/12", "is private"],
    ["192.0.0.0/24", "is reserved"],
    ["192.0.2.0/24", "is for documentation"],
    ["192.31.196.0/24", "is reserved"],
    ["192.52.193.0/24", "is reserved"],
    ["192.88.99.0/24", "is reserved"],
    ["192.168.0.0/16", "is private"],
    ["192.175.48.0/24", "is reserved"],
    ["198.18.0.0/15", "is for benchmarks"],
    ["198.51.100.0/24", "is for documentation"],
    ["203.0.113.0/24", "is for documentation"],
    ["224.0.0.0/4", "is a multicast address"],
    ["240.0.0.0/4", "is reserved"],
  ] as const
).map(([text, why]) => [known(text), why]);

const LOOPBACK: readonly Range[] = [known("127.0.0.0/8"), known("::1/128")];

/** Addresses of IPv4 as IPv6 writes them, and as a translator to IPv4 has them. */
const MAPPED = known("::ffff:0:0/96");
const NAT64 = known("64:ff9b::/96");

/** The address of IPv4 that is written as IPv6 here, such as "::ffff:192.0.2.1"; undefined for all others. */
export function mappedIpv4(address: string): string | undefined {
  const bytes = parseAddress(address);
  return bytes !== undefined && isWithin(bytes, MAPPED) ? bytes.slice(12).join(".") : undefined;
}

/** All public addresses, and what is refused of them. */
const GLOBAL = known("2000::/3");
const REFUSED_IPV6: readonly (readonly [Range, string])[] = (
  [
    ["::1/128", "is of this machine"],
    ["2001::/23", "is reserved"],
    ["2001:db8::/32", "is for documentation"],
    ["2002::/16", "has an address of IPv4 inside it (6to4)"],
    ["3fff::/20", "is for documentation"],
    ["fc00::/7", "is private"],
    ["fe80::/10", "is link-local"],
    ["ff00::/8", "is a multicast address"],
  ] as const
).map(([text, why]) => [known(text), why]);
