/** The shop through Prisma, put together without its generator. */

import { connectPrisma, type PrismaTransaction } from "../prisma.ts";
import type { Connect } from "./library.ts";

const inPrisma = (transaction: PrismaTransaction) => (text: string, values: string[]) =>
  transaction.$queryRawUnsafe(text, ...values);

export const connect: Connect = async (url) => {
  const prisma = connectPrisma(url);
  return {
    order: (id, rest, { isSerializable = false } = {}) =>
      prisma.$transaction(
        async (transaction) => {
          await transaction.order.create({ data: { id, item: "teapot" } });
          return rest(inPrisma(transaction));
        },
        { isolationLevel: isSerializable ? "Serializable" : "ReadCommitted" },
      ),
    loose: inPrisma(prisma),
    close: () => prisma.$disconnect(),
  };
};
