/** Where a task may go: after parsing, each form of an address is what it stands for, and none but public ones are allowed. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { InvalidTargetError } from "./errors.ts";
import { checkTarget, literalOf, parseAddress, parsePorts, parseRanges, refusalOf, refusalOfUrl } from "./target.ts";

const codeOf = (run: () => unknown): string => {
  try {
    run();
    return "ok";
  } catch (error) {
    return (error as { code?: string }).code ?? String(error);
  }
};

/** What becomes of a URL before any packet is sent. */
const verdictOn = (url: string, allow: readonly string[] = [], ports: readonly number[] = []): string => {
  const parsed = ((): URL | string => {
    try {
      return checkTarget(url);
    } catch (error) {
      return (error as InvalidTargetError).code;
    }
  })();
  if (typeof parsed === "string") return parsed;
  const allowed = { allow: parseRanges(allow, "allow"), allowPorts: parsePorts(ports, "allowPorts") };
  if (refusalOfUrl(parsed, allowed) !== undefined) return "target_forbidden";
  return literalOf(parsed) === undefined ? "to be resolved" : "allowed";
};

const withPort =
  (verdict: string) =>
  (port: number): [string, string] => [`https://example.com:${port}/`, verdict];

describe("a URL", () => {
  test.each<[string, string]>([
    // 44: every way to write 127.0.0.1.
    ["http://127.0.0.1/", "target_forbidden"],
    ["http://127.1/", "target_forbidden"],
    ["http://127.0.1/", "target_forbidden"],
    ["http://0x7f.1/", "target_forbidden"],
    ["http://0x7f000001/", "target_forbidden"],
    ["http://2130706433/", "target_forbidden"],
    ["http://0177.0.0.1/", "target_forbidden"],
    ["http://017700000001/", "target_forbidden"],
    ["http://①②⑦.⓪.⓪.①/", "target_forbidden"],
    ["http://１２７.０.０.１/", "target_forbidden"],
    ["http://127。0。0。1/", "target_forbidden"],
    ["http://%31%32%37.0.0.1/", "target_forbidden"],
    ["http://127.0.0.1./", "target_forbidden"],
    ["http://0/", "target_forbidden"],
    ["http://0.0.0.0/", "target_forbidden"],
    // 45: addresses inside addresses.
    ["http://[::1]/", "target_forbidden"],
    ["http://[::]/", "target_forbidden"],
    ["http://[0:0:0:0:0:0:0:1]/", "target_forbidden"],
    ["http://[::ffff:7f00:1]/", "target_forbidden"],
    ["http://[::ffff:127.0.0.1]/", "target_forbidden"],
    ["http://[64:ff9b::7f00:1]/", "target_forbidden"],
    ["http://[64:ff9b:1::7f00:1]/", "target_forbidden"],
    ["http://[2002:7f00:1::]/", "target_forbidden"],
    ["http://[::127.0.0.1]/", "target_forbidden"],
    ["http://[2001::7f00:1]/", "target_forbidden"],
    // ISATAP: in the network of anybody, and with any two bits of scope.
    ["http://[2606:4700::5efe:127.0.0.1]/", "target_forbidden"],
    ["http://[2606:4700::5efe:a00:1]/", "target_forbidden"],
    ["http://[2606:4700::200:5efe:192.168.1.1]/", "target_forbidden"],
    ["http://[2a00:1:2:3:100:5efe:a9fe:a9fe]/", "target_forbidden"],
    ["http://[2a00:1:2:3:300:5efe:a9fe:a9fe]/", "target_forbidden"],
    ["http://[fe80::5efe:93.184.216.34]/", "target_forbidden"],
    // 47: what is not public.
    ["http://169.254.169.254/latest/meta-data", "target_forbidden"],
    ["http://168.63.129.16/machine?comp=goalstate", "target_forbidden"],
    ["http://[::ffff:168.63.129.16]/", "target_forbidden"],
    ["http://[fe80::1]/", "target_forbidden"],
    ["http://[fd00:ec2::254]/", "target_forbidden"],
    ["http://10.0.0.1/", "target_forbidden"],
    ["http://172.16.0.1/", "target_forbidden"],
    ["http://172.31.255.255/", "target_forbidden"],
    ["http://192.168.1.1/", "target_forbidden"],
    ["http://100.64.0.1/", "target_forbidden"],
    ["http://100.127.255.255/", "target_forbidden"],
    ["http://198.18.0.1/", "target_forbidden"],
    ["http://224.0.0.1/", "target_forbidden"],
    ["http://239.255.255.255/", "target_forbidden"],
    ["http://240.0.0.1/", "target_forbidden"],
    ["http://255.255.255.255/", "target_forbidden"],
    ["http://[ff02::1]/", "target_forbidden"],
    ["http://[2001:db8::1]/", "target_forbidden"],
    ["http://192.0.2.1/", "target_forbidden"],
    // 50: no targets at all.
    ["file:///etc/passwd", "invalid_target"],
    ["ftp://example.com/", "invalid_target"],
    ["gopher://example.com/", "invalid_target"],
    ["data:text/plain,hello", "invalid_target"],
    ["javascript:alert(1)", "invalid_target"],
    ["http://example.com:0/", "invalid_target"],
    ["http://example.com:22/", "invalid_target"],
    ["http://example.com:25/", "invalid_target"],
    ["https://user:pw@example.com/", "invalid_target"],
    ["https://user@example.com/", "invalid_target"],
    ["https://:pw@example.com/", "invalid_target"],
    ["http://", "invalid_target"],
    ["/relative", "invalid_target"],
    ["", "invalid_target"],
    ["http://exa mple.com/", "invalid_target"],
    ["http://example.com/\r\nHost: other", "invalid_target"],
    ["http://[fe80::1%25eth0]/", "invalid_target"],
    ["http://256.256.256.256/", "invalid_target"],
    [`https://example.com/${"a".repeat(8192)}`, "invalid_target"],
    // Ports of what trusts its network, also where the name is still to be resolved.
    ["http://93.184.216.34:5432/", "target_forbidden"],
    ...[445, 1433, 1521, 2375, 2379, 2525, 3306, 3389, 5432, 5672, 6379, 9042, 9092, 9200, 11211, 27017].map(
      withPort("target_forbidden"),
    ),
    // What is fine.
    ["http://168.63.129.15/", "allowed"],
    ["http://168.63.129.17/", "allowed"],
    ["http://[2606:4700::5efe:93.184.216.34]/", "allowed"],
    ["http://[2606:4700::5eff:127.0.0.1]/", "allowed"],
    ["http://[2606:4700::400:5efe:127.0.0.1]/", "allowed"],
    ["http://[2606:4700:0:0:0:1:5efe:a00]/", "allowed"],
    ["http://93.184.216.34/", "allowed"],
    ["http://172.15.255.255/", "allowed"],
    ["http://172.32.0.0/", "allowed"],
    ["http://100.63.255.255/", "allowed"],
    ["http://100.128.0.0/", "allowed"],
    ["http://126.255.255.255/", "allowed"],
    ["http://128.0.0.0/", "allowed"],
    ["http://[2606:2800:220:1:248:1893:25c8:1946]/", "allowed"],
    ["http://[::ffff:93.184.216.34]/", "allowed"],
    ["http://[64:ff9b::5db8:d822]/", "allowed"],
    ["https://example.com/hook?a=b#c", "to be resolved"],
    ...[80, 443, 3000, 5000, 8000, 8080, 8443, 9000].map(withPort("to be resolved")),
    ["http://localhost/", "target_forbidden"],
  ])("%s: %s", (url, verdict) => {
    expect(verdictOn(url)).toBe(verdict);
  });

  test("loses its fragment, which is not sent", () => {
    expect(checkTarget("https://example.com/a#b").href).toBe("https://example.com/a");
  });

  test.each([undefined, null, 5, {}, []])("is not %j", (given) => {
    expect(codeOf(() => checkTarget(given))).toBe("invalid_target");
  });
});

describe("the operator's list", () => {
  test.each([
    ["http://127.0.0.1/", ["127.0.0.1/32"], "allowed"],
    ["http://127.0.0.1/", ["127.0.0.1"], "allowed"],
    ["http://127.0.0.2/", ["127.0.0.1/32"], "target_forbidden"],
    ["http://10.1.2.3/", ["10.0.0.0/8"], "allowed"],
    ["http://11.0.0.0/", [], "allowed"],
    ["http://[::1]/", ["::1/128"], "allowed"],
    ["http://[fd12::1]/", ["fc00::/7"], "allowed"],
    ["http://[fe80::1]/", ["fc00::/7"], "target_forbidden"],
    // An address inside an address is judged as what it reaches.
    ["http://[::ffff:127.0.0.1]/", ["127.0.0.1/32"], "allowed"],
    ["http://[::ffff:127.0.0.2]/", ["127.0.0.1/32"], "target_forbidden"],
    ["http://[64:ff9b::a00:1]/", ["10.0.0.0/8"], "allowed"],
    ["http://[2606:4700::5efe:a00:1]/", ["10.0.0.0/8"], "allowed"],
    ["http://168.63.129.16/", ["168.63.129.16"], "allowed"],
    ["http://localhost/", ["127.0.0.1"], "to be resolved"],
    ["http://127.0.0.1/", ["::1/128"], "target_forbidden"],
    ["http://[::1]/", ["0.0.0.0/0"], "target_forbidden"],
  ])("%s with %j: %s", (url, allow, verdict) => {
    expect(verdictOn(url, allow)).toBe(verdict);
  });

  test.each([
    ["http://93.184.216.34:9200/", [], [9200], "allowed"],
    ["http://example.com:9200/", [], [9200], "to be resolved"],
    ["http://example.com:9300/", [], [9200], "target_forbidden"],
    // Neither list is about what the other is about.
    ["http://10.0.0.1:9200/", [], [9200], "target_forbidden"],
    ["http://10.0.0.1:9200/", ["10.0.0.0/8"], [], "target_forbidden"],
    ["http://10.0.0.1:9200/", ["10.0.0.0/8"], [9200], "allowed"],
  ])("%s with %j and the ports %j: %s", (url, allow, ports, verdict) => {
    expect(verdictOn(url, allow, ports)).toBe(verdict);
  });

  test("the page about tasks names the ports that have to be allowed, and no others", () => {
    const page = readFileSync(join(import.meta.dirname, "../../docs/tasks.md"), "utf8");
    const table = /\| ports \| of \|\n(?:\|.*\n)+/.exec(page)?.[0] ?? "";
    const cells = table.split("\n").map((line) => line.split("|")[1]);
    const listed = Array.from(cells.join().matchAll(/(\d+)(?: to (\d+))?/g), ([, first, last = first]) =>
      Array.from({ length: Number(last) - Number(first) + 1 }, (_, i) => Number(first) + i),
    ).flat();
    const guarded = Array.from({ length: 65_535 }, (_, i) => i + 1).filter(
      (port) => verdictOn(`http://example.com:${port}/`) === "target_forbidden",
    );
    expect(listed.toSorted((a, b) => a - b)).toEqual(guarded);
  });

  test.each([0, 65_536, 1.5, -1, Number.NaN, "9200", null, 22])("%j is no port that can be allowed", (port) => {
    expect(codeOf(() => parsePorts([port as number], "allowPorts"))).toBe("invalid_argument");
  });

  test.each([
    "10.0.0.1/8",
    "10.0.0.0/33",
    "10.0.0.0/-1",
    "10.0.0/8",
    "::/129",
    "example.com",
    "",
    "10.0.0.0/8/8",
    "1.2.3.4/a",
  ])("%j is no range", (text) => {
    expect(codeOf(() => parseRanges([text], "allow"))).toBe("invalid_argument");
  });
});

describe("addresses", () => {
  test("are read as the parser of URLs writes them", () => {
    fc.assert(
      fc.property(fc.ipV6(), (text) => {
        const bytes = parseAddress(text);
        const host = new URL(`http://[${text}]/`).hostname.slice(1, -1);
        expect(bytes).toHaveLength(16);
        expect(parseAddress(host)).toEqual(bytes);
      }),
    );
    fc.assert(
      fc.property(fc.ipV4(), (text) => {
        expect(parseAddress(text)).toEqual(text.split(".").map(Number));
      }),
    );
  });

  test.each([
    "1.2.3",
    "1.2.3.256",
    "01.2.3.4",
    "1.2.3.4.5",
    ":::",
    "1::2::3",
    "::12345",
    "::g",
    "fe80::1%eth0",
    "1:2:3:4:5:6:7",
    "1:2:3:4:5:6:7:8:9",
    "1:2:3:4:5:6:7:8::",
    "::1.2.3",
    "1.2.3.4::",
    "",
  ])("%j is none, and is refused", (text) => {
    expect(parseAddress(text)).toBeUndefined();
    expect(refusalOf(text, [])).toBe("is no address");
  });
});
