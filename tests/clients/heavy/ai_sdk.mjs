// A loop of two tools with the AI SDK, as a program of its users has it. Prints as JSON the text and the steps of the model, and
// the bodies of all answers. OPTIONS are options of the openai provider, as JSON.
// node ai_sdk.mjs PROVIDER generate|stream OPTIONS
import { readFile, writeFile } from "node:fs/promises";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { models } from "./models.mjs";

// It warns of models that it has not heard of, in the middle of the output.
globalThis.AI_SDK_LOG_WARNINGS = false;
const [provider, how, options] = process.argv.slice(2);
const bodies = [];
const send = globalThis.fetch;
globalThis.fetch = async (...request) => {
  const answer = await send(...request);
  bodies.push(answer.clone().text());
  return answer;
};
let explain;
const explained = new Promise((resolve) => {
  explain = resolve;
});
const asked = {
  model: models[provider],
  providerOptions: { openai: JSON.parse(options) },
  prompt: "Make the greeting in greeting.txt friendlier.",
  stopWhen: stepCountIs(5),
  maxRetries: 0,
  tools: {
    look: tool({
      description: "Reads a file",
      inputSchema: z.object({ path: z.string() }),
      execute: ({ path }) => readFile(path, "utf8"),
    }),
    put: tool({
      description: "Writes a file",
      inputSchema: z.object({ path: z.string(), text: z.string() }),
      // Of two at once the first ends last, so that results come in another order than calls.
      execute: async ({ path, text }) => {
        if (path !== "why.txt") await explained;
        await writeFile(path, text);
        if (path === "why.txt") explain();
        return { written: path };
      },
    }),
  },
};

async function streamed() {
  const result = streamText({
    ...asked,
    onError: ({ error }) => {
      throw error;
    },
  });
  let heard = "";
  for await (const part of result.fullStream) heard += part.type === "text-delta" ? part.text : "";
  return { heard, steps: await result.steps, usage: await result.totalUsage };
}

async function whole() {
  const result = await generateText(asked);
  return { heard: result.steps.map((step) => step.text).join(""), steps: result.steps, usage: result.totalUsage };
}

const { heard, steps, usage } = await (how === "stream" ? streamed() : whole());
const told = steps.map((step) => ({
  text: step.text,
  reasoning: step.reasoningText ?? null,
  calls: step.toolCalls.map((call) => call.toolCallId),
  results: step.toolResults.map((result) => result.output),
  finish: step.finishReason,
}));
console.log(JSON.stringify({ heard, steps: told, usage, bodies: await Promise.all(bodies) }));
