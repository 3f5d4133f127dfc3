/**
 * Reads a stream up to a limit, and returns either all of it, or a stream of what was read and the rest.
 */

export type ReadBody =
  | { readonly isWhole: true; readonly bytes: Uint8Array }
  /** The body exceeds the limit. `stream` has all of it, from the beginning. */
  | { readonly isWhole: false; readonly stream: ReadableStream<Uint8Array> };

/** Reads to the end, or to the first chunk beyond the limit; never buffers more than the limit and that chunk. */
export async function readUpTo(stream: ReadableStream<Uint8Array> | null, maxBytes: number): Promise<ReadBody> {
  if (stream === null) return { isWhole: true, bytes: new Uint8Array(0) };
  const reader = stream.getReader();
  const chunks: Uint8Array[] = [];
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return { isWhole: true, bytes: joined(chunks, length) };
    chunks.push(value);
    length += value.length;
    if (length > maxBytes) return { isWhole: false, stream: resumed(chunks, reader) };
  }
}

export function joined(chunks: readonly Uint8Array[], length: number): Uint8Array {
  const [first] = chunks;
  if (chunks.length === 1 && first !== undefined) return first;
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.length;
  }
  return bytes;
}

/** A stream of the chunks that were read, and then of the rest, read on demand. */
function resumed(
  chunks: readonly Uint8Array[],
  reader: ReadableStreamDefaultReader<Uint8Array>,
): ReadableStream<Uint8Array> {
  const read = [...chunks];
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const next = read.shift();
      if (next !== undefined) return controller.enqueue(next);
      const { done, value } = await reader.read();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: (reason) => reader.cancel(reason),
  });
}
