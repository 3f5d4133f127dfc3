// Goal: what a decision has only read is protected like what it writes, also if it found nothing (G10, G11). Method: of two slots that
// exclude each other, two processes set one each, if the other is not set. Before that, both are absent, or both exist and are not set. A
// process that writes without noticing what the other wrote meanwhile sets both.

import type { World } from "../../src/testing/index.ts";
import { until } from "../simulation/scenarios/transfers.ts";

const PAIRS = ["absent-1", "there-1", "absent-2", "there-2"];

export const exclusion = {
  name: "of two that exclude each other, one is set",
  async scenario(world: World): Promise<void> {
    for (const [mine, other] of [
      ["left", "right"],
      ["right", "left"],
    ])
      world.process(`${mine}`, async (process) => {
        const { pawl } = process;
        const slot = (pair: string, side = "") => pawl.slot<boolean>(`${pair}/${side}`, { initial: false });
        for (const [index, pair] of PAIRS.entries()) {
          const touches = [slot(pair, mine), slot(pair, other)] as const;
          const make = () =>
            pawl.transact((tx) => {
              for (const one of touches) if (tx.slot(one).get().version === 0) tx.slot(one).set(false);
            });
          if (pair.startsWith("there")) await until(make, process);
          // So that they meet.
          await process.sleep(Math.max(0, (index + 1) * 10_000 - world.nowMs));
          await until(async () => {
            const [own, its] = touches;
            await pawl.transact((tx) => void (tx.slot(its).get().value || tx.slot(own).set(true)), { touches });
          }, process);
        }
      });
    await world.finish();
    const pawl = world.open();
    for (const pair of PAIRS) {
      const [left, right] = await Promise.all(
        ["left", "right"].map((side) => pawl.slot<boolean>(`${pair}/${side}`, { initial: false }).get()),
      );
      world.check(left?.value !== right?.value, `${pair}: left is ${left?.value} and right is ${right?.value}`);
    }
  },
};
