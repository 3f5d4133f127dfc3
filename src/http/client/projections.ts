/**
 * Operating projections over HTTP: `pawl.projections`, and `pawl.projection` by name. Their rows are not served.
 */

import type { ProjectionRebuildOptions } from "../../stream/projections/projections.ts";
import type { ProjectionInfo, ProjectionStatus } from "../../stream/projections/status.ts";
import { plain, type Sendings, sent } from "./options.ts";
import { shown } from "./shapes.ts";
import type { WirePage } from "./slots.ts";
import { path, type Transport } from "./transport.ts";

const REBUILD: Sendings<ProjectionRebuildOptions> = { from: plain };

export class ClientProjections {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** All projections that a worker has begun to build and that were not deleted, in the order of their names. */
  async list(): Promise<readonly ProjectionInfo[]> {
    return shown<WirePage<ProjectionInfo>>(await this.#transport.get(path("projections"))).items;
  }
}

export class ClientProjection {
  readonly #transport: Transport;
  readonly name: string;

  /** @internal */
  constructor(transport: Transport, name: string) {
    this.#transport = transport;
    this.name = name;
  }

  /** What it is doing. Throws `projection_not_found`. */
  async status(): Promise<ProjectionStatus> {
    const json = await this.#transport.get(path("projections", this.name));
    const { live, building } = shown<ProjectionInfo>(json);
    return { live, building };
  }

  /**
   * Builds it again beside what readers see, with the code that built it last. Where one is being built already, that continues, unless it does not get
   * ahead. Returns the number of the generation. Throws `projection_not_found`.
   */
  async rebuild(options: ProjectionRebuildOptions = {}): Promise<number> {
    const body = sent(options, REBUILD);
    const json = await this.#transport.post(path("projections", this.name, "rebuild"), body);
    return (json as { readonly generation: number }).generation;
  }

  /** Removes it, with its rows where they are in Pawl's records. A worker that has its code builds it again when it is started. */
  async delete(): Promise<void> {
    await this.#transport.call({ method: "DELETE", path: path("projections", this.name) });
  }
}
