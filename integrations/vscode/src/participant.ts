// The chat participant `@antiphon`: the selected model of the gateway answers, with the conversation, the attached files and images, and
// the tools that the user names (`#tool`). VS Code asks for a Copilot account only for its own participants, so this one needs none.

import * as vscode from "vscode";

import { type Gateway } from "./gateway";
import { ThinkingPart } from "./plain";

type ContentPart = vscode.LanguageModelTextPart | vscode.LanguageModelDataPart;
type AnswerPart = vscode.LanguageModelTextPart | vscode.LanguageModelToolCallPart;

export function createHandler(gateway: Gateway): vscode.ChatRequestHandler {
  return async (request, context, stream, token) => {
    const model = await selectModel(request, gateway, token);
    const tools = vscode.lm.tools.filter((tool) => request.toolReferences.some((reference) => reference.name === tool.name));
    const messages = [...(await readHistory(context)), await readQuestion(request, stream)];
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      const parts = await sendRequest(model, messages, tools, stream, token);
      const calls = parts.filter((part) => part instanceof vscode.LanguageModelToolCallPart);
      if (calls.length === 0) return undefined;
      messages.push(vscode.LanguageModelChatMessage.Assistant(parts));
      for (const call of calls) messages.push(vscode.LanguageModelChatMessage.User([await runTool(call, tools, request, token)]));
    }
    throw new Error(`The model called tools ${MAX_ROUNDS} times and did not answer. Ask for a smaller task.`);
  };
}

/** The model that is selected in the Chat view if it is a model of the gateway, else the first model of the gateway. */
async function selectModel(
  request: vscode.ChatRequest,
  gateway: Gateway,
  token: vscode.CancellationToken,
): Promise<vscode.LanguageModelChat> {
  const { vendor, id } = request.model;
  const models = await vscode.lm.selectChatModels({ vendor: "antiphon" });
  const model = vendor === "antiphon" ? models.find((each) => each.id === id) : models[0];
  if (model !== undefined) return model;
  const served = await gateway.models(token); // VS Code does not say why the list is empty; this throws the reason
  throw new Error(
    served.length > 0
      ? `The Antiphon gateway does not serve the model "${id}". Choose another model.`
      : "The Antiphon gateway lists no models. Add a model to the configuration of the gateway.",
  );
}

/** Sends one request, shows text and thinking while they arrive, and returns the parts that the next request has to include. */
async function sendRequest(
  model: vscode.LanguageModelChat,
  messages: vscode.LanguageModelChatMessage[],
  tools: vscode.LanguageModelChatTool[],
  stream: vscode.ChatResponseStream,
  token: vscode.CancellationToken,
): Promise<AnswerPart[]> {
  const parts: AnswerPart[] = [];
  const quotation = new Quotation(stream);
  const response = await model.sendRequest(messages, { tools }, token);
  for await (const part of response.stream) {
    if (ThinkingPart !== undefined && part instanceof ThinkingPart) {
      quotation.write([part.value].flat().join(""));
      parts.push(part as vscode.LanguageModelTextPart); // models that think need their thinking back with the tool results
    } else if (part instanceof vscode.LanguageModelTextPart) {
      quotation.end();
      stream.markdown(part.value);
      parts.push(part);
    } else if (part instanceof vscode.LanguageModelToolCallPart) {
      parts.push(part);
    }
  }
  quotation.end();
  return parts;
}

/** Thinking, shown as a quotation: the API for the editor's own display of thinking is not open to other extensions. */
class Quotation {
  private isOpen = false;

  constructor(private readonly stream: vscode.ChatResponseStream) {}

  write(text: string): void {
    if (!text) return;
    this.stream.markdown(displayOnly((this.isOpen ? "" : "> *Thinking:* ") + text.replaceAll("\n", "\n> ")));
    this.isOpen = true;
  }

  end(): void {
    if (this.isOpen) this.stream.markdown(displayOnly("\n\n"));
    this.isOpen = false;
  }
}

async function runTool(
  call: vscode.LanguageModelToolCallPart,
  tools: readonly vscode.LanguageModelToolInformation[],
  request: vscode.ChatRequest,
  token: vscode.CancellationToken,
): Promise<vscode.LanguageModelToolResultPart> {
  const { toolInvocationToken } = request;
  try {
    if (!tools.some((tool) => tool.name === call.name)) throw new Error(`no tool "${call.name}" is available`);
    const result = await vscode.lm.invokeTool(call.name, { input: call.input, toolInvocationToken }, token);
    return new vscode.LanguageModelToolResultPart(call.callId, result.content);
  } catch (error) {
    if (token.isCancellationRequested) throw error;
    const reason = `The tool failed: ${error instanceof Error ? error.message : String(error)}`;
    return new vscode.LanguageModelToolResultPart(call.callId, [new vscode.LanguageModelTextPart(reason)]);
  }
}

/** The earlier questions to this participant with their attachments, and its answers. A question without an answer has no answer. */
async function readHistory(context: vscode.ChatContext): Promise<vscode.LanguageModelChatMessage[]> {
  const messages: vscode.LanguageModelChatMessage[] = [];
  for (const turn of context.history) {
    if (turn instanceof vscode.ChatRequestTurn) {
      messages.push(await readQuestion(turn));
    } else {
      const text = answerText(turn as vscode.ChatResponseTurn);
      if (text) messages.push(vscode.LanguageModelChatMessage.Assistant(text));
    }
  }
  return messages;
}

function answerText(turn: vscode.ChatResponseTurn): string {
  const texts = turn.response.filter((part) => part instanceof vscode.ChatResponseMarkdownPart).map((part) => part.value);
  return texts.filter((markdown) => !isDisplayOnly(markdown)).map((markdown) => markdown.value).join("");
}

/** The attachments and the text of a question. If a stream is given, attachments that cannot be sent are named there. */
async function readQuestion(
  question: { readonly prompt: string; readonly references: readonly vscode.ChatPromptReference[] },
  stream?: vscode.ChatResponseStream,
): Promise<vscode.LanguageModelChatMessage> {
  const parts: ContentPart[] = [];
  for (const reference of question.references) {
    if (reference.id === AGENT_INDEX) continue;
    const part = await readAttachment(reference);
    if (part !== undefined) parts.push(part);
    else stream?.markdown(displayOnly(`*The attachment "${nameOf(reference)}" was not sent: it is not text, an image or a PDF file.*\n\n`));
  }
  return vscode.LanguageModelChatMessage.User([...parts, new vscode.LanguageModelTextPart(question.prompt)]);
}

/** An attachment as text, or as data if it is an image or a PDF file. Undefined if it is neither. */
async function readAttachment(reference: vscode.ChatPromptReference): Promise<ContentPart | undefined> {
  const { value } = reference;
  if (typeof value === "string") return new vscode.LanguageModelTextPart(value);
  if (isBinaryData(value)) return new vscode.LanguageModelDataPart(await value.data(), value.mimeType);
  const uri = value instanceof vscode.Location ? value.uri : value;
  if (!(uri instanceof vscode.Uri)) return undefined;
  try {
    const mimeType = BINARY_TYPES.get(uri.path.slice(uri.path.lastIndexOf(".") + 1).toLowerCase());
    if (mimeType !== undefined) return new vscode.LanguageModelDataPart(await vscode.workspace.fs.readFile(uri), mimeType);
    return await readText(uri, value instanceof vscode.Location ? value.range : undefined);
  } catch {
    return undefined; // a folder, a binary file, or a file that was deleted
  }
}

async function readText(uri: vscode.Uri, range: vscode.Range | undefined): Promise<vscode.LanguageModelTextPart> {
  const text = (await vscode.workspace.openTextDocument(uri)).getText(range);
  const lines = range ? `, lines ${range.start.line + 1} to ${range.end.line + 1}` : "";
  const cut = text.length > MAX_ATTACHED ? `, the first ${MAX_ATTACHED} of ${text.length} characters` : "";
  const title = `The file ${vscode.workspace.asRelativePath(uri)}${lines}${cut}`;
  return new vscode.LanguageModelTextPart(`${title}:\n\n${text.slice(0, MAX_ATTACHED)}\n`);
}

/** An attached image. Its class is not in the public API. */
function isBinaryData(value: unknown): value is { readonly mimeType: string; data(): Thenable<Uint8Array> } {
  const { mimeType, data } = Object(value) as { mimeType?: unknown; data?: unknown };
  return typeof mimeType === "string" && typeof data === "function";
}

function nameOf(reference: vscode.ChatPromptReference & { readonly name?: string }): string {
  return reference.name ?? reference.id;
}

/** Markdown that the user sees but the model does not get back with the history. Its base address marks it. */
function displayOnly(text: string): vscode.MarkdownString {
  const markdown = new vscode.MarkdownString(text);
  markdown.baseUri = vscode.Uri.parse(DISPLAY_ONLY);
  return markdown;
}

function isDisplayOnly(markdown: vscode.MarkdownString): boolean {
  return markdown.baseUri?.toString() === DISPLAY_ONLY;
}

/** VS Code attaches this index of skills and agents for its own agent. It refers to tools that this participant does not have. */
const AGENT_INDEX = "vscode.customizations.index";
const DISPLAY_ONLY = "antiphon:display-only";
const BINARY_TYPES: ReadonlyMap<string, string> = new Map([
  ["png", "image/png"],
  ["jpg", "image/jpeg"],
  ["jpeg", "image/jpeg"],
  ["gif", "image/gif"],
  ["webp", "image/webp"],
  ["pdf", "application/pdf"],
]);
const MAX_ROUNDS = 50;
const MAX_ATTACHED = 200_000; // characters of one file
