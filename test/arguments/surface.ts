/**
 * The public surface, as the compiler sees it: every function and method that users can call, each of its parameters, and each field of
 * the options it takes, as texts such as `Pawl.start(options).id`.
 *
 * What is exported is followed: functions, the methods of classes and interfaces, and objects of methods such as `pawl.runs`. A
 * parameter whose type is an interface or an object type of this project is followed into its fields; handles (classes, workflows,
 * signals, machines), callbacks and values of the user's own are not. Members marked `@internal` are left out.
 */

import { fileURLToPath } from "node:url";
import { API, type Checker, type Signature, SignatureKind, SymbolFlags, type Type } from "typescript/unstable/sync";

type Symbol = NonNullable<ReturnType<Type["getSymbol"]>>;

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** Types that are handed in whole: they are made by a function of their own, or are implemented by the user. */
const WHOLE: ReadonlySet<string> = new Set([
  "AbortSignal",
  "Date",
  "URL",
  "Workflow",
  "Schedule",
  "Signal",
  "Machine",
  "Codec",
  "Store",
  "Transform",
  "PgPool",
  "PgClient",
  "Place",
  "StandardSchema",
  "SqlExecutor",
  "SyncSql",
  "RunListener",
  "RunEvent",
  "Operation",
  "PreparedAction",
  "Upcasts",
]);

/** Types of the library that are made of fields of ours. */
const MADE_OF_OURS: ReadonlySet<string> = new Set(["Pick", "Omit", "Partial", "Readonly"]);

/** Everything that `entry` (a path below the repository) lets users call, with all parameters and option fields, sorted. */
export function surfaceOf(entries: readonly string[]): Map<string, string[]> {
  const api = new API({ cwd: ROOT });
  try {
    // What is published, without the tests and what they use: it is read in a third of the time.
    const snapshot = api.updateSnapshot({ openProjects: [`${ROOT}tsconfig.build.json`] });
    const found = new Map<string, string[]>();
    for (const entry of entries) {
      const project = snapshot.getProjects()[0];
      const source = project?.program.getSourceFile(`${ROOT}${entry}`);
      if (project === undefined || source === undefined) throw new Error(`${entry} is not part of the project`);
      const surface = new Surface(project.checker);
      const module = project.checker.getSymbolAtLocation(source);
      if (module === undefined) throw new Error(`${entry} exports nothing`);
      for (const one of project.checker.getExportsOfModule(module)) surface.exported(one);
      found.set(entry, [...surface.paths].sort());
    }
    return found;
  } finally {
    api.close();
  }
}

class Surface {
  readonly paths = new Set<string>();
  readonly #checker: Checker;

  constructor(checker: Checker) {
    this.#checker = checker;
  }

  exported(symbol: Symbol): void {
    const real = symbol.flags & SymbolFlags.Alias ? this.#checker.getAliasedSymbol(symbol) : symbol;
    const { name } = symbol;
    if (real.flags & SymbolFlags.Class || real.flags & SymbolFlags.Interface)
      this.#members(name, this.#checker.getDeclaredTypeOfSymbol(real));
    else if (real.flags & SymbolFlags.TypeAlias) {
      const type = this.#checker.getDeclaredTypeOfSymbol(real);
      if (this.#isPlain(type)) this.#members(name, type);
    } else {
      const type = this.#checker.getTypeOfSymbol(real);
      if (type !== undefined) this.#callable(name, type);
    }
  }

  #isInternal(symbol: Symbol): boolean {
    return this.#checker.getJsDocTagsOfSymbol(symbol).some(({ name }) => name === "internal");
  }

  #members(owner: string, type: Type): void {
    for (const member of this.#checker.getPropertiesOfType(type)) {
      if (/^(#|__|\W)/.test(member.name) || this.#isInternal(member)) continue;
      const memberType = this.#checker.getTypeOfSymbol(member);
      if (memberType === undefined) continue;
      const bare = this.#checker.getNonNullableType(memberType) ?? memberType;
      this.#callable(`${owner}.${member.name}`, bare);
    }
  }

  /** Signatures, and what hangs on a function or on an object without a name. */
  #callable(name: string, type: Type): void {
    const signatures = this.#checker.getSignaturesOfType(type, SignatureKind.Call);
    for (const signature of signatures) this.#signature(name, signature);
    if (signatures.length > 0 || this.#isNameless(type)) {
      if (this.#isOurs(type)) this.#members(name, type);
    }
  }

  #isNameless(type: Type): boolean {
    return type.isObjectType() && type.getSymbol()?.name === "__type" && !type.isTupleType();
  }

  #isOurs(type: Type): boolean {
    const declaration = type.getSymbol()?.declarations[0];
    return declaration?.path.includes("/src/") === true && !declaration.path.includes("node_modules");
  }

  #signature(name: string, signature: Signature): void {
    const parameters = signature.getParameters();
    if (parameters.length === 0) this.paths.add(`${name}()`);
    for (const [index, parameter] of parameters.entries()) {
      const type = this.#checker.getTypeOfSymbol(parameter);
      if (type === undefined) continue;
      const alias = type.getAliasSymbol()?.name;
      // The input where there is one, and options: `...[input, options]`.
      if (alias === "WithInput" || alias === "WithData") {
        const [, options] = type.getAliasTypeArguments();
        if (alias === "WithInput") this.paths.add(`${name}(input)`);
        this.paths.add(`${name}(options)`);
        if (options !== undefined) this.#fields(`${name}(options)`, options, []);
        continue;
      }
      if (alias === "ScheduleInput" || alias === "CreatedInput") {
        this.paths.add(`${name}(input)`);
        continue;
      }
      const shown = parameter.name.startsWith("__") ? `argument${index}` : parameter.name;
      this.paths.add(`${name}(${shown})`);
      this.#fields(`${name}(${shown})`, type, []);
    }
  }

  #fields(path: string, given: Type, above: readonly string[]): void {
    const type = this.#checker.getNonNullableType(given) ?? given;
    if (type.isUnionType()) {
      for (const one of type.getTypes()) this.#fields(path, one, above);
      return;
    }
    if (!this.#isPlain(type)) return;
    const shown = this.#checker.typeToString(type);
    if (above.includes(shown)) return;
    for (const field of this.#checker.getPropertiesOfType(type)) {
      if (/^(#|__|\W)/.test(field.name) || this.#isInternal(field)) continue;
      const fieldType = this.#checker.getTypeOfSymbol(field);
      this.paths.add(`${path}.${field.name}`);
      if (fieldType !== undefined) this.#fields(`${path}.${field.name}`, fieldType, [...above, shown]);
    }
  }

  /** An interface or object type of this project, with fields to fill in. */
  #isPlain(type: Type): boolean {
    if (type.isIntersectionType()) return type.getTypes().every((one) => this.#isPlain(one));
    if (!type.isObjectType() || type.isTupleType() || this.#checker.isArrayLikeType(type)) return false;
    if (this.#checker.getSignaturesOfType(type, SignatureKind.Call).length > 0) return false;
    const symbol = type.getSymbol();
    if (symbol === undefined || symbol.flags & SymbolFlags.Class) return false;
    const names = [symbol.name, type.getAliasSymbol()?.name ?? ""];
    if (names.some((name) => WHOLE.has(name))) return false;
    return this.#isOurs(type) || names.some((name) => MADE_OF_OURS.has(name));
  }
}
