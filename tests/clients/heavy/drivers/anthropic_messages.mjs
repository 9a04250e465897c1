// The anthropic SDK for Node.
import { jsonSchemaOutputFormat } from "@anthropic-ai/sdk/helpers/json-schema";
import { CITY, PARAMETERS, PROMPT, readNote } from "./task.mjs";

const messages = [{ role: "user", content: PROMPT }];
const TOOL = { name: "read_note", description: "Reads a note.", input_schema: PARAMETERS };
const thinking = { type: "enabled", budget_tokens: 2000 };

export async function plain({ client }, model) {
  return { text: (await client.messages.create({ model, max_tokens: 4000, messages })).content[0].text };
}

export async function streamed({ client }, model) {
  const stream = client.messages.stream({ model, max_tokens: 4000, messages });
  const pieces = [];
  stream.on("text", (piece) => pieces.push(piece));
  return { text: await stream.finalText(), pieces };
}

export async function tool({ client }, model) {
  const history = [...messages];
  let reasoning = "";
  for (;;) {
    const message = await client.messages.create({ model, max_tokens: 4000, messages: history, tools: [TOOL], thinking });
    history.push({ role: "assistant", content: message.content });
    for (const block of message.content) if (block.type === "thinking") reasoning += block.thinking;
    const uses = message.content.filter((block) => block.type === "tool_use");
    if (!uses.length) return { text: message.content.map((block) => block.text ?? "").join(""), reasoning };
    history.push({ role: "user", content: uses.map(resultOf) });
  }
}

export { tool as failed_tool, tool as reasoning };

function resultOf(use) {
  try {
    return { type: "tool_result", tool_use_id: use.id, content: readNote(use.input) };
  } catch (error) {
    return { type: "tool_result", tool_use_id: use.id, content: String(error), is_error: true };
  }
}

export async function structured({ client }, model) {
  const format = jsonSchemaOutputFormat(CITY);
  const message = await client.messages.parse({ model, max_tokens: 4000, messages, output_config: { format } });
  return { parsed: message.parsed_output };
}
