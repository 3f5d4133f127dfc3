/**
 * The rules of personal data, without a store and without ciphers: which fields are sealed, where a subject's key is, and what forgetting leaves.
 */

import { checkFunction, checkList, checkObject, checkOptions, optionNames } from "../../kernel/check.ts";
import { FORGOTTEN } from "../../kernel/codec/forgotten.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import type { Sealed } from "../../kernel/seal/ring.ts";
import type { StreamValue } from "../stored.ts";
import type { SubjectValue } from "./stored.ts";

/** Which fields of an event are about a person, and who that is. */
export interface PersonalOptions<Data = never, Field extends string = string> {
  /**
   * The id of the person. It is stored in clear and stays after the person was forgotten: use an id that says nothing without your own tables.
   */
  readonly subject: (data: Data) => string;
  /** The fields of the data, at its top level, that are stored encrypted with the person's key. */
  readonly fields: readonly Field[];
}

/** What is known of the personal fields of an event type. */
export interface PersonalRules {
  readonly subject: (data: unknown) => unknown;
  readonly fields: readonly string[];
}

const OPTIONS = optionNames<PersonalOptions>({ subject: true, fields: true });
const MOST_FIELDS = 100;

export function checkPersonal(personal: unknown): PersonalRules | undefined {
  if (personal === undefined) return undefined;
  checkObject(personal, "personal");
  checkOptions(personal as object, OPTIONS, "personal");
  const { subject, fields } = personal as PersonalRules;
  checkFunction(subject, "the subject");
  checkList(fields, "the fields");
  const isList = fields.length > 0 && fields.every((field) => typeof field === "string" && field !== "");
  if (!isList || new Set(fields).size < fields.length || fields.length > MOST_FIELDS)
    throw new InvalidArgumentError("the fields", `must be names of 1 to ${MOST_FIELDS} fields, each once`);
  return { subject, fields: [...fields] };
}

/** The data without the personal fields, and those that it has. */
export function splitData(
  data: unknown,
  fields: readonly string[],
): { readonly open: Readonly<Record<string, unknown>>; readonly personal: Readonly<Record<string, unknown>> } {
  if (!isRecord(data)) throw new InvalidArgumentError("the data", "must be an object, because it has personal fields");
  const entries = Object.entries(data);
  const isPersonal = ([name]: readonly [string, unknown]): boolean => fields.includes(name);
  return {
    open: Object.fromEntries(entries.filter((entry) => !isPersonal(entry))),
    personal: Object.fromEntries(entries.filter(isPersonal)),
  };
}

/** The data as it was, frozen. */
export function joinData(open: unknown, personal: unknown): unknown {
  return Object.freeze({ ...(open as object), ...(personal as object) });
}

/** The data of a person who was forgotten. */
export function forgottenData(open: unknown, fields: readonly string[]): unknown {
  return joinData(open, Object.fromEntries(fields.map((field) => [field, FORGOTTEN])));
}

/** Where the key of a subject is. */
export type KeyPlace =
  | { readonly is: "forgotten" }
  | { readonly is: "here"; readonly sealed: Sealed }
  | { readonly is: "elsewhere" }
  /** There is none yet. */
  | { readonly is: "none" }
  /** It was made by a handle with `subjectKeys`, which this one does not have. */
  | { readonly is: "unknown" };

/** `value` is undefined for a subject without a record; `hasOthers` says whether the handle has `subjectKeys`. */
export function keyPlace(value: SubjectValue | undefined, hasOthers: boolean): KeyPlace {
  if (value?.forgotten !== undefined) return { is: "forgotten" };
  if (value?.key !== undefined) return { is: "here", sealed: value.key };
  if (hasOthers) return { is: "elsewhere" };
  return { is: value === undefined ? "none" : "unknown" };
}

export interface ForgetRequest {
  readonly actor?: string | undefined;
  readonly reason?: string | undefined;
  /** When it was forgotten first, if that is known from before a restore. */
  readonly atMs?: number | undefined;
}

/** What is left of a subject. The first one to forget it counts. */
export function decideForget(
  value: SubjectValue | undefined,
  { actor, reason, atMs }: ForgetRequest,
  nowMs: number,
): SubjectValue & { readonly forgotten: NonNullable<SubjectValue["forgotten"]> } {
  const forgotten = value?.forgotten ?? {
    atMs: atMs ?? nowMs,
    ...(actor === undefined ? {} : { actor }),
    ...(reason === undefined ? {} : { reason }),
    // A subject has a record from its first event on, also where its key is kept elsewhere.
    ...(value === undefined ? { isUnknown: true as const } : {}),
  };
  return { forgotten };
}

/** A stream after a person with events in it was forgotten: without the folded states, which may have personal data in them. */
export function withoutFolds({ folds: _, personal, ...rest }: StreamValue): StreamValue {
  return { ...rest, personal: { erased: (personal?.erased ?? 0) + 1 } };
}

/** A Map, a Date or an instance of a class has no fields that could be taken out. */
function isRecord(data: unknown): data is Record<string, unknown> {
  if (typeof data !== "object" || data === null) return false;
  const prototype: unknown = Object.getPrototypeOf(data);
  return prototype === null || (Object.getPrototypeOf(prototype) === null && !Array.isArray(data));
}
