/**
 * The messages between the processes of the demonstration. They are for the live picture and for the timing; the final checks
 * do not use them, because a process that is killed may not have sent its last message.
 */

/** From the worker: the orders that it works on, and their outcomes. */
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

/** Sends a message to the parent, if it still runs. */
export function sendToParent(message: FromWorker | FromWeb, sent: () => void = () => {}): void {
  process.send?.(message, undefined, undefined, sent);
}

/** Receives messages of the parent. Ends when the parent ends, and ignores Ctrl-C, which the parent handles. */
export function onParentMessage<Message>(onMessage: (message: Message) => void): void {
  process.on("message", (message) => onMessage(message as Message));
  process.on("disconnect", () => process.exit());
  process.on("SIGINT", () => {});
}
