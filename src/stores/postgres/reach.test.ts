/**
 * Goal: what may pass by itself is tried again until patience ends, and nothing else is.
 * Method: a table of errors as the server, the operating system, `pg` and its pool report them; attempts on a clock of the test's own.
 */

import { describe, expect, test } from "vitest";
import type { Ports } from "../../kernel/ports.ts";
import { LostLineError } from "./failure.ts";
import { mayPass, patiently } from "./reach.ts";

const server = (code: string, message = "told by the server"): Error =>
  Object.assign(new Error(message), { code, severity: "FATAL" });
const lost = (cause: Error): Error => new LostLineError(cause.message, { cause });
const system = (syscall: string, code: string): Error =>
  lost(Object.assign(new Error(`${syscall} ${code}`), { syscall, code }));
const refused = system("connect", "ECONNREFUSED");

describe("may pass by itself", () => {
  const rules: readonly { what: string; error: unknown; mayPass: boolean }[] = [
    { what: "nothing listens on the port", error: refused, mayPass: true },
    {
      what: "nothing listens on any address of the host",
      error: lost(new AggregateError([refused.cause, refused.cause], "two addresses")),
      mayPass: true,
    },
    { what: "the socket's file is not there", error: system("connect", "ENOENT"), mayPass: true },
    { what: "the host has no address yet", error: system("getaddrinfo", "ENOTFOUND"), mayPass: true },
    { what: "the connection is reset", error: system("read", "ECONNRESET"), mayPass: true },
    { what: "the connection ends", error: lost(new Error("Connection terminated unexpectedly")), mayPass: true },
    {
      what: "the pool waits in vain",
      error: lost(new Error("timeout exceeded when trying to connect")),
      mayPass: true,
    },
    { what: "the store waits in vain", error: new LostLineError("the pool gave no connection"), mayPass: true },
    { what: "the server is starting", error: server("57P03"), mayPass: true },
    { what: "the server crashed", error: server("57P02"), mayPass: true },
    { what: "the server is being stopped", error: server("57P01"), mayPass: true },
    { what: "there are too many connections", error: server("53300"), mayPass: true },
    { what: "a pooler does not reach the server", error: server("08P01", "server login failed"), mayPass: true },
    { what: "a pooler does not let us in", error: server("08P01", "password authentication failed"), mayPass: false },
    { what: "a pooler has no such database", error: server("08P01", "no such database: x"), mayPass: false },
    { what: "the password is wrong", error: server("28P01"), mayPass: false },
    { what: "the role is unknown", error: server("28000"), mayPass: false },
    { what: "the database is unknown", error: server("3D000"), mayPass: false },
    { what: "a right is missing", error: server("42501"), mayPass: false },
    { what: "no password was given", error: lost(new Error("SASL: client password must be a string")), mayPass: false },
    {
      what: "the server has no TLS",
      error: lost(new Error("The server does not support SSL connections")),
      mayPass: false,
    },
    {
      what: "the certificate is not trusted",
      error: lost(Object.assign(new Error("self-signed certificate"), { code: "DEPTH_ZERO_SELF_SIGNED_CERT" })),
      mayPass: false,
    },
    { what: "a file of the settings is not there", error: system("open", "ENOENT"), mayPass: false },
    { what: "a mistake of ours", error: new TypeError("x is not a function"), mayPass: false },
  ];
  test.each(rules)("$what: $mayPass", ({ error, mayPass: expected }) => {
    expect(mayPass(error)).toBe(expected);
  });
});

describe("attempts", () => {
  /** A clock that moves only while somebody waits for it. */
  function waiting() {
    const waits: number[] = [];
    let nowMs = 0;
    const ports: Ports = {
      clock: {
        nowMs: () => nowMs,
        after(ms, callback) {
          waits.push(ms);
          nowMs += ms;
          queueMicrotask(callback);
          return () => {};
        },
        soon: queueMicrotask,
      },
      chance: { random: () => 1, uuid: () => "" },
    };
    return { ports, waits };
  }

  /** Fails so often, and then returns which attempt it was. */
  const failing = (times: number, error: unknown) => {
    let attempts = 0;
    return async () => {
      attempts += 1;
      if (attempts <= times) throw error;
      return attempts;
    };
  };

  test("are made until one succeeds, with longer and longer pauses", async () => {
    const { ports, waits } = waiting();
    expect(await patiently(ports, 10_000, failing(8, refused))).toBe(9);
    expect(waits).toEqual([50, 100, 200, 400, 800, 1000, 1000, 1000]);
  });

  test("end with patience, and the last is made just then", async () => {
    const { ports, waits } = waiting();
    await expect(patiently(ports, 300, failing(99, refused))).rejects.toBe(refused);
    expect(waits).toEqual([50, 100, 150]);
  });

  test("end with what does not pass", async () => {
    const { ports, waits } = waiting();
    const denied = server("28P01");
    await expect(patiently(ports, 10_000, failing(99, denied))).rejects.toBe(denied);
    expect(waits).toEqual([]);
  });
});
