/**
 * The commands through a server: the client has the verbs of the library. What only the database can say is refused, with what to give instead.
 */

import { createClient } from "../http/client/index.ts";
import { toWire } from "../http/client/values.ts";
import type { Backend, LockName } from "./backend.ts";
import { backendOn, type Keys, type OperatedLock, type Verbs } from "./calls.ts";
import { CliError } from "./exit-codes.ts";

/** A command does not wait long for a server that is not there. */
const PATIENCE = "5s";

const unsupported = (what: string) => async (): Promise<never> => {
  throw new CliError("not_supported", `a server does not ${what}: give --store instead of --url`);
};

export function httpBackend({ url, key }: { readonly url: string; readonly key?: string | undefined }): Backend {
  const client = createClient({ url, key, patience: PATIENCE });
  const lock = ({ kind, name }: LockName): OperatedLock => {
    if (kind === "rwlock")
      throw new CliError("not_supported", "a server has no rwlocks: give --store instead of --url");
    const one = kind === "mutex" ? client.mutex(name) : client.semaphore(name);
    return {
      inspect: () => one.inspect(),
      history: () => one.history(),
      forceRelease: ({ reason }) => one.forceRelease({ reason }),
    };
  };
  // A server knows by the key who asks: it takes no other name.
  const keys: Keys = {
    create: ({ by: _, ...request }) => client.keys.create(request),
    list: (options) => client.keys.list(options),
    get: (id) => client.keys.get(id),
    rotate: (id, { grace }) => client.keys.rotate(id, { grace }),
    revoke: (id) => client.keys.revoke(id),
    history: (id) => client.keys.history(id),
  };
  const { reactions, actions } = client;
  const verbs: Verbs = {
    start: (workflow, input, options) => client.start(workflow, input, options),
    run: (id) => client.run(id),
    whyWaiting: (subject) => client.whyWaiting(subject),
    stream: (id) => {
      const stream = client.stream(id);
      return {
        // A server reads what is kept, unless it is asked for a version.
        read: ({ from, backwards }) => stream.read({ from: from === "kept" ? undefined : from, backwards }),
        head: () => stream.head(),
      };
    },
    runs: client.runs,
    workflows: client.workflows,
    schedules: client.schedules,
    slots: client.slots,
    projections: client.projections,
    projection: (name) => client.projection(name),
    tasks: client.tasks,
    reactions: {
      list: () => reactions.list(),
      get: (reaction) => reactions.get(reaction),
      targets: (reaction, options) => reactions.targets(reaction, options),
      unblock: (reaction, filter) => reactions.unblock(reaction, filter),
      reset: (reaction, filter) => reactions.reset(reaction, filter),
      prioritize: (reaction, filter) => reactions.prioritize(reaction, filter),
      pause: (reaction) => reactions.pause(reaction),
      resume: (reaction) => reactions.resume(reaction),
      redrive: (reaction, letter) => reactions.redrive(reaction, letter),
      deadLetters: (reaction, options) => reactions.deadLetters(reaction, options),
      skip: (reaction, target, { reason }) => reactions.skip(reaction, target, { reason }),
    },
    actions: {
      list: (options) => actions.list(options),
      get: (target) => actions.get(target),
      history: (target) => actions.history(target),
      cancel: (target, { reason }) => actions.cancel(target, { reason }),
    },
  };
  return backendOn(verbs, {
    place: url,
    keys,
    lock,
    listLocks: unsupported("list locks"),
    listStreams: unsupported("list streams"),
    exportStreams: unsupported("export streams"),
    toWire,
    framesOf: () => undefined,
    close: async () => {},
  });
}
