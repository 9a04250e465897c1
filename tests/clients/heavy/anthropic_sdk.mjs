// A loop of tools with the Messages SDK's own tool runner. Prints as JSON the last text, all messages and all requests.
// node anthropic_sdk.mjs GATEWAY whole|stream QUESTION
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { readFile } from "node:fs/promises";

const [gateway, how, content] = process.argv.slice(2);
const requests = [];
const client = new Anthropic({
  baseURL: gateway,
  apiKey: "any",
  maxRetries: 0,
  fetch: (url, init) => {
    requests.push(JSON.parse(init.body));
    return fetch(url, init);
  },
});
const look = betaTool({
  name: "look",
  description: "Reads a file",
  inputSchema: { type: "object", properties: { path: { type: "string" } }, required: ["path"] },
  run: ({ path }) => readFile(path, "utf8"),
});
const runner = client.beta.messages.toolRunner({
  model: "mock-1",
  max_tokens: 4000,
  thinking: { type: "enabled", budget_tokens: 2000 },
  messages: [{ role: "user", content }],
  tools: [look],
  stream: how === "stream",
});
const messages = [];
for await (const step of runner) messages.push(how === "stream" ? await step.finalMessage() : step);
const last = messages.at(-1);
console.log(
  JSON.stringify({
    text: last.content.map((block) => block.text ?? "").join(""),
    stop: last.stop_reason,
    messages,
    requests,
  }),
);
