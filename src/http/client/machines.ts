/**
 * State machines over HTTP: those whose definitions the server has, `createApp(pawl, { machines })`. The definition here is used for its types and its name.
 */

import type {
  CreateOptions,
  MachineEvent,
  MachineInstance,
  MachineListOptions,
  MachinePage,
  Transitioned,
  TransitionOptions,
  TryCreate,
  TryTransition,
  WithData,
} from "../../machine/results.ts";
import { isPawlError, PawlHttpError } from "./errors.ts";
import { PAGE, plain, type Sendings, sent, value } from "./options.ts";
import { entriesOf, type Paged, paged } from "./pages.ts";
import { type Named, nameOf } from "./runs.ts";
import { shown } from "./shapes.ts";
import type { WirePage } from "./slots.ts";
import { path, type Transport } from "./transport.ts";

/** A function cannot be sent: use `data` or `patch`, with `expectedVersion` where it depends on the data that was read. */
export type ClientTransitionOptions<Data> = Omit<TransitionOptions<Data>, "update">;

const REFUSALS: ReadonlySet<string> = new Set([
  "event_conflict",
  "guard_refused",
  "illegal_transition",
  "machine_not_found",
  "parking_full",
  "version_conflict",
]);

const CREATE: Sendings<CreateOptions<unknown>> = { actor: plain, reason: plain, data: value };
const TRANSITION: Sendings<ClientTransitionOptions<unknown>> = {
  ...CREATE,
  patch: value,
  expectedVersion: plain,
  whenEarly: plain,
  eventId: plain,
};
const LIST: Sendings<MachineListOptions> = { ...PAGE, state: plain };

/** The instances of one machine. */
export class ClientMachine<State extends string = string, Data = unknown, Given = Data | undefined> {
  readonly #transport: Transport;
  readonly #name: string;

  /** @internal */
  constructor(transport: Transport, machine: Named) {
    this.#transport = transport;
    this.#name = nameOf(machine, "the machine");
  }

  /** Creates an instance in the initial state. Throws `machine_exists`. */
  async create(id: string, ...[options]: WithData<Given>): Promise<MachineInstance<State, Data>> {
    const body = sent(options, CREATE);
    return shown(await this.#transport.post(this.#path(id), body), ["data"]);
  }

  /** Creates an instance in the initial state, or returns that one exists. */
  async tryCreate(id: string, ...rest: WithData<Given>): Promise<TryCreate<State, Data>> {
    try {
      return { ok: true, ...(await this.create(id, ...rest)) };
    } catch (error) {
      if (!isPawlError(error, "machine_exists")) throw error;
      const { state, version } = error.data;
      return { ok: false, code: "machine_exists", state: state as State, version };
    }
  }

  /** Returns the instance, or null if there is none. */
  async get(id: string): Promise<MachineInstance<State, Data> | null> {
    try {
      return shown(await this.#transport.get(this.#path(id)), ["data"]);
    } catch (error) {
      if (isPawlError(error, "machine_not_found")) return null;
      throw error;
    }
  }

  /** Moves an instance to a state. Throws the reason of a refusal, which is in the audit log. */
  async transition(
    id: string,
    to: State,
    options: ClientTransitionOptions<Data> = {},
  ): Promise<Transitioned<State, Data>> {
    const body = { ...sent(options, TRANSITION), to };
    // An event with an id counts once.
    const isRepeatable = options.eventId !== undefined;
    const request = { method: "POST", path: path("machines", this.#name, id, "transition"), body } as const;
    return shown(await this.#transport.call({ ...request, isRepeatable }), ["data"]);
  }

  /** Moves an instance to a state, or returns why it cannot. */
  async tryTransition(
    id: string,
    to: State,
    options?: ClientTransitionOptions<Data>,
  ): Promise<TryTransition<State, Data>> {
    try {
      return { ok: true, ...(await this.transition(id, to, options)) };
    } catch (error) {
      if (!(error instanceof PawlHttpError) || !REFUSALS.has(error.code)) throw error;
      return { ok: false, ...error.data, code: error.code } as unknown as TryTransition<State, Data>;
    }
  }

  /** Returns the audit log, in order; empty if there is no instance. Default limit: 100. */
  async history(
    id: string,
    options: { readonly after?: number | undefined; readonly limit?: number | undefined } = {},
  ): Promise<readonly MachineEvent<State>[]> {
    try {
      return await entriesOf(this.#transport, path("machines", this.#name, id, "history"), options);
    } catch (error) {
      if (isPawlError(error, "machine_not_found")) return [];
      throw error;
    }
  }

  /** Lists instances by id: awaited, a page; iterated, all of them. */
  list(options: MachineListOptions<State> = {}): Paged<MachinePage<State, Data>, MachineInstance<State, Data>> {
    return paged<MachinePage<State, Data>, MachineInstance<State, Data>>(
      async (after = options.after) => {
        const query = { ...sent(options, LIST), after };
        const json = await this.#transport.get(path("machines", this.#name), query);
        const { items, unreadable = [], next } = shown<WirePage<MachineInstance<State, Data>>>(json, ["data"]);
        return { instances: items, unreadable, next };
      },
      ({ instances }) => instances,
    );
  }

  #path(id: string): string {
    return path("machines", this.#name, id);
  }
}
