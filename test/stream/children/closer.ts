/**
 * A process that appends to streams and closes them, for ever, and says what it is about to do and what it did: for `closing.long.test.ts`, which kills it.
 */

import {
  type Archive,
  ConcurrencyError,
  event,
  jsonLinesArchive,
  open,
  StreamClosedError,
  StreamInUseError,
} from "../../../src/index.ts";

const [where = "", folder = "", name = ""] = process.argv.slice(2);
const Counted = event<{ readonly n: number }>("Counted");
const Opened = event<{ readonly by: string }>("Opened");
const STREAMS = ["s-0", "s-1", "s-2"];
const say = (line: string): void => void process.stdout.write(`${line}\n`);

const inner = jsonLinesArchive(folder);
/** Says how far it is, so that it can be killed there. */
const archive: Archive = {
  ...inner,
  async write(stream, events) {
    say("archiving");
    await inner.write(
      stream,
      (async function* () {
        for await (const one of events) {
          if (one.version % 25 === 0) say("passing");
          yield one;
        }
      })(),
    );
    say("archived");
  },
};

const pawl = await open(where, { archive, logger: false });
say("ready");
for (let i = 0; ; i++)
  for (const stream of STREAMS) {
    try {
      const events = Array.from({ length: 40 }, (_, n) => Counted({ n }));
      const { ids } = await pawl.stream(stream).append(events);
      for (const id of ids) say(`appended ${stream} ${id}`);
      const { version } = await pawl.streams.close(stream, { restart: Opened({ by: `${name} ${i}` }) });
      say(`closed ${stream} ${version}`);
    } catch (error) {
      // Another process is about to close it: help. It may have restarted it already, with its own event.
      if (error instanceof StreamClosedError)
        await pawl.streams.close(stream, { restart: Opened({ by: `${name} ${i}` }) }).catch((refused: unknown) => {
          if (!(refused instanceof ConcurrencyError)) throw refused;
        });
      else if (!(error instanceof StreamInUseError || error instanceof ConcurrencyError)) throw error;
    }
  }
