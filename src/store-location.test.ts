/**
 * Goal: every usual form of a location is accepted, and what looks like another store or a mistake is refused, with what
 * to write instead, before a file is created.
 * Method: two tables, one of what is opened and one of what is refused; each refusal goes through `open`, with a look at the folder.
 */

import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { open } from "./open.ts";
import { locationOf, type StoreLocation } from "./store-location.ts";

const folder = mkdtempSync(join(tmpdir(), "pawl-location-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const sqlite = (path: string): StoreLocation => ({ is: "sqlite", path });
const isWindows = process.platform === "win32";

describe("what is opened", () => {
  const locations: readonly [given: string | URL, location: StoreLocation][] = [
    ["memory:", { is: "memory" }],
    ["postgres://localhost/x", { is: "postgres", url: "postgres://localhost/x" }],
    ["postgresql://a:b@h:5432/x?sslmode=require", { is: "postgres", url: "postgresql://a:b@h:5432/x?sslmode=require" }],
    ["POSTGRES://localhost/x", { is: "postgres", url: "POSTGRES://localhost/x" }],
    // A plain path is what it says, to the letter.
    ["x.db", sqlite("x.db")],
    ["./x.db", sqlite("./x.db")],
    ["../data/x.db", sqlite("../data/x.db")],
    ["/abs/x.db", sqlite("/abs/x.db")],
    ["x", sqlite("x")],
    ["my data.db", sqlite("my data.db")],
    ["50%25.db", sqlite("50%25.db")],
    ["what?.db", sqlite("what?.db")],
    ["a#b.db", sqlite("a#b.db")],
    ["a=b.db", sqlite("a=b.db")],
    ["memory.db", sqlite("memory.db")],
    ["undefined.db", sqlite("undefined.db")],
    ["C:\\x.db", sqlite("C:\\x.db")],
    ["c:/data/x.db", sqlite("c:/data/x.db")],
    ["\\\\server\\share\\x.db", sqlite("\\\\server\\share\\x.db")],
    // A name that would be refused, said to be a file's.
    ["./memory", sqlite("./memory")],
    ["./mysql:foo", sqlite("./mysql:foo")],
    ["./host=localhost dbname=x", sqlite("./host=localhost dbname=x")],
    ["/data/jobs:v2.db", sqlite("/data/jobs:v2.db")],
    // Relative.
    ["sqlite:x.db", sqlite("x.db")],
    ["sqlite:./x.db", sqlite("./x.db")],
    ["sqlite:../x.db", sqlite("../x.db")],
    ["SQLite:x.db", sqlite("x.db")],
    ["file:x.db", sqlite("x.db")],
    ["file:./my%20data.db", sqlite("./my data.db")],
    ["sqlite:my%20data.db", sqlite("my data.db")],
    ["sqlite:50%25.db", sqlite("50%.db")],
    ["file:what%3F.db", sqlite("what?.db")],
    ["file:Z%C3%BCrich.db", sqlite("Zürich.db")],
  ];
  test.each(locations)("%s", (given, location) => expect(locationOf(given)).toEqual(location));

  const absolute: readonly [given: string | URL, path: string][] = [
    ["sqlite:///abs/x.db", "/abs/x.db"],
    ["sqlite:/abs/x.db", "/abs/x.db"],
    ["file:///abs/x.db", "/abs/x.db"],
    ["file:/abs/x.db", "/abs/x.db"],
    ["FILE:///abs/x.db", "/abs/x.db"],
    ["file://localhost/abs/x.db", "/abs/x.db"],
    ["sqlite:///abs/my%20data.db", "/abs/my data.db"],
    ["file:///abs/my data.db", "/abs/my data.db"],
    ["file:///abs/50%25.db", "/abs/50%.db"],
    ["file:///abs/a%23b%3F.db", "/abs/a#b?.db"],
    ["file:///Z%C3%BCrich/Zürich.db", "/Zürich/Zürich.db"],
    [new URL("file:///abs/x.db"), "/abs/x.db"],
    [new URL("file:///abs/my%20data.db"), "/abs/my data.db"],
    [new URL("file:///abs/a%23b%3F%25.db"), "/abs/a#b?%.db"],
  ];
  test.each(absolute)("%s", (given, path) => {
    // There, an absolute path has a drive.
    const [from, to] = isWindows
      ? [String(given).replace(/^(\w+:)\/*(localhost)?\//, "$1///C:/"), `C:${path.replaceAll("/", "\\")}`]
      : [given, path];
    expect(locationOf(from)).toEqual(sqlite(to));
  });

  const ways: readonly [way: string, given: (path: string) => string | URL][] = [
    ["its path", (path) => path],
    ["a URL", (path) => pathToFileURL(path)],
    ["the text of its URL", (path) => pathToFileURL(path).href],
    ["sqlite: and its URL", (path) => pathToFileURL(path).href.replace("file:", "sqlite:")],
  ];
  test.each(ways)("the same file by %s", async (way, given) => {
    const path = join(folder, "näme #1 50%.db");
    for (const where of [given(path), { store: given(path) }]) {
      const pawl = await open(where);
      await pawl.slot<string>("way").set(way);
      await pawl.close();
      const db = new DatabaseSync(path);
      expect(db.prepare("select value from pawl_now where key = 'way'").get()).toEqual({ value: JSON.stringify(way) });
      db.close();
    }
    expect(readdirSync(folder).filter((name) => name.endsWith(".db"))).toEqual(["näme #1 50%.db"]);
  });
});

describe("what is refused", () => {
  const refused: readonly [given: string | URL, words: RegExp][] = [
    // Blank, or nearly.
    ["", /the path of a file/],
    [" ", /the path of a file/],
    ["\n", /the path of a file/],
    [" x.db", /must not begin or end with whitespace/],
    ["x.db ", /must not begin or end with whitespace/],
    ["x.db\n", /must not begin or end with whitespace/],
    ["postgres://localhost/x\n", /must not begin or end with whitespace/],
    [" memory:", /must not begin or end with whitespace/],
    // Memory by another name.
    ["memory", /must be written "memory:"/],
    ["Memory", /must be written "memory:"/],
    ["MEMORY:", /must be written "memory:"/],
    [":memory:", /must be written "memory:"/],
    [":memory", /must be written "memory:"/],
    ["sqlite::memory:", /must be written "memory:"/],
    ["sqlite://:memory:", /must be written "memory:"/],
    ["file::memory:", /must be written "memory:"/],
    ["memory://", /"memory:" for tests/],
    // Servers.
    ["postgres:mydb", /two slashes.*"postgres:\/\/user@host\/database"/],
    ["postgresql:mydb", /two slashes/],
    ["postgres:/mydb", /two slashes/],
    ["postgress://localhost/x", /must not begin with "postgress:".*"postgres:\/\/user@host\/database"/],
    ["postgre://localhost/x", /must not begin with "postgre:"/],
    ["pg://localhost/x", /must not begin with "pg:"/],
    ["mysql:foo", /must not begin with "mysql:"/],
    ["mysql://ann:hunter2@localhost/x", /must not begin with "mysql:"/],
    ["mongodb+srv://ann:hunter2@cluster/x", /must not begin with "mongodb\+srv:"/],
    ["redis://localhost", /must not begin with "redis:"/],
    ["https://example.com/x.db", /must not begin with "https:"/],
    ["jdbc:sqlite:x.db", /must not begin with "jdbc:"/],
    ["sqlite3:x.db", /must not begin with "sqlite3:".*"sqlite:x.db"/],
    ["sqllite:x.db", /must not begin with "sqllite:"/],
    ["jobs:v2.db", /a file of that name is ".\/jobs:…"/],
    ["localhost:5432/x", /must be a URL: write "postgres:\/\/user@host:5432\/database"/],
    ["localhost:5432", /must be a URL/],
    ["127.0.0.1:5432/x", /must be a URL/],
    ["host=localhost dbname=x", /a list of settings: write "postgres:\/\/user@host:5432\/database"/],
    ["dbname=x", /a list of settings/],
    ["user=ann password=hunter2 host=localhost", /a list of settings/],
    ["Server=localhost;Database=x;User Id=ann;Password=hunter2", /a list of settings/],
    ["Data Source=x.db", /a list of settings/],
    ["application_name=x connect_timeout=10 host=localhost", /a list of settings/],
    // Files that are not said rightly.
    ["sqlite:", /the path of a file after "sqlite:"/],
    ["file:", /the path of a file after "file:"/],
    ["sqlite://", /the path of a file/],
    ["file:///", /the path of a file/],
    ["sqlite://x.db", /must not have a host: write "sqlite:x.db".*three slashes/],
    ["file://x.db", /must not have a host/],
    ["file://server/share/x.db", /must not have a host/],
    ["sqlite:x.db?mode=ro", /must not have a query or fragment/],
    ["file:x.db?mode=memory", /must not have a query or fragment/],
    ["file:///abs/x.db?cache=shared", /must not have a query or fragment/],
    ["sqlite:x.db#a", /must not have a query or fragment/],
    ["sqlite:50%.db", /"%" in a URL that encodes nothing: write %25/],
    ["file:///abs/%zz.db", /"%" in a URL that encodes nothing/],
    ["file:///abs/%ff.db", /UTF-8/],
    ["file:a%2Fb.db", /an encoded NUL or slash/],
    ["file:a%00.db", /an encoded NUL or slash/],
    ["file:///abs/a\nb.db", /control characters/],
    ["sqlite:a\tb.db", /control characters/],
    ["a\0.db", /NUL/],
    // What went wrong before it came here.
    ["undefined", /a missing setting becomes/],
    ["null", /a missing setting becomes/],
    ["[object Object]", /a missing setting becomes/],
    ['"x.db"', /without quotes/],
    ["'postgres://localhost/x'", /without quotes/],
    // URLs.
    [new URL("https://example.com/x.db"), /must not be a URL of "https:"/],
    [new URL("postgres://ann:hunter2@localhost/x"), /must not be a URL of "postgres:": give it as a string/],
    [new URL("file:///abs/x.db?mode=ro"), /must not have a query or fragment/],
    [new URL("file:///abs/x.db#a"), /must not have a query or fragment/],
    [new URL("file://server/share/x.db"), /must not have a host/],
  ];
  test.each(refused)("%j, and no file is made", async (given, words) => {
    const before = readdirSync(".");
    for (const where of [given, { store: given }]) {
      const refusal = await open(where).then(
        () => "opened",
        (error: unknown) => error,
      );
      expect(refusal).toMatchObject({ code: "invalid_argument", message: expect.stringMatching(words) });
      expect(String(refusal)).not.toContain("hunter2");
    }
    expect(readdirSync(".")).toEqual(before);
  });
});
