/**
 * Lets a Node that has no `using` (22) run TypeScript files that have: `node --import ./scripts/lower-using.mjs file.ts`.
 *
 * Users of such a Node compile their code for ES2022; here the examples and the benchmark run from source, so the same is done
 * when a file is loaded. Files without `using` are left to Node. On a newer Node this changes nothing.
 */

import { createRequire, registerHooks } from "node:module";

if (!hasUsing()) {
  const require = createRequire(import.meta.url);
  registerHooks({
    load(url, context, nextLoad) {
      const loaded = nextLoad(url, context);
      if (loaded.format !== "module-typescript") return loaded;
      const source = Buffer.from(loaded.source).toString("utf8");
      if (!/^\s*(?:await )?using \w/m.test(source)) return loaded;
      const { code, errors } = require("rolldown/utils").transformSync(url, source, {
        lang: "ts",
        target: "es2022",
        helpers: { mode: "External" },
      });
      if (errors.length > 0) throw new Error(`${url}: ${errors[0].message}`);
      const helpers = `import { usingCtx as pawlUsing } from ${JSON.stringify(import.meta.url)};
const babelHelpers = { usingCtx: pawlUsing };
`;
      return { ...loaded, format: "module", source: helpers + code };
    },
  });
}

function hasUsing() {
  try {
    return new Function("{ using a = null; }") !== null;
  } catch {
    return false;
  }
}

/** The helper that lowered code calls: `u` and `a` note a resource, `e` takes the body's error, `d` disposes of all. */
export function usingCtx() {
  const none = {};
  const resources = [];
  const note = (isAsync) => (value) => {
    if (value === null || value === undefined) {
      if (isAsync) resources.push({ isAsync });
      return value;
    }
    const dispose = (isAsync ? value[Symbol.asyncDispose] : undefined) ?? value[Symbol.dispose];
    if (typeof dispose !== "function") throw new TypeError("The value of `using` cannot be disposed of.");
    resources.push({ isAsync, value, dispose });
    return value;
  };
  return {
    e: none,
    u: note(false),
    a: note(true),
    d() {
      let error = this.e;
      const fail = (thrown) => {
        error =
          error === none
            ? thrown
            : Object.assign(new Error("disposing failed too"), { error: thrown, suppressed: error });
      };
      const next = () => {
        for (let resource = resources.pop(); resource !== undefined; resource = resources.pop()) {
          try {
            const result = resource.dispose?.call(resource.value);
            if (resource.isAsync) return Promise.resolve(result).catch(fail).then(next);
          } catch (thrown) {
            fail(thrown);
          }
        }
        if (error !== none) throw error;
      };
      return next();
    },
  };
}
