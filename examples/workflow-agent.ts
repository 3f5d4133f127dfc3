// An agent: a model chooses tools until it has an answer. Each call of the model and of a tool is a step, so recorded calls are not repeated
// after a crash. A tool that costs money is used at most once, and only after a person has agreed.

import { open, signal, workflow } from "pawl";

type Message = { readonly role: "user" | "model" | "tool" | "person"; readonly text: string };
type Say =
  | { readonly kind: "use"; readonly tool: "search" | "buy"; readonly what: string }
  | { readonly kind: "answer"; readonly text: string };

/** Stands for a model: it gets the whole conversation, and follows a script. */
const script: readonly Say[] = [
  { kind: "use", tool: "search", what: "teapots" },
  { kind: "use", tool: "buy", what: "the red teapot" },
  { kind: "use", tool: "buy", what: "the blue teapot" },
  { kind: "answer", text: "The blue teapot is on its way." },
];
const askModel = (talk: readonly Message[]): Say =>
  script[talk.filter(({ role }) => role === "model").length] ?? { kind: "answer", text: "I am lost." };

const tools = {
  search: (what: string) => `${what}: red 20, blue 30`,
  buy: (what: string) => `bought ${what}`,
};

const answered = signal<{ isAllowed: boolean }>("answered");

const agent = workflow("agent", async (ctx, task: string) => {
  const question = ctx.slot<string>(`question/${ctx.runId}`, { scope: "global" });
  const talk: Message[] = [{ role: "user", text: task }];
  const MAX_TURNS = 20;
  for (let turn = 0; turn < MAX_TURNS; turn += 1) {
    const said = await ctx.step("model", () => askModel(talk), { retry: { attempts: 8 }, timeout: "2 minutes" });
    if (said.kind === "answer") return { text: said.text, talk };
    const { tool, what } = said;
    talk.push({ role: "model", text: `${tool} ${what}` });
    if (tool === "search") {
      talk.push({ role: "tool", text: await ctx.step("search", () => tools.search(what)) });
      continue;
    }
    await question.set(`May I buy ${what}?`);
    const reply = await ctx.waitForSignal(answered, { timeout: "1 day" });
    if (reply.ok && reply.value.isAllowed)
      talk.push({ role: "tool", text: await ctx.step.atMostOnce("buy", () => tools.buy(what)) });
    else talk.push({ role: "person", text: reply.ok ? "no" : "(no answer)" });
  }
  throw new Error(`no answer after ${MAX_TURNS} turns`);
});

await using pawl = await open("agent.db");
pawl.work([agent]);

const run = await pawl.start(agent, "Get me a teapot.", { id: "agent-1" });

// The person who sees each question and answers it. In an application, a web page in another process does the same.
for await (const { value, version } of pawl.slot<string>("question/agent-1").watch()) {
  if (value === undefined) continue;
  const isAllowed = value.includes("blue");
  console.log(value, isAllowed ? "yes" : "no");
  await run.signal(answered, { isAllowed }, { id: `answer-${version}` });
  if (isAllowed) break;
}

const { text, talk } = await run.result();
for (const message of talk) console.log(`${message.role}: ${message.text}`);
console.log(text);

// Output:
// May I buy the red teapot? no
// May I buy the blue teapot? yes
// user: Get me a teapot.
// model: search teapots
// tool: teapots: red 20, blue 30
// model: buy the red teapot
// person: no
// model: buy the blue teapot
// tool: bought the blue teapot
// The blue teapot is on its way.
