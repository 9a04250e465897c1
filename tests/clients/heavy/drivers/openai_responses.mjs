// The openai SDK for Node, Responses API.
import { CITY, PARAMETERS, PROMPT, readNote } from "./task.mjs";

const TOOL = { type: "function", name: "read_note", description: "Reads a note.", parameters: PARAMETERS, strict: false };

export async function plain({ client }, model) {
  return { text: (await client.responses.create({ model, input: PROMPT })).output_text };
}

export async function streamed({ client }, model) {
  const stream = client.responses.stream({ model, input: PROMPT });
  const pieces = [];
  for await (const event of stream) if (event.type === "response.output_text.delta") pieces.push(event.delta);
  return { text: (await stream.finalResponse()).output_text, pieces };
}

export async function tool({ client }, model) {
  const input = [{ role: "user", content: PROMPT }];
  let reasoning = "";
  for (;;) {
    const response = await client.responses.create({ model, input, tools: [TOOL], include: ["reasoning.encrypted_content"] });
    input.push(...response.output);
    for (const item of response.output)
      if (item.type === "reasoning") for (const part of [...(item.content ?? []), ...item.summary]) reasoning += part.text;
    const calls = response.output.filter((item) => item.type === "function_call");
    if (!calls.length) return { text: response.output_text, reasoning };
    for (const call of calls) {
      let output;
      try {
        output = readNote(JSON.parse(call.arguments));
      } catch (error) {
        output = String(error);
      }
      input.push({ type: "function_call_output", call_id: call.call_id, output });
    }
  }
}

export { tool as failed_tool, tool as reasoning };

export async function structured({ client }, model) {
  const format = { type: "json_schema", name: "city", schema: CITY, strict: true };
  return { parsed: (await client.responses.parse({ model, input: PROMPT, text: { format } })).output_parsed };
}
