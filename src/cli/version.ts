/** The version of the package. */

import { readFileSync } from "node:fs";

export function version(): string {
  // At the same distance in src/ and in dist/.
  const manifest: unknown = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
  return (manifest as { readonly version: string }).version;
}
