// A loop of two tools with the AI SDK, as a program of its users has it. Says as JSON what the model said and how it ended.
// node ai_sdk.mjs PROVIDER generate|stream
import { readFile, writeFile } from "node:fs/promises";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { models } from "./models.mjs";

const [provider, how] = process.argv.slice(2);
const asked = {
  model: models[provider],
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
      execute: async ({ path, text }) => {
        await writeFile(path, text);
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
console.log(JSON.stringify({ heard, steps: told, usage }));
