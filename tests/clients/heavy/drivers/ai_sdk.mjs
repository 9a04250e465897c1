// The AI SDK, with the model of the set-up.
import { generateText, jsonSchema, Output, stepCountIs, streamText, tool as makeTool } from "ai";
import { CITY, PARAMETERS, PROMPT, readNote } from "./task.mjs";

// It writes warnings about unknown models into the output.
globalThis.AI_SDK_LOG_WARNINGS = false;

export async function plain({ model }) {
  return { text: (await generateText({ model, prompt: PROMPT, maxRetries: 0 })).text };
}

export async function streamed({ model }) {
  const result = streamText({
    model,
    prompt: PROMPT,
    maxRetries: 0,
    onError: ({ error }) => {
      throw error;
    },
  });
  const pieces = [];
  for await (const piece of result.textStream) pieces.push(piece);
  return { text: pieces.join(""), pieces };
}

// The openai provider shows summaries only. Its chat model, and the provider of Open Responses, do not send reasoning back:
// the gateway restores it from the stored answers.
export async function tool({ model }) {
  const result = await generateText({
    model,
    providerOptions: {
      openai: { forceReasoning: true, reasoningSummary: "auto", store: true },
      google: { thinkingConfig: { includeThoughts: true } },
    },
    prompt: PROMPT,
    maxRetries: 0,
    stopWhen: stepCountIs(4),
    tools: {
      read_note: makeTool({ description: "Reads a note.", inputSchema: jsonSchema(PARAMETERS), execute: readNote }),
    },
  });
  return { text: result.text, reasoning: result.steps.map((step) => step.reasoningText ?? "").join("") };
}

export { tool as failed_tool, tool as reasoning };

export async function structured({ model }) {
  const output = Output.object({ schema: jsonSchema(CITY) });
  return { parsed: (await generateText({ model, prompt: PROMPT, maxRetries: 0, output })).output };
}
