/**
 * Goal: the PostgreSQL store keeps every law of the store contract.
 * Method: the suite that users get, on the newest version with four lanes. Other lanes, other versions and other ways to get there are in
 * the long suite.
 */

import { again, testLaws } from "./laws.ts";
import { freshDatabase } from "./server.ts";

testLaws([
  {
    name: "version 18, four lanes",
    lanes: 4,
    async arrive() {
      const { url, drop } = await freshDatabase();
      return again(url, drop);
    },
  },
]);
