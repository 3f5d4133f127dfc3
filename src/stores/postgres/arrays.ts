/**
 * Arrays for PostgreSQL, in binary form: no quoting, no escaping, no parsing on the server.
 *
 * Layout: number of dimensions, whether there are nulls, the element type; length and first index of the one dimension; then
 * each element as its length and its bytes, where a length of -1 is null.
 */

const INT8 = 20;
const TEXT = 25;
const HEADER = 20;
const ELEMENT = 4;

function header(array: Buffer, length: number, type: number): void {
  array.writeInt32BE(1, 0);
  array.writeInt32BE(1, 4);
  array.writeInt32BE(type, 8);
  array.writeInt32BE(length, 12);
  array.writeInt32BE(1, 16);
}

/** Whole numbers of at most 2^53. */
export function int8Array(numbers: readonly (number | null)[]): Buffer {
  const array = Buffer.allocUnsafe(HEADER + numbers.length * (ELEMENT + 8));
  header(array, numbers.length, INT8);
  let at = HEADER;
  for (const number of numbers)
    if (number === null) at = array.writeInt32BE(-1, at);
    else {
      at = array.writeInt32BE(8, at);
      at = array.writeInt32BE(Math.floor(number / 0x1_0000_0000), at);
      at = array.writeUInt32BE(number >>> 0, at);
    }
  return array.subarray(0, at);
}

export function textArray(texts: readonly (string | null)[]): Buffer {
  let bytes = HEADER;
  for (const text of texts) bytes += ELEMENT + (text === null ? 0 : text.length * 3);
  const array = Buffer.allocUnsafe(bytes);
  header(array, texts.length, TEXT);
  let at = HEADER;
  for (const text of texts)
    if (text === null) at = array.writeInt32BE(-1, at);
    else {
      const written = array.write(text, at + ELEMENT, "utf8");
      array.writeInt32BE(written, at);
      at += ELEMENT + written;
    }
  return array.subarray(0, at);
}
