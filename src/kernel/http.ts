/**
 * Outgoing HTTP, as a port: `src/node/http.ts` has the real one, and the simulator has its own.
 *
 * A caller resolves a name once, checks every address, and sends the request to an address that it checked. Nothing here follows a redirect.
 */

export interface HttpRequest {
  readonly url: URL;
  /** The address to connect to; it is not resolved again. */
  readonly address: string;
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array | undefined;
  /** A longer body of the reply is cut here, and the connection is closed. */
  readonly mostBytes: number;
  /** Aborting it closes the connection. */
  readonly abortSignal: AbortSignal;
}

export interface HttpReply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
  /** The body was longer than `mostBytes`. */
  readonly isCut: boolean;
}

export interface HttpClient {
  /** All addresses of a name. Rejects if it has none. */
  resolve(hostname: string): Promise<readonly string[]>;
  /** Rejects if there is no whole reply. */
  send(request: HttpRequest): Promise<HttpReply>;
  /** Closes the connections that are kept. */
  close(): void;
}
