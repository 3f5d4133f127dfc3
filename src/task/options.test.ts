/** Options of tasks: what is refused before anything is written, and what is stored of the rest. */

import { describe, expect, test } from "vitest";
import { checkTask, type TaskOptions } from "./options.ts";

const URL_TEXT = "https://example.com/hook";
const check = (options: Partial<Record<keyof TaskOptions, unknown>>) =>
  checkTask({ targetUrl: URL_TEXT, ...options } as TaskOptions);

describe("is refused", () => {
  const headers = (name: string, value: unknown = "x") => ({ headers: { [name]: value } });
  test.each<[string, Partial<Record<keyof TaskOptions, unknown>>, string?]>([
    ["an unknown option", { tragetUrl: "x" } as object],
    ["no target", { targetUrl: undefined }, "invalid_target"],
    ["a line end in a header", headers("x-a", "a\r\nhost: b")],
    ["a line feed in a header", headers("x-a", "a\nb")],
    ["a NUL in a header", headers("x-a", "a\0b")],
    ["a letter that is not ASCII in a header", headers("x-a", "ü")],
    ["a line end in a header's name", headers("x-a\r\nhost")],
    ["a space in a header's name", headers("x a")],
    ["an empty name", headers("")],
    ["a number as a value", headers("x-a", 5)],
    ["a long value", headers("x-a", "x".repeat(4097))],
    ["Host", headers("Host", "other")],
    ["host in any case", headers("hOST", "other")],
    ["the signature", headers("Webhook-Signature", "v1,x")],
    ["the id", headers("webhook-id")],
    ["the time", headers("webhook-timestamp")],
    ["the key", headers("Idempotency-Key")],
    ["the fence", headers("Pawl-Fence", "9")],
    ["the task's id", headers("pawl-task-id")],
    ["Content-Length", headers("content-length", "5")],
    ["Transfer-Encoding", headers("transfer-encoding", "chunked")],
    ["Connection", headers("connection", "close")],
    ["Upgrade", headers("upgrade", "h2c")],
    ["Expect", headers("expect", "100-continue")],
    ...[
      "webhook_id",
      "Webhook_Signature",
      "webhook.timestamp",
      "webhook_anything",
      "idempotency_key",
      "IDEMPOTENCY.KEY",
      "idempotency~key",
      "pawl_fence",
      "pawl!attempt",
      "pawl_signal_token",
      "content_length",
      "transfer_encoding",
      "transfer|encoding",
      "keep_alive",
      "proxy_authorization",
    ].map((name): [string, object] => [`${name}, which looks like a reserved name`, headers(name)]),
    ["a Map of headers, which would be left out", { headers: new Map([["x-a", "1"]]) }],
    ["parameters as headers, which would be left out", { headers: new URLSearchParams("x-a=1") }],
    ["a list of headers", { headers: [["x-a", "1"]] }],
    ["a reserved header in Headers", { headers: new Headers({ "Webhook-Id": "x" }) }],
    ["a header twice", { headers: { "X-A": "1", "x-a": "2" } }],
    ["51 headers", { headers: Object.fromEntries(Array.from({ length: 51 }, (_, i) => [`x-${i}`, ""])) }],
    ["CONNECT", { method: "CONNECT" }],
    ["a method with a line end", { method: "GET\r\n" }],
    ["a body with GET", { method: "get", body: "x" }],
    ["a body of more than 1 MiB", { body: "x".repeat(1024 * 1024 + 1) }],
    ["a body that JSON cannot hold", { body: new Map() }],
    ["a number that JSON cannot hold", { body: { n: Number.NaN } }],
    ["a function as the body", { body: () => {} }, "invalid_value"],
    ["a body that refers to itself", { body: circle() }, "invalid_value"],
    ["a lone surrogate", { body: "\ud800" }],
    ["no time at all", { timeout: 0 }],
    ["two hours", { timeout: "2 hours" }],
    ["a function in the policy", { retry: { when: () => true } }],
    ["too many attempts", { retry: { attempts: 1001 } }],
    ["no attempts", { retry: { attempts: 0 } }],
    ["a status that no response has", { retryStatuses: [200] }],
    ["600", { retryStatuses: [600] }],
    ["a status as text", { retryStatuses: ["503"] }],
    ["no max", { concurrency: { key: "a" } }],
    ["no key", { concurrency: { max: 1 } }, "invalid_id"],
    ["a max of 0", { concurrency: { key: "a", max: 0 } }],
    ["a rate without a time", { rateLimit: { key: "a", max: 1 } }, "invalid_duration"],
    ["a rate in no time", { rateLimit: { key: "a", max: 1, per: 0 } }],
    ["delay and at", { delay: 5, at: 5 }],
    ["a negative delay", { delay: -5 }, "invalid_duration"],
    ["a date that is none", { at: new Date("x") }],
    ["a priority of 101", { priority: 101 }],
    ["maxWaitTime without waitForSignal", { maxWaitTime: 5 }],
    ["waitForSignal as text", { waitForSignal: "yes" }],
    ["an empty id", { id: "" }, "invalid_id"],
    ["a NUL in an id", { id: "a\0" }, "invalid_id"],
    ["a lone surrogate in a key", { idempotencyKey: "\ud800" }, "invalid_id"],
    ["tags as text", { tags: "a" }],
    ["a place to notify that is no URL", { onCompleteUrl: "/done" }, "invalid_target"],
    ["a place to notify with a password", { onCompleteUrl: "https://a:b@c/" }, "invalid_target"],
  ])("%s", (_, options, code = "invalid_argument") => {
    expect(() => check(options)).toThrowError(expect.objectContaining({ code }));
  });

  function circle(): object {
    const body: Record<string, unknown> = {};
    body["self"] = body;
    return body;
  }

  test("a secret in a header is not repeated in the error", () => {
    expect(() => check(headers("authorization", "Bearer s3cret\n"))).toThrowError(
      expect.objectContaining({ message: expect.not.stringContaining("s3cret") }),
    );
  });
});

describe("is stored", () => {
  test.each<[string, Partial<TaskOptions>, object]>([
    ["a target alone", {}, { url: URL_TEXT }],
    [
      "an object, as JSON",
      { body: { a: 1 } },
      { url: URL_TEXT, headers: { "content-type": "application/json" }, body: '{"a":1}' },
    ],
    ["null, as JSON", { body: null }, { url: URL_TEXT, headers: { "content-type": "application/json" }, body: "null" }],
    [
      "a text, as it is",
      { body: "a" },
      { url: URL_TEXT, headers: { "content-type": "text/plain; charset=utf-8" }, body: "a" },
    ],
    [
      "a type that was given",
      { body: "<a/>", headers: { "Content-Type": "text/xml" } },
      { url: URL_TEXT, headers: { "content-type": "text/xml" }, body: "<a/>" },
    ],
    ["a method in capitals", { method: "put" }, { url: URL_TEXT, method: "PUT" }],
    [
      "names with signs that are not reserved",
      { headers: { x_a: "1", "X-Webhook-Id": "2", hosts: "3", "my.pawl-id": "4" } },
      { url: URL_TEXT, headers: { x_a: "1", "x-webhook-id": "2", hosts: "3", "my.pawl-id": "4" } },
    ],
    [
      "headers of Headers",
      { headers: new Headers({ "X-A": "1", "x-b": "2" }) },
      { url: URL_TEXT, headers: { "x-a": "1", "x-b": "2" } },
    ],
    ["no headers of Headers", { headers: new Headers() }, { url: URL_TEXT }],
    ["headers without a prototype", { headers: Object.create(null) as Record<string, string> }, { url: URL_TEXT }],
    ["durations in milliseconds", { timeout: "5s" }, { url: URL_TEXT, timeoutMs: 5000 }],
    ["statuses", { retryStatuses: ["5xx", 409] }, { url: URL_TEXT, retryStatuses: [-5, 409] }],
    ["a wait of a day", { waitForSignal: true }, { url: URL_TEXT, maxWaitMs: 86_400_000 }],
    ["the time to wait", { waitForSignal: true, maxWaitTime: "1 hour" }, { url: URL_TEXT, maxWaitMs: 3_600_000 }],
  ])("%s", (_, options, input) => {
    expect(check(options).input).toEqual(input);
  });

  test("bytes, as a copy", () => {
    const body = new Uint8Array([1, 2]);
    const { input } = check({ body });
    body[0] = 9;
    expect(input.body).toEqual(new Uint8Array([1, 2]));
  });

  test("options that are the same in other words are the same request", () => {
    expect(check({ delay: "1 minute", method: "post" })).toEqual(check({ delay: 60_000 }));
  });
});
