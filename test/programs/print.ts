/** Prints a case as code that a person can read: nearly the TypeScript that a user would have written. */

import type { Case, ForeignNode, Node, StepNode } from "./program.ts";
import { usedWorkflows } from "./program.ts";

export function printCase({ workflows, runs, signals, faults, stranger }: Case): string {
  const lines: string[] = [];
  const used = usedWorkflows({ workflows, runs });
  for (const [at, { name, style, timeoutMs, body }] of workflows.entries()) {
    if (!used.has(at)) continue;
    const options = timeoutMs === undefined ? JSON.stringify(name) : `{ name: "${name}", timeout: ${timeoutMs} }`;
    lines.push(`workflow(${options}, ${style === "async" ? "async (ctx)" : "function* (ctx)"} => {`);
    lines.push(...printBody(body, style === "async" ? "await" : "yield*", 1), "});");
  }
  for (const run of runs) {
    const { id, workflow, startMs, cancelMs, force, retries, cancelsRetry, restarts, underLock } = run;
    const more = [
      cancelMs === undefined ? "" : `cancel${force === true ? " by force" : ""} after ${cancelMs} ms`,
      retries > 0 ? `retry() up to ${retries} times` : "",
      cancelsRetry === true ? "cancel immediately after that" : "",
      restarts ? "restart once" : "",
      underLock === true ? "under pawl.lock" : "",
    ].filter(Boolean);
    lines.push(
      `start("${workflows[workflow]?.name}", { id: "${id}" }) after ${startMs} ms${more.map((one) => `; ${one}`).join("")}`,
    );
  }
  for (const { run, name, atMs } of signals) lines.push(`signal("${run}", "${name}") after ${Math.round(atMs)} ms`);
  if (stranger === true) lines.push("// one of the workers has other code");
  lines.push(faults ? "// with faults" : "// without faults");
  return lines.join("\n");
}

function printBody(body: readonly Node[], wait: string, depth: number): string[] {
  return body.flatMap((node) => printNode(node, wait, depth));
}

function printNode(node: Node, wait: string, depth: number): string[] {
  const pad = "  ".repeat(depth);
  const inner = (body: readonly Node[]): string[] => printBody(body, wait, depth + 1);
  const line = (text: string): string => `${pad}${text}`;
  switch (node.op) {
    case "group":
      return [
        line(`${wait} ${node.how}([`),
        ...node.of.flatMap((branch) => {
          const [only] = branch;
          if (branch.length === 1 && only !== undefined && expression(only) !== undefined)
            return [line(`  ${expression(only)},`)];
          return [line("  (async () => {"), ...printBody(branch, wait, depth + 2), line("  })(),")];
        }),
        line("]);"),
      ];
    case "loop":
      return [line(`for (let i = 0; i < ${node.times}; i++) {`), ...inner(node.body), line("}")];
    case "try":
      return [
        line("try {"),
        ...inner(node.body),
        ...(node.catch === undefined ? [] : [line("} catch {"), ...inner(node.catch)]),
        ...(node.finally === undefined ? [] : [line("} finally {"), ...inner(node.finally)]),
        line("}"),
      ];
    case "throw":
      return [line(`${node.outage ? "if (outage) " : ""}throw new TypeError("${node.name}");`)];
    case "later":
      return [
        ...node.of.map((one, at) =>
          line(
            `${node.awaited.includes(at) ? `const p${at} = ` : ""}${expression(one)};${node.awaited.includes(at) ? "" : " // not awaited"}`,
          ),
        ),
        ...printBody(node.between, wait, depth),
        ...node.awaited.map((at) => line(`${wait} p${at};`)),
      ];
    case "remind":
      return [
        line(
          `while ((${wait} Promise.race([ctx.waitForSignal("${node.signal}"), ctx.sleep(${node.everyMs})])) === undefined) {${node.mailMs === undefined ? "" : ` ${wait} ctx.sleep(${node.mailMs}); `}}`,
        ),
      ];
    case "foreign":
      return [line(`await ${foreign(node)}; // foreign`)];
    case "afterEnd":
      return [line(`setTimeout(() => ctx.sleep(1000), ${node.ms}); // after the end of the run`)];
    case "fan":
      return [line(`${wait} Promise.all(Array.from({ length: ${node.count} }, (_, i) => one of ${node.of}));`)];
    case "shield":
      return [line(`${wait} ctx.shield(async (ctx) => {`), ...inner(node.body), line("});")];
    case "lock":
      if (node.verb === "with")
        return [
          line(`${wait} ctx.${node.kind}("${node.name}")${timeout(node.timeoutMs)}.with(async () => {`),
          ...inner(node.body),
          line("});"),
        ];
      return [
        line(
          `const hold = ${wait} ctx.${node.kind}("${node.name}").${node.verb === "try" ? "tryAcquire" : "acquire"}(${timeout(node.timeoutMs)});`,
        ),
        ...printBody(node.body, wait, depth),
        line(`${wait} hold.release();`),
      ];
    default:
      return [line(`${wait} ${expression(node)};`)];
  }
}

function foreign({ ms, racedMs }: ForeignNode): string {
  const promise = ms === "never" ? "new Promise(() => {})" : `setTimeout(${ms})`;
  return racedMs === undefined ? promise : `Promise.race([ctx.sleep(${racedMs}), ${promise}])`;
}

const timeout = (ms: number | undefined): string => (ms === undefined ? "" : `{ timeout: ${ms} }`);

/** An operation without its `await`. */
function expression(node: Node): string | undefined {
  switch (node.op) {
    case "step":
      return step(node);
    case "sleep":
      return node.until === true ? `ctx.sleepUntil(now + ${node.ms})` : `ctx.sleep(${node.ms})`;
    case "wait":
      return `ctx.waitFor${node.signals.length > 1 ? "Any" : "Signal"}(${node.signals.map((name) => `"${name}"`).join(", ")}${node.timeoutMs === undefined ? "" : `, { timeout: ${node.timeoutMs} }`})`;
    case "child": {
      const options = [
        node.id === undefined ? "" : `id: "${node.id}"`,
        node.whenParentEnds === undefined ? "" : `whenParentEnds: "${node.whenParentEnds}"`,
      ].filter(Boolean);
      return `ctx.${node.verb}(workflow #${node.workflow}, ${node.input}${options.length === 0 ? "" : `, { ${options.join(", ")} }`})`;
    }
    case "slot":
      return `ctx.slot("${node.name}", { scope: "${node.scope}" }).${node.verb}()`;
    case "rate":
      return `ctx.rateLimit("${node.name}", { max: 1, per: 3000 }).acquire(${timeout(node.timeoutMs)})`;
    case "lock":
      return `ctx.${node.kind}("${node.name}").with(async () => { ${node.body.map((one) => `await ${expression(one) ?? one.op};`).join(" ")} })`;
    default:
      return undefined;
  }
}

function step(node: StepNode): string {
  const { name, kind, op: _op, ms, fails, mistake, beats, locks, ...options } = node;
  const does = [
    ms > 0 ? `takes ${ms} ms` : "",
    fails === undefined
      ? ""
      : fails === "outage"
        ? "fails until mended"
        : fails === "always"
          ? "always fails"
          : `fails ${fails} times`,
    beats === true ? "heartbeats" : "",
    locks === true ? "takes pawl.lock" : "",
    mistake ?? "",
  ].filter(Boolean);
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  const shown =
    given.length === 0 ? "" : `, { ${given.map(([key, value]) => `${key}: ${JSON.stringify(value)}`).join(", ")} }`;
  const verb = kind === "plain" ? "step" : kind === "tx" ? "step.tx" : "step.atMostOnce";
  return `ctx.${verb}("${name}", ${does.length === 0 ? "ok" : `/* ${does.join(", ")} */`}${shown})`;
}
