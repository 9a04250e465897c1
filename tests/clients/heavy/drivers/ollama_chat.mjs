// The ollama SDK for Node.
import { CITY, PARAMETERS, PROMPT, readNote } from "./task.mjs";

const TOOL = { type: "function", function: { name: "read_note", description: "Reads a note.", parameters: PARAMETERS } };
const asked = [{ role: "user", content: PROMPT }];

export async function plain({ client }, model) {
  return { text: (await client.chat({ model, messages: asked })).message.content };
}

export async function streamed({ client }, model) {
  const pieces = [];
  for await (const part of await client.chat({ model, messages: asked, stream: true }))
    if (part.message.content) pieces.push(part.message.content);
  return { text: pieces.join(""), pieces };
}

export async function tool({ client }, model) {
  const messages = [...asked];
  let reasoning = "";
  for (;;) {
    const { message } = await client.chat({ model, messages, tools: [TOOL], think: true });
    messages.push(message);
    reasoning += message.thinking ?? "";
    if (!message.tool_calls?.length) return { text: message.content, reasoning };
    for (const call of message.tool_calls) {
      let content;
      try {
        content = readNote(call.function.arguments);
      } catch (error) {
        content = String(error);
      }
      messages.push({ role: "tool", tool_name: call.function.name, content });
    }
  }
}

export { tool as failed_tool, tool as reasoning };

export async function structured({ client }, model) {
  return { parsed: JSON.parse((await client.chat({ model, messages: asked, format: CITY })).message.content) };
}
