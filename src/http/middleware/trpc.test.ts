/**
 * Goal: a mutation of tRPC is carried out once for each key, and a repetition gets the same result.
 * Method: a real router, called directly and over HTTP.
 */

import { initTRPC, TRPCError } from "@trpc/server";
import { fetchRequestHandler } from "@trpc/server/adapters/fetch";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type Gate, gate } from "../../../test/kernel/kit.ts";
import { Idempotency } from "../../idempotency/idempotency.ts";
import { open } from "../../index.ts";
import { plainly } from "../../kernel/sql/in-sql.ts";
import type { Pawl } from "../../pawl.ts";
import { type TrpcOptions, trpcIdempotency } from "./trpc.ts";

interface Ctx {
  readonly key: string | null;
  readonly user: string;
}

let pawl: Pawl;
let handled: number;
let arrived: Gate;
let slow: Gate;
beforeEach(async () => {
  pawl = await open("memory:");
  handled = 0;
  [arrived, slow] = [gate(), gate()];
});
afterEach(() => pawl.close());

function shop(options: Partial<TrpcOptions<Ctx>> = {}) {
  const t = initTRPC.context<Ctx>().create();
  const idempotent = t.procedure.use(
    trpcIdempotency(new Idempotency(pawl.kernel, plainly), {
      key: ({ ctx }: { ctx: Ctx }) => ctx.key,
      scope: ({ ctx }) => ctx.user,
      ...options,
    }),
  );
  const input = (value: unknown) => value as { item: string };
  const router = t.router({
    order: idempotent.input(input).mutation(({ input }) => ({ order: ++handled, item: input.item, at: new Date(5) })),
    other: idempotent.input(input).mutation(() => ({ other: ++handled })),
    slow: idempotent.mutation(async () => {
      handled += 1;
      arrived.open();
      await slow.opened;
      return handled;
    }),
    refuse: idempotent.mutation(() => {
      handled += 1;
      throw new TRPCError({ code: "FORBIDDEN", message: `refused ${handled}` });
    }),
    look: idempotent.query(() => ++handled),
  });
  const call = t.createCallerFactory(router);
  return { router, as: (user: string, key: string | null = "k") => call({ user, key }) };
}

const codeOf = async (promise: Promise<unknown>): Promise<unknown> => {
  try {
    return { answered: await promise };
  } catch (error) {
    return error instanceof Error && error.name === "TRPCError" && "code" in error ? error.code : error;
  }
};

test("a mutation that is repeated returns the same, with the types of its procedure, and is not carried out again", async () => {
  const { as } = shop();
  const first: { order: number; item: string; at: Date } = await as("ann").order({ item: "cup" });
  expect(first).toEqual({ order: 1, item: "cup", at: new Date(5) });
  expect(await as("ann").order({ item: "cup" })).toEqual(first);
  expect(await as("ann", '"k"').order({ item: "cup" })).toEqual(first);
  expect(await as("bob").order({ item: "cup" })).toMatchObject({ order: 2 });
  expect(await as("ann", "l").order({ item: "cup" })).toMatchObject({ order: 3 });
});

test("another input, or another procedure, is refused", async () => {
  const { as } = shop();
  await as("ann").order({ item: "cup" });
  expect(await codeOf(as("ann").order({ item: "pot" }))).toBe("UNPROCESSABLE_CONTENT");
  expect(await codeOf(as("ann").other({ item: "cup" }))).toBe("UNPROCESSABLE_CONTENT");
  expect(handled).toBe(1);
});

test("a repetition that overlaps gets a conflict, and later the same result", async () => {
  const { as } = shop();
  const first = as("ann").slow();
  await arrived.opened;
  expect(await codeOf(as("ann").slow())).toBe("CONFLICT");
  slow.open();
  expect([await first, await as("ann").slow(), handled]).toEqual([1, 1, 1]);
});

test("without a key it passes through, unless one is required; queries always do", async () => {
  const { as } = shop();
  for (const order of [1, 2]) expect(await as("ann", null).order({ item: "cup" })).toMatchObject({ order });
  for (const count of [3, 4]) expect(await as("ann").look()).toBe(count);
  const strict = shop({ required: true });
  expect(await codeOf(strict.as("ann", null).order({ item: "cup" }))).toBe("BAD_REQUEST");
  expect(await codeOf(strict.as("ann", "a b").order({ item: "cup" }))).toBe("BAD_REQUEST");
  expect(await strict.as("ann", null).look()).toBe(5);
});

test("an error frees the key, unless it is to be stored: then it is thrown again as it was", async () => {
  const { as } = shop();
  for (const count of [1, 2])
    await expect(as("ann").refuse()).rejects.toMatchObject({ code: "FORBIDDEN", message: `refused ${count}` });
  const keen = shop({ storeErrors: (error) => error instanceof TRPCError && error.code === "FORBIDDEN" });
  for (let i = 0; i < 2; i++)
    await expect(keen.as("ann").refuse()).rejects.toMatchObject({
      name: "TRPCError",
      code: "FORBIDDEN",
      message: "refused 3",
    });
  expect(handled).toBe(3);
});

test("over HTTP, refusals have their status", async () => {
  const { router } = shop({ required: true });
  const send = (path: string, key: string | null, item: string) =>
    fetchRequestHandler({
      endpoint: "/trpc",
      router,
      req: new Request(`http://shop/trpc/${path}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ item }),
      }),
      createContext: (): Ctx => ({ key, user: "ann" }),
    });
  const statuses: number[] = [];
  for (const [path, key, item] of [
    ["order", null, "a"],
    ["order", "k", "a"],
    ["order", "k", "a"],
    ["order", "k", "b"],
  ] as const)
    statuses.push((await send(path, key, item)).status);
  expect(statuses).toEqual([400, 200, 200, 422]);
  expect(handled).toBe(1);
});
