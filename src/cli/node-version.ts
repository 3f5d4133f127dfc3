/** Which Node Pawl works on: what `engines` of package.json says. A Node of any age can load this file. */

/** Why this Node will not do; undefined if it does. */
export function refusalOf(version: string): string | undefined {
  const [major = 0, minor = 0, patch = 0] = version.split(".").map(Number);
  const is22 = major === 22 && (minor > 22 || (minor === 22 && patch >= 3));
  if (is22 || major > 24 || (major === 24 && minor >= 15)) return undefined;
  return `Pawl needs Node 22 from 22.22.3 on, or Node 24.15 or later, and this is Node ${version}`;
}
