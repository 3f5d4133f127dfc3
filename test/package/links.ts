/**
 * The links of markdown files that are read in another place than the repository: in an installed package.
 *
 * A link is relative, in a sentence, an image, a reference definition or an HTML attribute. It must lead to a file or folder
 * among the given files, and its anchor to a heading of that page. Code is not searched. Addresses with a scheme are not followed.
 */

import { posix } from "node:path";

/** The links that lead nowhere, as "page: link". */
export function findDeadLinks(files: ReadonlyMap<string, string>): string[] {
  const pages = [...files].filter(([path]) => path.endsWith(".md"));
  return pages.flatMap(([page, text]) =>
    linksOf(text)
      .filter((link) => !leadsSomewhere(files, page, link))
      .map((link) => `${page}: ${link}`),
  );
}

export function linksOf(markdown: string): string[] {
  const text = withoutCode(markdown);
  const patterns = [/\]\(\s*<?([^\s)>]+)/g, /^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)/gm, /\b(?:href|src)="([^"]+)"/g];
  const links = patterns.flatMap((pattern) => [...text.matchAll(pattern)].map(([, link = ""]) => link));
  return links.filter((link) => !/^(?:[a-z][a-z+.-]*:|\/\/)/i.test(link));
}

/** How GitHub and npm name the headings of a page; a name that is taken gets a number. */
export function anchorsOf(markdown: string): string[] {
  const counts = new Map<string, number>();
  const headings = withoutFences(markdown).matchAll(/^#{1,6} +(.+?)(?: +#+)?$/gm);
  return [...headings].map(([, heading = ""]) => {
    const name = heading
      .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
      .toLowerCase()
      .replace(/[^\p{L}\p{N}_ -]/gu, "")
      .replaceAll(" ", "-");
    const count = counts.get(name) ?? 0;
    counts.set(name, count + 1);
    return count === 0 ? name : `${name}-${count}`;
  });
}

function leadsSomewhere(files: ReadonlyMap<string, string>, page: string, link: string): boolean {
  const [target = "", anchor] = link.split("#");
  const path = target === "" ? page : posix.join(posix.dirname(page), decodeURI(target)).replace(/\/$/, "");
  const content = files.get(path);
  if (anchor !== undefined) return content !== undefined && path.endsWith(".md") && anchorsOf(content).includes(anchor);
  return content !== undefined || [...files.keys()].some((other) => other.startsWith(`${path}/`));
}

function withoutCode(markdown: string): string {
  return withoutFences(markdown).replace(/(`+)(?!`).*?(?<!`)\1(?!`)/g, "");
}

function withoutFences(markdown: string): string {
  return markdown.replace(/^ *(```+|~~~+)[^\n]*\n[\s\S]*?^ *\1 *$/gm, "");
}
