/**
 * What must be true of the runs of a fault run, whatever happened: the ledger of those who started, signaled and canceled them is held
 * against their records, their histories, and the rows that they wrote.
 */

import { ENDED, parseFact, type RunStatus } from "../../../src/workflow/stored.ts";
import type { Operation } from "../ledger.ts";
import {
  type Begun,
  type ClientResult,
  type Done,
  EXPECTED_PARKING,
  payloadOf,
  type Reconciled,
  type Result,
  SIGNALS,
  WAKING_NS,
  type Wish,
} from "./orders.ts";
import { type Evidence, overlaps } from "./work.ts";

export interface RunState {
  readonly workflow: string;
  readonly status: RunStatus;
  readonly ended: ClientResult;
  readonly facts: readonly { readonly version: number; readonly name: string; readonly data: unknown }[];
}

export interface RunsState {
  readonly runs: ReadonlyMap<string, RunState>;
  readonly rows: readonly Done[];
}

/** Holds what workers and clients said against the runs as they are in the end. */
export function checkRuns(evidence: Evidence, state: RunsState): string[] {
  const asked = evidence.operations.map((operation) => ({ ...operation, wish: operation.input as Wish }));
  const recorded = new Map([...state.runs].map(([id, run]) => [id, recordsOf(run)]));
  return [
    ...checkStarts(asked, evidence, state),
    ...checkEnds(asked, state),
    ...checkHistories(state),
    ...checkWhatWasSeen(evidence, recorded),
    ...checkRepeats(evidence, asked),
    ...checkRows(state, recorded),
    ...checkAtMostOnce(evidence, asked, state),
    ...checkSignals(evidence, asked, state),
    ...checkResults(evidence, asked, state, recorded),
  ];
}

type Asked = Operation & { readonly wish: Wish };

const notesOf = <T>({ notes }: Evidence, what: string): (T & { readonly at: number; readonly life: string })[] =>
  notes.filter((note) => note.what === what).map(({ data, at, life }) => ({ ...(data as T), at, life }));

/** Steps that the history has an outcome of, with their values where they succeeded. */
function recordsOf({ facts }: RunState): ReadonlyMap<string, string | undefined> {
  const records = new Map<string, string | undefined>();
  for (const { name, data } of facts) {
    const { word, id } = parseFact(name);
    if (word === "step") records.set(id, (data as { ok?: string }).ok);
  }
  return records;
}

type Records = ReadonlyMap<string, ReadonlyMap<string, string | undefined>>;

const isIn = ({ doubts }: Evidence, { startedAt, endedAt }: Operation): boolean =>
  overlaps(doubts, startedAt, endedAt ?? startedAt);

/** What was acknowledged is there, and nothing that nobody asked for. */
function checkStarts(asked: readonly Asked[], evidence: Evidence, { runs }: RunsState): string[] {
  const wrong: string[] = [];
  const starts = Map.groupBy(
    asked.filter(({ wish }) => wish.verb === "start"),
    ({ wish }) => wish.run,
  );
  for (const [run, all] of starts) {
    if (runs.has(run)) continue;
    // Whoever found it there only read it, and may have read what the standby never got.
    const wrote = all.some((one, i) => one.answer === "yes" && (i === 0 || !isIn(evidence, one)));
    if (wrote) wrong.push(`the start of ${run} was acknowledged, and it is lost`);
  }
  const children = new Set<unknown>();
  for (const { facts } of runs.values())
    for (const { name, data } of facts) if (name.startsWith("child ")) children.add((data as { run: string }).run);
  for (const [run, { workflow }] of runs) {
    const isAsked = workflow === "order" ? starts.has(run) : children.has(run);
    if (!isAsked) wrong.push(`${workflow} ${run} exists, and no client started it`);
  }
  for (const run of children) if (!runs.has(String(run))) wrong.push(`the child ${run} is lost`);
  return wrong;
}

/** All of them ended, and as canceled only if a client canceled them. */
function checkEnds(asked: readonly Asked[], { runs }: RunsState): string[] {
  const wrong: string[] = [];
  const canceled = new Set(asked.filter(({ wish }) => wish.verb === "cancel").map(({ wish }) => wish.run));
  for (const [run, { status, ended, facts }] of runs) {
    if (!ENDED.has(status))
      wrong.push(`${run} did not end: it is ${status}, after ${facts.map(({ name }) => `"${name}"`).join(", ")}`);
    else if (status === "failed" || status === "timed_out")
      wrong.push(`${run} ended as ${status}: ${"reason" in ended ? ended.reason : ""}`);
    else if (status === "canceled" && !canceled.has(run.split("/")[0] ?? ""))
      wrong.push(`${run} was canceled, and no client requested that`);
  }
  return wrong;
}

/** No gap, each outcome once, a reason for each parking, and nothing after the end. */
function checkHistories({ runs }: RunsState): string[] {
  const wrong: string[] = [];
  for (const [run, { facts, status }] of runs) {
    const once = new Set<string>();
    for (const [i, { version, name, data }] of facts.entries()) {
      if (version !== i + 1) wrong.push(`the history of ${run} has fact ${version} where ${i + 1} belongs`);
      if ((name === "started") !== (i === 0)) wrong.push(`the history of ${run} has "${name}" as fact ${version}`);
      const { word } = parseFact(name);
      const isOnce = /^(step|woke|received|expired|child|ended|canceled|completed|failed)$/.test(word);
      if (isOnce && once.has(name)) wrong.push(`the history of ${run} has "${name}" twice`);
      once.add(name);
      const reason = word === "parked" ? (data as { reason: string }).reason : "";
      if (word === "parked" && !EXPECTED_PARKING.test(reason)) wrong.push(`${run} was parked: ${reason}`);
    }
    const end = { completed: ["completed"], failed: ["failed"], canceled: ["failed", "canceled"] }[String(status)];
    const last = facts.at(-1)?.name ?? "";
    if (end !== undefined && !end.includes(last)) wrong.push(`${run} is ${status}, and its last fact is "${last}"`);
  }
  return wrong;
}

/** What code had in hand when an effect began is what the history says for ever; and every outcome is one that happened. */
function checkWhatWasSeen(evidence: Evidence, recorded: Records): string[] {
  const wrong: string[] = [];
  for (const { run, step, saw, life } of notesOf<Begun>(evidence, "begun")) {
    const records = recorded.get(run);
    if (records === undefined) wrong.push(`${life} began "${step}" of ${run}, which is not there`);
    else
      for (const [before, value] of Object.entries(saw)) {
        const kept = records.has(before) ? (records.get(before) ?? "failed") : "gone";
        if (kept !== value)
          wrong.push(`${life} began "${step}" of ${run} with ${value} from "${before}", which is ${kept}`);
      }
  }
  const happened = new Set(notesOf<Done>(evidence, "done").map(({ run, step, value }) => `${run}\n${step}\n${value}`));
  for (const [run, records] of recorded)
    for (const [step, value] of records)
      if (value !== undefined && !happened.has(`${run}\n${step}\n${value}`))
        wrong.push(`"${step}" of ${run} is recorded as ${value}, which never happened`);
  return wrong;
}

/** Once somebody had the outcome of a step in hand, or knew that its run had ended, nobody begins it. */
function checkRepeats(evidence: Evidence, asked: readonly Asked[]): string[] {
  const wrong: string[] = [];
  const begun = notesOf<Begun>(evidence, "begun");
  const knownAt = new Map<string, number>();
  const know = (what: string, at: number): void => {
    knownAt.set(what, Math.min(knownAt.get(what) ?? Number.POSITIVE_INFINITY, at));
  };
  for (const { run, saw, at } of begun) for (const step of Object.keys(saw)) know(`${run}\n${step}`, at);
  for (const operation of asked) {
    const { wish, answer, output, endedAt } = operation;
    if (wish.verb === "result" && answer === "yes" && "ended" in (output as ClientResult) && !isIn(evidence, operation))
      know(wish.run, endedAt ?? Number.POSITIVE_INFINITY);
  }
  for (const { run, step, at, life, stall } of begun) {
    const since = Math.min(
      knownAt.get(`${run}\n${step}`) ?? Number.POSITIVE_INFINITY,
      knownAt.get(run) ?? Number.POSITIVE_INFINITY,
    );
    if (at <= since) continue;
    if (stall !== null && stall.from < since && at - stall.to < WAKING_NS) continue;
    wrong.push(`${life} began "${step}" of ${run} ${((at - since) / 1e6).toFixed(1)} ms after its outcome was known`);
  }
  return wrong;
}

const TX_STEPS = new Set(["book", "stow"]);

/** The user's row and the step's record: both, once, with the same value; or neither. */
function checkRows({ rows }: RunsState, recorded: Records): string[] {
  const wrong: string[] = [];
  const found = Map.groupBy(rows, ({ run, step }) => `${run}\n${step}`);
  for (const [run, records] of recorded)
    for (const [step, value] of records) {
      if (!TX_STEPS.has(step)) continue;
      const values = (found.get(`${run}\n${step}`) ?? []).map((row) => row.value);
      found.delete(`${run}\n${step}`);
      const expected = value === undefined ? [] : [value];
      if (values.join() !== expected.join())
        wrong.push(`"${step}" of ${run} is recorded as ${value}, and its rows are [${values.join()}]`);
    }
  for (const all of found.values())
    for (const { run, step, value } of all) wrong.push(`"${step}" of ${run} has a row, ${value}, and no record`);
  return wrong;
}

/** Once, and once more for each time that somebody said it had not happened; never before its intent is written. */
function checkAtMostOnce(evidence: Evidence, asked: readonly Asked[], { runs }: RunsState): string[] {
  const wrong: string[] = [];
  const noes = new Map<string, number>();
  const no = (run: string): void => void noes.set(run, (noes.get(run) ?? 0) + 1);
  for (const { run, said } of notesOf<Reconciled>(evidence, "reconciled")) if ("done" in said && !said.done) no(run);
  for (const { wish, answer } of asked)
    if (wish.verb === "resolve" && answer !== "no" && !wish.answer.done) no(wish.run);
  const keys = new Map<string, string>();
  for (const [what, all] of Map.groupBy(notesOf<Begun>(evidence, "begun"), ({ run, step }) => `"${step}" of ${run}`)) {
    for (const { key } of all) {
      const other = keys.get(key) ?? what;
      if (other !== what) wrong.push(`${what} has the key of ${other}`);
      keys.set(key, what);
    }
    if (new Set(all.map(({ key }) => key)).size > 1) wrong.push(`${what} had several keys`);
    const [first] = all;
    if (first?.step !== "print") continue;
    const allowed = 1 + (noes.get(first.run) ?? 0);
    if (all.length > allowed) wrong.push(`${what} began ${all.length} times, and may ${allowed} times`);
    if (!runs.get(first.run)?.facts.some(({ name }) => name === "intent print"))
      wrong.push(`${what} began, and no intent of it is recorded`);
  }
  return wrong;
}

interface Received {
  readonly signal: string;
  readonly value: string;
}

const receivedBy = (run: RunState): string[] =>
  run.facts.filter(({ name }) => name.startsWith("received ")).map(({ data }) => (data as Received).value);

/** Each is kept once, received at most once and in the order they came; none is refused by a run that is there. */
function checkSignals(evidence: Evidence, asked: readonly Asked[], { runs }: RunsState): string[] {
  const wrong: string[] = [];
  const sent = Map.groupBy(
    asked.filter(({ wish }) => wish.verb === "signal"),
    ({ wish }) => wish.run,
  );
  const startedAt = new Map<string, number>();
  for (const operation of asked)
    if (operation.wish.verb === "start" && operation.answer === "yes" && !isIn(evidence, operation))
      startedAt.set(operation.wish.run, operation.endedAt ?? Number.POSITIVE_INFINITY);
  for (const [run, all] of sent) {
    for (const operation of all) {
      const { answer, output, life, wish } = operation;
      const refused =
        answer === "yes" && "refused" in (output as ClientResult) ? (output as { refused: string }).refused : "";
      if (refused === "" || isIn(evidence, operation)) continue;
      const isThere = operation.startedAt > (startedAt.get(run) ?? Number.POSITIVE_INFINITY);
      if (refused !== "run_ended" && isThere)
        wrong.push(`${life} was refused a signal to ${wish.run}, which is there: ${refused}`);
    }
    const isNew = ({ answer, output }: Asked) => answer === "yes" && (output as { isNew?: boolean }).isNew === true;
    for (const [name, some] of Map.groupBy(all, ({ wish }) => (wish.verb === "signal" ? wish.signal : "")))
      if (some.filter(isNew).length > 1) wrong.push(`the signal "${name}" to ${run} was new more than once`);
  }
  for (const [id, run] of runs) {
    if (run.workflow !== "order") continue;
    const received = receivedBy(run);
    if (new Set(received).size < received.length) wrong.push(`${id} received a signal twice: ${received.join(", ")}`);
    const of = (name: string) =>
      (sent.get(id) ?? []).filter(({ wish }) => wish.verb === "signal" && wish.signal === name);
    for (const value of received)
      if (!SIGNALS.some((name) => payloadOf(id, name) === value && of(name).length > 0))
        wrong.push(`${id} received "${value}", which no client sent`);
    const [first, second] = SIGNALS;
    const firstAt = Math.min(
      ...of(first)
        .filter((one) => one.answer === "yes" && "isNew" in (one.output as ClientResult) && !isIn(evidence, one))
        .map(({ endedAt }) => endedAt ?? Number.POSITIVE_INFINITY),
    );
    const secondAt = Math.min(...of(second).map((one) => one.startedAt));
    const place = (name: string) => received.indexOf(payloadOf(id, name));
    if (firstAt < secondAt && place(second) >= 0 && (place(first) < 0 || place(first) > place(second)))
      wrong.push(`${id} received the signals in another order than they were sent: ${received.join(", ")}`);
  }
  return wrong;
}

/** All clients got the same outcome, and it is that of the history. */
function checkResults(evidence: Evidence, asked: readonly Asked[], { runs }: RunsState, recorded: Records): string[] {
  const wrong: string[] = [];
  for (const operation of asked) {
    const { wish, answer, life } = operation;
    if (answer !== "yes" || isIn(evidence, operation)) continue;
    const output = operation.output as ClientResult;
    const run = runs.get(wish.run);
    if (wish.verb === "result" && "ended" in output && textOf(output) !== textOf(run?.ended))
      wrong.push(`${life} was told that ${wish.run} is ${textOf(output)}, and it is ${textOf(run?.ended)}`);
    const status = wish.verb === "cancel" && "status" in output ? output.status : "";
    if (ENDED.has(status) && status !== run?.status)
      wrong.push(`${life} was told that ${wish.run} is ${status}, and it is ${run?.status}`);
  }
  for (const [id, run] of runs) {
    if (run.workflow !== "order" || !("ended" in run.ended) || run.ended.ended !== "completed") continue;
    const { saw, heard, child } = run.ended.value as Result;
    for (const [step, value] of recorded.get(id) ?? [])
      if (saw[step] !== value) wrong.push(`${id} gave ${saw[step]} for "${step}", and its history says ${value}`);
    const received = heard.filter((value) => value !== null);
    if (received.join() !== receivedBy(run).join())
      wrong.push(`${id} gave [${received.join()}] as its signals, and received [${receivedBy(run).join()}]`);
    const told = runs.get(`${id}/parcel`)?.ended;
    if (told === undefined || !("ended" in told) || told.value !== child)
      wrong.push(`${id} was told ${JSON.stringify(child)} by its child, which gave ${textOf(told)}`);
  }
  return wrong;
}

/** The same for equal answers, whatever the order of their keys. */
const textOf = (heard: unknown): string =>
  JSON.stringify(heard, (_, value: unknown) =>
    typeof value === "object" && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
      : value,
  ) ?? "nothing";
