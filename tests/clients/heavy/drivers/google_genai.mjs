// The google-genai SDK for Node.
import { CITY, PARAMETERS, PROMPT, readNote } from "./task.mjs";

const TOOLS = [
  { functionDeclarations: [{ name: "read_note", description: "Reads a note.", parametersJsonSchema: PARAMETERS }] },
];

export async function plain({ client }, model) {
  return { text: (await client.models.generateContent({ model, contents: PROMPT })).text };
}

export async function streamed({ client }, model) {
  const pieces = [];
  for await (const chunk of await client.models.generateContentStream({ model, contents: PROMPT }))
    if (chunk.text) pieces.push(chunk.text);
  return { text: pieces.join(""), pieces };
}

export async function tool({ client }, model) {
  const contents = [{ role: "user", parts: [{ text: PROMPT }] }];
  const config = { tools: TOOLS, thinkingConfig: { includeThoughts: true } };
  let reasoning = "";
  for (;;) {
    const response = await client.models.generateContent({ model, contents, config });
    contents.push(response.candidates[0].content);
    for (const part of response.candidates[0].content.parts) if (part.thought) reasoning += part.text;
    if (!response.functionCalls?.length) return { text: response.text, reasoning };
    contents.push({ role: "user", parts: response.functionCalls.map(resultOf) });
  }
}

export { tool as failed_tool, tool as reasoning };

function resultOf({ id, name, args }) {
  try {
    return { functionResponse: { id, name, response: { output: readNote(args) } } };
  } catch (error) {
    return { functionResponse: { id, name, response: { error: String(error) } } };
  }
}

export async function structured({ client }, model) {
  const config = { responseMimeType: "application/json", responseJsonSchema: CITY };
  return { parsed: JSON.parse((await client.models.generateContent({ model, contents: PROMPT, config })).text) };
}
