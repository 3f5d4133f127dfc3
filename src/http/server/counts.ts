/**
 * Counters in the text format of Prometheus: what this process has done since it was started.
 */

import type { RunEvent } from "../../workflow/events.ts";

/** Upper bounds of durations, in seconds. */
const BUCKETS = [0.005, 0.02, 0.1, 0.5, 2, 10, 60];
/** What has other labels than the first ones of this number is not counted. */
const MOST_SERIES = 2000;

export type Labels = Readonly<Record<string, string>>;

/** Counters and histograms by their labels. */
export class Family {
  readonly #name: string;
  readonly #help: string;
  readonly #type: "counter" | "gauge" | "histogram";
  readonly #values = new Map<string, number>();

  constructor(name: string, help: string, type: "counter" | "gauge" | "histogram") {
    this.#name = name;
    this.#help = help;
    this.#type = type;
  }

  add(labels: Labels, amount = 1, suffix = ""): void {
    const key = `${this.#name}${suffix}${labelText(labels)}`;
    if (!this.#values.has(key) && this.#values.size >= MOST_SERIES) return;
    this.#values.set(key, (this.#values.get(key) ?? 0) + amount);
  }

  observe(labels: Labels, seconds: number): void {
    for (const le of BUCKETS) this.add({ ...labels, le: String(le) }, seconds <= le ? 1 : 0, "_bucket");
    this.add({ ...labels, le: "+Inf" }, 1, "_bucket");
    this.add(labels, seconds, "_sum");
    this.add(labels, 1, "_count");
  }

  get text(): string {
    const lines = Array.from(this.#values, ([key, value]) => `${key} ${value}\n`);
    return `# HELP ${this.#name} ${this.#help}\n# TYPE ${this.#name} ${this.#type}\n${lines.join("")}`;
  }
}

const labelText = (labels: Labels): string => {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${value.replace(/[\\"\n]/g, escaped)}"`);
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
};

const escaped = (char: string): string => (char === "\n" ? "\\n" : `\\${char}`);

/** Counts the events of a worker, for `/metrics`: `pawl.work(workflows, { on: metrics })` and `createApp(pawl, { metrics })`. */
export interface RunMetrics {
  (event: RunEvent): void;
  /** The counts so far, in the text format of Prometheus. */
  text(): string;
}

/** Makes a listener that counts the runs and steps of workers. */
export function runMetrics(): RunMetrics {
  const ended = new Family("pawl_runs_ended_total", "Runs that ended in this process.", "counter");
  const attempts = new Family("pawl_step_attempts_total", "Attempts of steps in this process.", "counter");
  const lost = new Family("pawl_leases_lost_total", "Runs that this process lost while it worked on them.", "counter");
  const parked = new Family("pawl_runs_parked_total", "Runs that were parked by this process.", "counter");
  const listen = (event: RunEvent): void => {
    const { workflow } = event;
    switch (event.type) {
      case "run.ended":
        ended.add({ workflow, status: event.status });
        break;
      case "run.parked":
        parked.add({ workflow });
        break;
      case "run.lost":
        lost.add({ workflow });
        break;
      case "step.completed":
      case "step.failed":
      case "step.retried":
        attempts.add({ workflow, outcome: event.type.slice("step.".length) });
        break;
      default:
        break;
    }
  };
  const text = (): string => [ended, attempts, lost, parked].map((family) => family.text).join("");
  return Object.assign(listen, { text });
}

/** Counts the requests of an app. */
export class RequestMetrics {
  readonly #requests = new Family("pawl_http_requests_total", "Requests by route and status.", "counter");
  readonly #seconds = new Family("pawl_http_request_seconds", "How long requests took.", "histogram");

  count(method: string, route: string, status: number, ms: number): void {
    this.#requests.add({ method, route, status: String(status) });
    this.#seconds.observe({ method, route }, ms / 1000);
  }

  get text(): string {
    return this.#requests.text + this.#seconds.text;
  }
}
