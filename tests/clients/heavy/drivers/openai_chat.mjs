// The openai SDK for Node, Chat Completions: `runTools` runs the loop.
import { CITY, PARAMETERS, PROMPT, readNote } from "./task.mjs";

const messages = [{ role: "user", content: PROMPT }];

export async function plain({ client }, model) {
  return { text: (await client.chat.completions.create({ model, messages })).choices[0].message.content };
}

export async function streamed({ client }, model) {
  const pieces = [];
  for await (const chunk of await client.chat.completions.create({ model, messages, stream: true }))
    for (const choice of chunk.choices) if (choice.delta.content) pieces.push(choice.delta.content);
  return { text: pieces.join(""), pieces };
}

// The loop ends with the error of a function that throws.
function read(given) {
  try {
    return readNote(given);
  } catch (error) {
    return String(error);
  }
}

export async function tool({ client }, model) {
  const runner = client.chat.completions.runTools({
    model,
    store: true, // its loop drops reasoning; the gateway restores it from the stored answer
    messages,
    tools: [
      {
        type: "function",
        function: { name: "read_note", description: "Reads a note.", parameters: PARAMETERS, parse: JSON.parse, function: read },
      },
    ],
  });
  const text = await runner.finalContent();
  const reasoning = runner.messages.map((message) => message.reasoning_content ?? "").join("");
  return { text, reasoning };
}

export { tool as failed_tool, tool as reasoning };

export async function structured({ client }, model) {
  const format = { type: "json_schema", json_schema: { name: "city", schema: CITY, strict: true } };
  const completion = await client.chat.completions.parse({ model, messages, response_format: format });
  return { parsed: JSON.parse(completion.choices[0].message.content) };
}
