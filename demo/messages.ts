/**
 * What the processes of the demonstration say to each other. It feeds the live picture and paces the shop; nothing that is
 * claimed in the end rests on it, because a process that is killed may not have said its last word.
 */

/** From the worker: what it has in hand, and what became of it. */
export type FromWorker =
  | { readonly is: "ready" }
  | { readonly is: "in hand"; readonly orders: readonly string[] }
  | { readonly is: "taken over"; readonly order: string }
  | { readonly is: "refused"; readonly order: string }
  | { readonly is: "freezing" };

export type ToWorker = { readonly is: "freeze" } | { readonly is: "stop" };

/** From a web process: it has committed the order, and whether it was the first to do so. */
export type FromWeb =
  | { readonly is: "ready" }
  | { readonly is: "placed"; readonly order: string; readonly isNew: boolean };

export type ToWeb = { readonly is: "order"; readonly id: string; readonly cents: number } | { readonly is: "stop" };

/** Tells the parent something; if the parent is gone, there is nobody to tell. */
export function tellParent(message: FromWorker | FromWeb, sent: () => void = () => {}): void {
  process.send?.(message, undefined, undefined, sent);
}

/** Listens to the parent. Ends with it, and leaves Ctrl-C to it. */
export function hearParent<Message>(hear: (message: Message) => void): void {
  process.on("message", (message) => hear(message as Message));
  process.on("disconnect", () => process.exit());
  process.on("SIGINT", () => {});
}
