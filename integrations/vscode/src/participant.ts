// `@antiphon` in the Chat view: the chosen model of the gateway answers, with the conversation so far, the files that are attached and
// the tools that the user names (`#tool`). The editor asks for a Copilot account only before its own participants answer, so this one
// needs none.

import * as vscode from "vscode";

export async function answer(
  request: vscode.ChatRequest,
  context: vscode.ChatContext,
  stream: vscode.ChatResponseStream,
  token: vscode.CancellationToken,
): Promise<vscode.ChatResult | undefined> {
  const model = await modelFor(request);
  if (model === undefined) return { errorDetails: { message: NO_MODEL } };
  const messages = [...history(context), await question(request)];
  const named = new Set(request.toolReferences.map((reference) => reference.name));
  const tools = vscode.lm.tools.filter((tool) => named.has(tool.name));
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const parts = await ask(model, messages, tools, stream, token);
    const calls = parts.filter((part) => part instanceof vscode.LanguageModelToolCallPart);
    if (calls.length === 0) return undefined;
    messages.push(vscode.LanguageModelChatMessage.Assistant(parts));
    for (const call of calls) messages.push(vscode.LanguageModelChatMessage.User([await run(call, request, token)]));
  }
  return { errorDetails: { message: `The model called tools ${MAX_ROUNDS} times without an answer. Ask for a smaller step.` } };
}

/** The model that is chosen in the Chat view, if it is one of the gateway's; else the gateway's first. */
async function modelFor(request: vscode.ChatRequest): Promise<vscode.LanguageModelChat | undefined> {
  if (request.model.vendor === "antiphon") return request.model;
  return (await vscode.lm.selectChatModels({ vendor: "antiphon" }))[0];
}

/** Sends one request, shows its text as it comes, and returns all that was answered. */
async function ask(
  model: vscode.LanguageModelChat,
  messages: vscode.LanguageModelChatMessage[],
  tools: vscode.LanguageModelChatTool[],
  stream: vscode.ChatResponseStream,
  token: vscode.CancellationToken,
): Promise<(vscode.LanguageModelTextPart | vscode.LanguageModelToolCallPart)[]> {
  const parts: (vscode.LanguageModelTextPart | vscode.LanguageModelToolCallPart)[] = [];
  const response = await model.sendRequest(messages, { tools }, token);
  for await (const part of response.stream) {
    if (part instanceof vscode.LanguageModelTextPart) stream.markdown(part.value);
    if (part instanceof vscode.LanguageModelTextPart || part instanceof vscode.LanguageModelToolCallPart) parts.push(part);
  }
  return parts;
}

async function run(
  call: vscode.LanguageModelToolCallPart,
  request: vscode.ChatRequest,
  token: vscode.CancellationToken,
): Promise<vscode.LanguageModelToolResultPart> {
  const { toolInvocationToken } = request;
  try {
    const result = await vscode.lm.invokeTool(call.name, { input: call.input, toolInvocationToken }, token);
    return new vscode.LanguageModelToolResultPart(call.callId, result.content);
  } catch (error) {
    if (token.isCancellationRequested) throw error;
    const reason = `The tool failed: ${error instanceof Error ? error.message : String(error)}`;
    return new vscode.LanguageModelToolResultPart(call.callId, [new vscode.LanguageModelTextPart(reason)]);
  }
}

/** The questions to this participant and its answers so far. */
function history(context: vscode.ChatContext): vscode.LanguageModelChatMessage[] {
  return context.history.map((turn) =>
    turn instanceof vscode.ChatRequestTurn
      ? vscode.LanguageModelChatMessage.User(turn.prompt)
      : vscode.LanguageModelChatMessage.Assistant(textOf(turn as vscode.ChatResponseTurn)),
  );
}

function textOf(turn: vscode.ChatResponseTurn): string {
  const markdown = turn.response.filter((part) => part instanceof vscode.ChatResponseMarkdownPart);
  return markdown.map((part) => part.value.value).join("");
}

async function question(request: vscode.ChatRequest): Promise<vscode.LanguageModelChatMessage> {
  const attached = await Promise.all(request.references.map(attachment));
  const texts = [...attached.filter((text) => text !== undefined), request.prompt];
  return vscode.LanguageModelChatMessage.User(texts.map((text) => new vscode.LanguageModelTextPart(text)));
}

/** What is attached to a question, as text; undefined for what is none. */
async function attachment(reference: vscode.ChatPromptReference): Promise<string | undefined> {
  const { value } = reference;
  if (typeof value === "string") return value;
  const uri = value instanceof vscode.Location ? value.uri : value;
  if (!(uri instanceof vscode.Uri)) return undefined;
  try {
    const document = await vscode.workspace.openTextDocument(uri);
    const range = value instanceof vscode.Location ? value.range : undefined;
    const lines = range ? `, lines ${range.start.line + 1} to ${range.end.line + 1}` : "";
    return `The file ${vscode.workspace.asRelativePath(uri)}${lines}:\n\n${document.getText(range).slice(0, MAX_ATTACHED)}\n`;
  } catch {
    return undefined; // a folder, or a file that is not text
  }
}

const NO_MODEL =
  'The Antiphon gateway lists no model. Start it with "antiphon serve", check the setting "antiphon.url", ' +
  'and run the command "Antiphon: Set Gateway Key" if the gateway asks for a key.';
const MAX_ROUNDS = 50;
const MAX_ATTACHED = 200_000; // characters of one file
