// Pawl inside an interactive transaction of Prisma: the order through the model, the stock through `within`.

import { open } from "pawl";
// Yours is the client that Prisma generated: new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) })
import { connectPrisma, type PrismaTransaction } from "../test/sql/prisma.ts";

const url = process.env["DATABASE_URL"] ?? "postgres://localhost/shop";
const prisma = connectPrisma(url);
const pawl = await open(url);
const stock = pawl.slot<number>("stock/teapot", { initial: 1 });
await prisma.$executeRawUnsafe("create table orders (id text primary key, item text not null)");

/** Runs Pawl's statements in an interactive transaction of Prisma. */
const inPrisma = (transaction: PrismaTransaction) => (text: string, values: string[]) =>
  transaction.$queryRawUnsafe(text, ...values);

function order(id: string): Promise<number> {
  return prisma.$transaction(async (transaction) => {
    await transaction.order.create({ data: { id, item: "teapot" } });
    return pawl.within(inPrisma(transaction), (tx) => {
      const { value } = tx.slot(stock).get();
      if (value === 0) throw new Error("sold out");
      tx.slot(stock).set(value - 1);
      return value - 1;
    });
  });
}

console.log("left:", await order("o-1"));
await order("o-2").catch((error: Error) => console.log("refused:", error.message));
console.log(await prisma.order.findMany({ select: { id: true } }), (await stock.get()).value);

await pawl.close();
await prisma.$disconnect();

// Output:
// left: 0
// refused: sold out
// [ { id: 'o-1' } ] 0
