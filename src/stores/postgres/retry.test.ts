/**
 * Goal: transient errors are retried until the time limit, and no others.
 * Method: a table of errors as the server, the operating system, `pg` and its pool report them; attempts on a clock of the test's own.
 */

import { describe, expect, test } from "vitest";
import type { Ports } from "../../kernel/ports.ts";
import { LostConnectionError } from "./failure.ts";
import { isTransient, retryUntil } from "./retry.ts";

const server = (code: string, message = "reported by the server"): Error =>
  Object.assign(new Error(message), { code, severity: "FATAL" });
const lost = (cause: Error): Error => new LostConnectionError(cause.message, { cause });
const system = (syscall: string, code: string): Error =>
  lost(Object.assign(new Error(`${syscall} ${code}`), { syscall, code }));
const refused = system("connect", "ECONNREFUSED");

describe("is transient", () => {
  const rules: readonly { what: string; error: unknown; isTransient: boolean }[] = [
    { what: "nothing listens on the port", error: refused, isTransient: true },
    {
      what: "nothing listens on any address of the host",
      error: lost(new AggregateError([refused.cause, refused.cause], "two addresses")),
      isTransient: true,
    },
    { what: "the socket's file is not there", error: system("connect", "ENOENT"), isTransient: true },
    { what: "the host has no address yet", error: system("getaddrinfo", "ENOTFOUND"), isTransient: true },
    { what: "the connection is reset", error: system("read", "ECONNRESET"), isTransient: true },
    { what: "the connection ends", error: lost(new Error("Connection terminated unexpectedly")), isTransient: true },
    {
      what: "the pool's timeout ends",
      error: lost(new Error("timeout exceeded when trying to connect")),
      isTransient: true,
    },
    {
      what: "the store's timeout ends",
      error: new LostConnectionError("no connection became free"),
      isTransient: true,
    },
    { what: "the server is starting", error: server("57P03"), isTransient: true },
    { what: "the server crashed", error: server("57P02"), isTransient: true },
    { what: "the server is being stopped", error: server("57P01"), isTransient: true },
    { what: "there are too many connections", error: server("53300"), isTransient: true },
    { what: "a pooler does not reach the server", error: server("08P01", "server login failed"), isTransient: true },
    {
      what: "a pooler rejects the login",
      error: server("08P01", "password authentication failed"),
      isTransient: false,
    },
    { what: "a pooler has no such database", error: server("08P01", "no such database: x"), isTransient: false },
    { what: "the password is wrong", error: server("28P01"), isTransient: false },
    { what: "the role is unknown", error: server("28000"), isTransient: false },
    { what: "the database is unknown", error: server("3D000"), isTransient: false },
    { what: "a right is missing", error: server("42501"), isTransient: false },
    {
      what: "no password was given",
      error: lost(new Error("SASL: client password must be a string")),
      isTransient: false,
    },
    {
      what: "the server has no TLS",
      error: lost(new Error("The server does not support SSL connections")),
      isTransient: false,
    },
    {
      what: "the certificate is not trusted",
      error: lost(Object.assign(new Error("self-signed certificate"), { code: "DEPTH_ZERO_SELF_SIGNED_CERT" })),
      isTransient: false,
    },
    { what: "a file of the settings is not there", error: system("open", "ENOENT"), isTransient: false },
    { what: "a mistake of ours", error: new TypeError("x is not a function"), isTransient: false },
  ];
  test.each(rules)("$what: $isTransient", ({ error, isTransient: expected }) => {
    expect(isTransient(error)).toBe(expected);
  });
});

describe("attempts", () => {
  /** A clock that moves only while a caller waits for it. */
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

  /** Fails `times` times, and then returns the number of the attempt. */
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
    expect(await retryUntil(ports, 10_000, failing(8, refused))).toBe(9);
    expect(waits).toEqual([50, 100, 200, 400, 800, 1000, 1000, 1000]);
  });

  test("end with the time limit, and the last is made then", async () => {
    const { ports, waits } = waiting();
    await expect(retryUntil(ports, 300, failing(99, refused))).rejects.toBe(refused);
    expect(waits).toEqual([50, 100, 150]);
  });

  test("end with an error that is not transient", async () => {
    const { ports, waits } = waiting();
    const denied = server("28P01");
    await expect(retryUntil(ports, 10_000, failing(99, denied))).rejects.toBe(denied);
    expect(waits).toEqual([]);
  });
});
