// The tool runner of the anthropic SDK for Node.
import { betaJSONSchemaOutputFormat } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { CITY, PARAMETERS, PROMPT, readNote } from "./task.mjs";

const TOOL = betaTool({ name: "read_note", description: "Reads a note.", inputSchema: PARAMETERS, run: readNote });
const asked = { max_tokens: 4000, messages: [{ role: "user", content: PROMPT }], tools: [TOOL] };

export async function plain({ client }, model) {
  return outcome(client.beta.messages.toolRunner({ model, ...asked }));
}

export async function tool({ client }, model) {
  const thinking = { type: "enabled", budget_tokens: 2000 };
  return outcome(client.beta.messages.toolRunner({ model, thinking, ...asked }));
}

export { tool as failed_tool, tool as reasoning };

export async function streamed({ client }, model) {
  const pieces = [];
  for await (const stream of client.beta.messages.toolRunner({ model, stream: true, ...asked }))
    for await (const event of stream)
      if (event.type === "content_block_delta" && event.delta.type === "text_delta") pieces.push(event.delta.text);
  return { text: pieces.join(""), pieces };
}

export async function structured({ client }, model) {
  const format = betaJSONSchemaOutputFormat(CITY);
  const runner = client.beta.messages.toolRunner({ model, ...asked, tools: [], output_config: { format } });
  return { parsed: JSON.parse((await runner.runUntilDone()).content[0].text) };
}

async function outcome(runner) {
  let reasoning = "";
  let message;
  for await (message of runner) for (const block of message.content) if (block.type === "thinking") reasoning += block.thinking;
  return { text: message.content.map((block) => block.text ?? "").join(""), reasoning };
}
