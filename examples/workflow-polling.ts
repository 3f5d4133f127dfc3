// A job is started at another service, which is then polled until the job is done. Between the polls the run sleeps: it needs no process, and
// any worker resumes it. If the service returns an error, the step is retried.

import { open, workflow } from "pawl";

/** Stands for the other service: a job is done when it was polled successfully three times, and every other call fails. */
const service = {
  jobs: new Map<string, number>(),
  questions: 0,
  create(key: string): string {
    this.jobs.set(key, this.jobs.get(key) ?? 0);
    return key;
  },
  isDone(job: string): boolean {
    this.questions += 1;
    if (this.questions % 2 === 1) throw new Error("503");
    const answers = (this.jobs.get(job) ?? 0) + 1;
    this.jobs.set(job, answers);
    return answers === 3;
  },
};

const transcode = workflow({ name: "transcode", timeout: "1 hour" }, async (ctx) => {
  const job = await ctx.step("create", ({ key }) => service.create(key));
  let waitMs = 10;
  while (!(await ctx.step("ask", () => service.isDone(job), { retry: { attempts: 10, delay: "5ms" } }))) {
    await ctx.sleep(waitMs);
    waitMs = Math.min(waitMs * 2, 60_000);
  }
});

await using pawl = await open("media.db");
pawl.work([transcode]);

const run = await pawl.start(transcode);
await run.result();
console.log("jobs:", service.jobs.size, "questions:", service.questions);
console.log((await run.history()).map(({ name }) => name).filter((name) => name.startsWith("step")));

// Output:
// jobs: 1 questions: 6
// [ 'step create', 'step ask', 'step ask#2', 'step ask#3' ]
