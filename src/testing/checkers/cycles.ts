/**
 * Cycles in a graph of dependencies between transactions: whether there is one, and the smallest of the worst kind.
 *
 * Nodes are numbers. An edge says that one transaction comes before another, and why: it wrote what the other overwrote (ww), it
 * wrote what the other read (wr), it read what the other overwrote (rw), or it had ended before the other began (rt). Kinds of
 * cycles follow Adya: only ww is G0, ww and wr is G1c, one rw is G-single, several are G2.
 *
 * Strongly connected components are found by Tarjan's algorithm in one pass without recursion, so it handles a million nodes; only components
 * with a cycle are searched.
 */

export const WW = 1;
export const WR = 2;
export const RW = 4;
export const RT = 8;

export type EdgeKind = typeof WW | typeof WR | typeof RW | typeof RT;

export type CycleName = "G0" | "G1c" | "G-single" | "G2";

export interface Edge {
  readonly from: number;
  readonly to: number;
  readonly kind: EdgeKind;
  /** The caller's note on the edge. */
  readonly note: number;
}

export interface Cycle {
  readonly name: CycleName;
  /** Whether it is a cycle only in real time: because one transaction had ended before another began. */
  readonly needsTime: boolean;
  /** Each begins where the previous one ends; nodes for moments in time are left out. */
  readonly edges: readonly Edge[];
}

/** A larger component is searched from only some of its nodes. */
const MAX_STARTS = 400;

export class DependencyGraph {
  readonly #nodes: number;
  readonly #from: number[] = [];
  readonly #to: number[] = [];
  readonly #kind: EdgeKind[] = [];
  readonly #note: number[] = [];
  /** Nodes for moments in time, which come after all others. */
  #moments = 0;
  #first = new Uint32Array(0);
  #out = new Uint32Array(0);

  constructor(nodes: number) {
    this.#nodes = nodes;
  }

  add(from: number, to: number, kind: EdgeKind, note = 0): void {
    this.#from.push(from);
    this.#to.push(to);
    this.#kind.push(kind);
    this.#note.push(note);
  }

  /**
   * Adds the order in time: a chain of moments, one for each end. A transaction leads to the moment of its end; the last moment before a
   * begin leads to that transaction. So there are three edges for each node instead of one for each pair.
   */
  addTime(spans: readonly { readonly node: number; readonly startedAt: number; readonly endedAt: number }[]): void {
    const ends = spans.filter(({ endedAt }) => endedAt < Number.POSITIVE_INFINITY);
    ends.sort((a, b) => a.endedAt - b.endedAt);
    const first = this.#nodes + this.#moments;
    this.#moments += ends.length;
    for (const [i, { node }] of ends.entries()) {
      this.add(node, first + i, RT);
      if (i > 0) this.add(first + i - 1, first + i, RT);
    }
    const starts = [...spans].sort((a, b) => a.startedAt - b.startedAt);
    let passed = 0;
    for (const { node, startedAt } of starts) {
      while (passed < ends.length && (ends[passed]?.endedAt ?? 0) < startedAt) passed += 1;
      if (passed > 0) this.add(first + passed - 1, node, RT);
    }
  }

  /** Returns one cycle for each component of transactions that cannot be ordered. */
  cycles(most: number): Cycle[] {
    this.#index();
    const found: Cycle[] = [];
    // A cycle that exists without the order in time is not reported again.
    for (const mask of [WW | WR | RW, WW | WR | RW | RT]) {
      for (const component of this.#components(mask)) {
        if (found.length >= most) return found;
        const cycle = this.#smallest(component, (mask & RT) !== 0);
        if (cycle !== undefined) found.push(cycle);
      }
      if (found.length > 0 || this.#moments === 0) return found;
    }
    return found;
  }

  /** Edges by the node they leave. */
  #index(): void {
    const size = this.#nodes + this.#moments;
    this.#first = new Uint32Array(size + 1);
    for (const from of this.#from) this.#first[from + 1] = (this.#first[from + 1] ?? 0) + 1;
    for (let i = 0; i < size; i++) this.#first[i + 1] = (this.#first[i + 1] ?? 0) + (this.#first[i] ?? 0);
    const next = this.#first.slice();
    this.#out = new Uint32Array(this.#from.length);
    this.#from.forEach((from, edge) => {
      const place = next[from] ?? 0;
      next[from] = place + 1;
      this.#out[place] = edge;
    });
  }

  /** Components of more than one node, by Tarjan's algorithm with a stack of its own. */
  #components(mask: number): number[][] {
    const size = this.#nodes + this.#moments;
    const index = new Int32Array(size);
    const low = new Int32Array(size);
    const isOpen = new Uint8Array(size);
    const place = new Uint32Array(size);
    const stack: number[] = [];
    const path: number[] = [];
    const found: number[][] = [];
    let count = 0;
    for (let root = 0; root < size; root++) {
      if (index[root] !== 0) continue;
      path.push(root);
      while (path.length > 0) {
        const node = path[path.length - 1] as number;
        if (index[node] === 0) {
          count += 1;
          index[node] = count;
          low[node] = count;
          isOpen[node] = 1;
          stack.push(node);
          place[node] = this.#first[node] as number;
        }
        let isDeeper = false;
        for (let at = place[node] as number; at < (this.#first[node + 1] as number); at++) {
          const edge = this.#out[at] as number;
          if (((this.#kind[edge] as number) & mask) === 0) continue;
          const to = this.#to[edge] as number;
          if (index[to] === 0) {
            place[node] = at;
            path.push(to);
            isDeeper = true;
            break;
          }
          if (isOpen[to] === 1) low[node] = Math.min(low[node] as number, low[to] as number);
        }
        if (isDeeper) continue;
        path.pop();
        const before = path[path.length - 1];
        if (before !== undefined) low[before] = Math.min(low[before] as number, low[node] as number);
        if (low[node] !== index[node]) continue;
        const component: number[] = [];
        for (;;) {
          const member = stack.pop() as number;
          isOpen[member] = 0;
          component.push(member);
          if (member === node) break;
        }
        if (component.length > 1) found.push(component);
      }
    }
    return found;
  }

  /** The shortest cycle of the worst kind there is in a component. */
  #smallest(component: readonly number[], withTime: boolean): Cycle | undefined {
    const members = new Set(component);
    const time = withTime ? RT : 0;
    const starts = component.filter((node) => node < this.#nodes).slice(0, MAX_STARTS);
    const around = (mask: number): readonly Edge[] | undefined => {
      let best: readonly Edge[] | undefined;
      for (const node of starts) {
        const edges = this.#path(node, node, mask | time, members, best?.length);
        if (edges !== undefined && (best === undefined || edges.length < best.length)) best = edges;
      }
      return best;
    };
    const through = (): readonly Edge[] | undefined => {
      let best: readonly Edge[] | undefined;
      for (const node of starts)
        for (let at = this.#first[node] as number; at < (this.#first[node + 1] as number); at++) {
          const edge = this.#out[at] as number;
          const to = this.#to[edge] as number;
          if (this.#kind[edge] !== RW || !members.has(to)) continue;
          const rest = this.#path(to, node, WW | WR | time, members, best === undefined ? undefined : best.length - 1);
          if (rest === undefined || (best !== undefined && rest.length + 1 >= best.length)) continue;
          best = [this.#edge(edge), ...rest];
        }
      return best;
    };
    const kinds: readonly (readonly [CycleName, () => readonly Edge[] | undefined])[] = [
      ["G0", () => around(WW)],
      ["G1c", () => around(WW | WR)],
      ["G-single", through],
      ["G2", () => around(WW | WR | RW)],
    ];
    for (const [name, search] of kinds) {
      const edges = search();
      if (edges !== undefined) return { name, needsTime: edges.some(({ kind }) => kind === RT), edges };
    }
    return undefined;
  }

  /** Returns the shortest path from one node to another along edges of these kinds; moments have no length. */
  #path(
    from: number,
    to: number,
    mask: number,
    members: ReadonlySet<number>,
    shorterThan = Number.POSITIVE_INFINITY,
  ): readonly Edge[] | undefined {
    const cameBy = new Map<number, number>();
    let near: number[] = [from];
    for (let length = 1; near.length > 0 && length < shorterThan; length++) {
      const next: number[] = [];
      // Moments are added to the current level, all others to the next.
      for (let i = 0; i < near.length; i++) {
        const node = near[i] as number;
        for (let at = this.#first[node] as number; at < (this.#first[node + 1] as number); at++) {
          const edge = this.#out[at] as number;
          const target = this.#to[edge] as number;
          if (((this.#kind[edge] as number) & mask) === 0 || !members.has(target)) continue;
          if (target === to) return this.#trace(from, edge, cameBy);
          if (target === from || cameBy.has(target)) continue;
          cameBy.set(target, edge);
          if (target < this.#nodes) next.push(target);
          else near.push(target);
        }
      }
      near = next;
    }
    return undefined;
  }

  #trace(from: number, last: number, cameBy: ReadonlyMap<number, number>): readonly Edge[] {
    const steps: number[] = [last];
    for (let node = this.#from[last] as number; node !== from; ) {
      const edge = cameBy.get(node) as number;
      steps.push(edge);
      node = this.#from[edge] as number;
    }
    const edges: Edge[] = [];
    let passed: number | undefined;
    for (const step of steps.reverse()) {
      const edge = this.#edge(step);
      if (edge.to >= this.#nodes) passed ??= edge.from;
      else {
        edges.push(passed === undefined ? edge : { ...edge, from: passed });
        passed = undefined;
      }
    }
    return edges;
  }

  #edge(edge: number): Edge {
    return {
      from: this.#from[edge] as number,
      to: this.#to[edge] as number,
      kind: this.#kind[edge] as EdgeKind,
      note: this.#note[edge] as number,
    };
  }
}
