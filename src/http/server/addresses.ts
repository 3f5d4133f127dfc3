/**
 * The address of a client, and how many requests without a valid API key may come from there: guesses of keys and of signal tokens.
 *
 * The address is that of the connection. What `X-Forwarded-For` says is believed only of proxies that the operator named, from the last entry
 * backwards, up to the first that is not such a proxy. Requests are counted by address of IPv4, also where it is written as IPv6, and by the first 64
 * bits of an address of IPv6, because one client has all addresses of such a network. The counts are in the memory of this process: they must cost the
 * store nothing.
 */

import { BlockList, isIP } from "node:net";
import type { Clock } from "../../kernel/ports.ts";
import { mappedIpv4, parseAddress, parseRanges } from "../../task/target.ts";
import { type Problem, tooMany } from "./problem.ts";

interface NodeEnv {
  readonly incoming?: { readonly socket?: { readonly remoteAddress?: string | undefined } | undefined } | undefined;
}

/** Addresses and networks of proxies: "10.0.0.1", "10.0.0.0/8". Throws `invalid_argument`. */
export function proxyList(proxies: readonly string[]): BlockList {
  parseRanges(proxies, "a trusted proxy");
  const list = new BlockList();
  for (const proxy of proxies) {
    const [address = "", bits] = proxy.split("/");
    const isIPv4 = isIP(address) === 4;
    list.addSubnet(address, Number(bits ?? (isIPv4 ? 32 : 128)), isIPv4 ? "ipv4" : "ipv6");
  }
  return list;
}

const plain = (address: string): string => mappedIpv4(address) ?? address;

/** The address of the client of a request; empty where the app does not know. */
export function addressOf(request: Request, env: unknown, proxies: BlockList): string {
  const { incoming } = (env ?? {}) as NodeEnv;
  let address = plain(incoming?.socket?.remoteAddress ?? "");
  // Of what strangers send nothing is looked at.
  if (!isTrusted(address, proxies)) return address;
  const forwarded = (request.headers.get("x-forwarded-for") ?? "").split(",");
  while (isTrusted(address, proxies)) {
    const before = plain(forwarded.pop()?.trim() ?? "");
    if (isIP(before) === 0) break;
    address = before;
  }
  return address;
}

function isTrusted(address: string, proxies: BlockList): boolean {
  const family = isIP(address);
  return family !== 0 && proxies.check(address, family === 4 ? "ipv4" : "ipv6");
}

/** What requests from this address are counted by. */
export function senderOf(address: string): string {
  // The zone is a name of this machine for the link.
  const bytes = parseAddress(plain(address).replace(/%.*$/, ""));
  return bytes?.length === 16 ? `${Buffer.from(bytes.slice(0, 8)).toString("hex")}/64` : plain(address);
}

/** How many senders are remembered; the one that was quiet for longest is forgotten. */
const MOST = 10_000;

/** Counts requests without a valid key. */
export class Strangers {
  readonly #clock: Clock;
  readonly #max: number;
  readonly #perMs: number;
  readonly #of = new Map<string, { readonly tokens: number; readonly atMs: number }>();

  constructor(clock: Clock, { max, perMs }: { readonly max: number; readonly perMs: number }) {
    this.#clock = clock;
    this.#max = max;
    this.#perMs = perMs;
  }

  /** Counts a request. Throws `rate_limited` where too many came from there. */
  count(address: string): void {
    const sender = senderOf(address);
    const nowMs = this.#clock.nowMs();
    const tokens = this.#tokens(sender, nowMs);
    this.#of.delete(sender);
    // A request that is refused takes nothing, so that one that comes too often is let through as often as may be.
    this.#of.set(sender, { tokens: tokens < 1 ? tokens : tokens - 1, atMs: nowMs });
    const [oldest] = this.#of.keys();
    if (oldest !== undefined && this.#of.size > MOST) this.#of.delete(oldest);
    if (tokens < 1) throw this.#refusal(tokens);
  }

  /** The refusal of a request that is a guess, if too many came from there; undefined if it may be one. Counts nothing. */
  refusal(address: string): Problem | undefined {
    const tokens = this.#tokens(senderOf(address), this.#clock.nowMs());
    return tokens < 1 ? this.#refusal(tokens) : undefined;
  }

  #tokens(sender: string, nowMs: number): number {
    const last = this.#of.get(sender) ?? { tokens: this.#max, atMs: nowMs };
    return Math.min(this.#max, last.tokens + ((nowMs - last.atMs) / this.#perMs) * this.#max);
  }

  #refusal(tokens: number): Problem {
    const retryAfterMs = Math.ceil(((1 - tokens) / this.#max) * this.#perMs);
    return tooMany("This address has sent too many requests without a valid API key", retryAfterMs);
  }
}
