/**
 * What a program may come to, whatever goes wrong around it: the values that each node can give, and the errors that it can throw.
 *
 * It is a set, and a generous one: with faults, timeouts strike where they would not otherwise, and races have other winners. A value that belongs
 * to another operation or another input is in no set.
 */

import type { Case, ChildNode, Node, StepNode } from "./program.ts";
import { nodesOf } from "./program.ts";
import { stepValue } from "./steps.ts";

/** The errors that the code may throw by itself. */
export function codesOf(plan: Case, body: readonly Node[]): ReadonlySet<string> {
  const codes = new Set<string>();
  const add = (nodes: readonly Node[]): void => {
    for (const node of nodes) for (const code of codesOfNode(plan, node, add)) codes.add(code);
  };
  add(body);
  return codes;
}

function codesOfNode(plan: Case, node: Node, add: (nodes: readonly Node[]) => void): readonly string[] {
  switch (node.op) {
    case "step":
      return stepCodes(node);
    case "child": {
      const codes = codesOf(plan, plan.workflows[node.workflow]?.body ?? []);
      // A child may be canceled with its parent, and that of another parent with the same id as well.
      return [...codes, ...conflicts(plan, node), "run_canceled", "run_timed_out"];
    }
    case "rate":
      return node.timeoutMs === undefined ? [] : ["rate_limited"];
    case "lock":
      add(node.body);
      return ["deadlock", ...(node.timeoutMs === undefined ? [] : ["lock_timeout"])];
    case "group":
      for (const branch of node.of) add(branch);
      return [];
    case "loop":
    case "shield":
      add(node.body);
      return [];
    case "try":
      add([...node.body, ...(node.catch ?? []), ...(node.finally ?? [])]);
      return [];
    case "later":
      add([...node.of, ...node.between]);
      return ["step_in_flight"];
    case "throw":
      return [`threw ${node.name}`];
    case "fan":
      return ["deadlock"];
    default:
      return [];
  }
}

const conflicts = (plan: Case, child: ChildNode): readonly string[] =>
  child.id !== undefined &&
  usesOf(plan, child).some(({ workflow, input }) => workflow !== child.workflow || input !== child.input)
    ? ["run_conflict"]
    : [];

const usesOf = (plan: Case, { id }: ChildNode): readonly ChildNode[] =>
  [...nodesOf(plan)].filter((node): node is ChildNode => node.op === "child" && node.id === id);

function stepCodes({
  name,
  fails,
  timeoutMs,
  totalTimeoutMs,
  heartbeatMs,
  mistake,
  semaphore,
}: StepNode): readonly string[] {
  return [
    "step_in_flight",
    ...(fails === undefined ? [] : [`boom ${name}`]),
    ...(timeoutMs === undefined && totalTimeoutMs === undefined && heartbeatMs === undefined ? [] : ["step_timeout"]),
    ...(mistake === "unstorable" ? ["invalid_value"] : []),
    ...(mistake === "nested step" || mistake === "nested sleep" ? ["nested_operation"] : []),
    ...(semaphore === undefined ? [] : ["deadlock"]),
  ];
}

/** Says what is wrong with the value of a body; undefined if nothing is. */
export function allows(plan: Case, body: readonly Node[], value: unknown): string | undefined {
  if (!Array.isArray(value) || value.length !== body.length)
    return `${JSON.stringify(value)} is no list of ${body.length} values`;
  for (const [at, node] of body.entries()) {
    const wrong = allowsNode(plan, node, value[at]);
    if (wrong !== undefined) return wrong;
  }
  return undefined;
}

function allowsNode(plan: Case, node: Node, value: unknown): string | undefined {
  const is = (...allowed: readonly unknown[]): string | undefined =>
    allowed.includes(value)
      ? undefined
      : `${JSON.stringify(value)} is no value of ${node.op}${"name" in node ? ` ${node.name}` : ""}`;
  const nodes = (body: readonly Node[]): string | undefined => allows(plan, body, value);
  switch (node.op) {
    case "step":
      return is(stepValue(node));
    case "sleep":
      return is("void");
    case "wait":
      return is(
        ...node.signals.map((name) => `signal ${name}`),
        ...(node.timeoutMs === undefined ? [] : ["no signal"]),
      );
    case "slot":
      return is("slot");
    case "rate":
      return is("turn");
    case "child":
      return allowsChild(plan, node, value);
    case "lock":
      return value === "busy" && node.verb === "try" ? undefined : nodes(node.body);
    case "loop":
      if (!Array.isArray(value) || value.length !== node.times)
        return `a loop of ${node.times} gave ${JSON.stringify(value)}`;
      for (const one of value) {
        const wrong = allows(plan, node.body, one);
        if (wrong !== undefined) return wrong;
      }
      return undefined;
    case "shield":
      return nodes(node.body);
    case "group":
      return allowsGroup(plan, node, value);
    case "try": {
      if (!Array.isArray(value)) return `a try gave ${JSON.stringify(value)}`;
      if (value[0] === "ok") return allows(plan, node.body, value[1]);
      const codes = codesOf(plan, node.body);
      const code = String(value[1]);
      if (!codes.has(code) && code !== "run_canceled" && code !== "run_timed_out")
        return `a try caught ${code}, which its body cannot throw`;
      return allows(plan, node.catch ?? [], value[2]);
    }
    case "later": {
      if (!Array.isArray(value)) return `${JSON.stringify(value)} is no value of what is awaited later`;
      const awaited = node.awaited.map((at) => node.of[at] as Node);
      return allows(plan, node.between, value[0]) ?? allows(plan, awaited, value[1]);
    }
    case "remind":
      return is("reminded");
    case "throw":
      return node.outage ? is("mended") : `${node.name} did not throw`;
    case "foreign":
      return is("foreign");
    case "afterEnd":
      return is("after end");
    case "fan":
      return is(`fan ${node.count}`);
  }
}

function allowsChild(plan: Case, node: ChildNode, value: unknown): string | undefined {
  const { name, body } = plan.workflows[node.workflow] ?? {};
  if (node.verb === "start") return typeof value === "string" ? undefined : `${JSON.stringify(value)} is no run's id`;
  const given = value as { readonly of?: unknown; readonly input?: unknown; readonly body?: unknown };
  if (given.of !== name || given.input !== node.input)
    return `ctx.call of ${name} with input ${node.input} gave ${JSON.stringify(value)}`;
  return allows(plan, body ?? [], given.body);
}

function allowsGroup(plan: Case, { how, of }: Extract<Node, { op: "group" }>, value: unknown): string | undefined {
  // One operation is itself, several are a list.
  const branch = (nodes: readonly Node[], given: unknown): string | undefined => {
    const [only] = nodes;
    const asItself = nodes.length === 1 && only !== undefined ? allowsNode(plan, only, given) : "";
    return asItself === undefined ? undefined : (allows(plan, nodes, given) && asItself) || allows(plan, nodes, given);
  };
  if (how.endsWith("race"))
    return of.some((nodes) => branch(nodes, value) === undefined)
      ? undefined
      : `no branch of ${how} gives ${JSON.stringify(value)}`;
  if (!Array.isArray(value) || value.length !== of.length)
    return `${how} of ${of.length} gave ${JSON.stringify(value)}`;
  for (const [at, nodes] of of.entries()) {
    const given: unknown = value[at];
    if (how.endsWith("allSettled")) {
      const [status, of] = given as readonly [string, unknown];
      if (status === "rejected") {
        const code = String(of);
        if (!codesOf(plan, nodes).has(code) && code !== "run_canceled" && code !== "run_timed_out")
          return `a branch of ${how} was rejected with ${code}, which it cannot throw`;
        continue;
      }
      const wrong = branch(nodes, of);
      if (wrong !== undefined) return wrong;
    } else {
      const wrong = branch(nodes, given);
      if (wrong !== undefined) return wrong;
    }
  }
  return undefined;
}
