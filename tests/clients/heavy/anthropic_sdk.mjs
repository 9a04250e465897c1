// A loop of tools with the Messages SDK's own tool runner. Says as JSON what the model said in the end and which requests were sent.
// node anthropic_sdk.mjs GATEWAY whole|stream
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { readFile } from "node:fs/promises";

const [gateway, how] = process.argv.slice(2);
const threads = [];
const client = new Anthropic({
  baseURL: gateway,
  apiKey: "any",
  maxRetries: 0,
  fetch: (url, init) => {
    threads.push(JSON.parse(init.body).thread?.type ?? null);
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
  max_tokens: 1000,
  messages: [{ role: "user", content: "Look at both files." }],
  tools: [look],
  stream: how === "stream",
});
const message = await runner.runUntilDone();
console.log(JSON.stringify({ text: message.content.map((block) => block.text).join(""), stop: message.stop_reason, threads }));
