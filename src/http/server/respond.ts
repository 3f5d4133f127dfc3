/**
 * Problems as responses, and as text for what is refused before there is a request.
 */

import { type Problem, TITLES } from "./problem.ts";
import { toWire } from "./values.ts";

/** Sends a problem. */
export function respond(problem: Problem, requestId: string): Response {
  const { status, headers } = problem;
  return new Response(problemText(problem, requestId), { status, headers: { ...PROBLEM_HEADERS, ...headers } });
}

const PROBLEM_HEADERS = { "content-type": "application/problem+json", "cache-control": "no-store" };

/** A problem as the last response on its connection. */
export function lastResponse(problem: Problem, requestId: string) {
  const body = problemText(problem, requestId);
  const headers: Readonly<Record<string, string>> = {
    ...PROBLEM_HEADERS,
    ...problem.headers,
    "x-request-id": requestId,
    "content-length": String(Buffer.byteLength(body)),
    connection: "close",
  };
  return { status: problem.status, headers, body };
}

/** The same as bytes of HTTP, for what is not a request. */
export function rawProblem(problem: Problem, requestId: string): string {
  const { status, headers, body } = lastResponse(problem, requestId);
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${TITLES[status]}\r\n${lines.join("")}\r\n${body}`;
}

/** The body of a problem. */
export function problemText(problem: Problem, requestId: string): string {
  const { status, code, message: detail } = problem;
  const data = dataFor(problem);
  return JSON.stringify({ type: "about:blank", title: TITLES[status], status, code, detail, data, requestId });
}

/** Data that cannot be sent must not hide the refusal. */
function dataFor({ data }: Problem): unknown {
  try {
    return datesAsText(toWire(data));
  } catch {
    return undefined;
  }
}

/** The data of errors has times of Pawl, which are ISO texts everywhere in the API. What is below is the user's, except in an outcome. */
function datesAsText(json: unknown): unknown {
  if (typeof json !== "object" || json === null || Array.isArray(json)) return json;
  return Object.fromEntries(
    Object.entries(json).map(([name, part]: [string, unknown]) => {
      const isDate = typeof part === "object" && part !== null && "$date" in part;
      return [name, isDate ? part.$date : name === "outcome" ? datesAsText(part) : part];
    }),
  );
}
