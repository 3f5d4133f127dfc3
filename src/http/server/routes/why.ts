/** Why something waits, as `pawl.whyWaiting` says it. */

import { z } from "@hono/zod-openapi";
import { list } from "../schemas.ts";

export const Why = z
  .object({
    isWaiting: z.boolean(),
    says: z.string(),
    chain: list(z.object({ is: z.string(), name: z.string(), says: z.string() })),
  })
  .openapi("WaitReason");
