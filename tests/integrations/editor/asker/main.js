// An extension that uses language models, for tests: it selects the models of the gateway and sends requests through `vscode.lm`. A test
// sends it one action per HTTP request and gets the result. The port is in the file that ANTIPHON_ASKER_PORT names.

const fs = require("node:fs");
const http = require("node:http");
const vscode = require("vscode");

exports.activate = (context) => {
  const server = http.createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    response.end(JSON.stringify(await outcome(JSON.parse(body))));
  });
  server.listen(0, "127.0.0.1", () => {
    const file = process.env.ANTIPHON_ASKER_PORT;
    fs.writeFileSync(`${file}.new`, String(server.address().port));
    fs.renameSync(`${file}.new`, file); // so that the file never exists without its content
  });
  const look = { invoke: ({ input }) => new vscode.LanguageModelToolResult([new vscode.LanguageModelTextPart(`saw ${input.path}`)]) };
  context.subscriptions.push({ dispose: () => server.close() }, vscode.lm.registerTool("asker_look", look));
};

async function outcome({ action, ...details }) {
  try {
    return { result: (await actions[action](details)) ?? null };
  } catch (error) {
    return { error: { name: error.name, code: error.code ?? null, message: error.message } };
  }
}

const actions = {
  async models({ vendor }) {
    const models = await vscode.lm.selectChatModels({ vendor });
    return models.map(({ id, name, family, version, maxInputTokens }) => ({ id, name, family, version, maxInputTokens }));
  },

  /** All parts of a response. The request is cancelled after `cancelAfter` parts. */
  async ask({ vendor, model, messages, options, cancelAfter }) {
    const selected = await selectModel(vendor, model);
    const cancellation = new vscode.CancellationTokenSource();
    const response = await selected.sendRequest(messages.map(messageOf), options, cancellation.token);
    const parts = [];
    for await (const part of response.stream) {
      parts.push(serializePart(part));
      if (parts.length === cancelAfter) cancellation.cancel();
    }
    return parts;
  },

  async count({ vendor, model, text, message }) {
    return (await selectModel(vendor, model)).countTokens(message ? messageOf(message) : text);
  },

  /** Uses a proposed API, which VS Code refuses. */
  useProposedApi: () => vscode.lm.isModelProxyAvailable,

  isActive: ({ extension }) => vscode.extensions.getExtension(extension)?.isActive ?? false,
  setting: ({ name }) => vscode.workspace.getConfiguration().get(name),

  /** A user setting; null removes it. */
  configure: ({ name, value }) => vscode.workspace.getConfiguration().update(name, value ?? undefined, vscode.ConfigurationTarget.Global),

  /** Starts a command of VS Code and does not wait for its end, because it may ask the user for input. */
  start: ({ command, args }) => void vscode.commands.executeCommand(command, ...(args ?? [])),

  /** Attaches files to the next question in the Chat view, like "Add File to Chat" in the Explorer. */
  attach: ({ paths }) =>
    vscode.commands.executeCommand("workbench.action.chat.open", {
      query: "",
      isPartialQuery: true,
      attachFiles: paths.map((path) => vscode.Uri.file(path)),
    }),
};

/** Each model is selected once and reused, as extensions do. */
async function selectModel(vendor, id) {
  const name = `${vendor}/${id}`;
  if (!selectedModels.has(name)) {
    const [model] = await vscode.lm.selectChatModels({ vendor, id });
    if (!model) throw new Error(`VS Code lists no model ${name}`);
    selectedModels.set(name, model);
  }
  return selectedModels.get(name);
}

const selectedModels = new Map();

function messageOf({ role, content }) {
  return vscode.LanguageModelChatMessage[role](content.map(partOf));
}

function partOf(part) {
  if (part.type === "text") return new vscode.LanguageModelTextPart(part.value);
  if (part.type === "thinking") return new vscode.LanguageModelThinkingPart(part.value, part.id, part.metadata);
  if (part.type === "tool_call") return new vscode.LanguageModelToolCallPart(part.callId, part.name, part.input);
  if (part.type === "tool_result") return new vscode.LanguageModelToolResultPart(part.callId, part.content.map(partOf));
  if (part.type === "json") return vscode.LanguageModelDataPart.json(part.value);
  return new vscode.LanguageModelDataPart(Buffer.from(part.data, "base64"), part.mimeType);
}

function serializePart(part) {
  if (part instanceof vscode.LanguageModelTextPart) return { type: "text", value: part.value };
  if (part instanceof vscode.LanguageModelToolCallPart) {
    return { type: "tool_call", callId: part.callId, name: part.name, input: part.input };
  }
  if (part instanceof vscode.LanguageModelDataPart) {
    return { type: "data", mimeType: part.mimeType, data: Buffer.from(part.data).toString("base64") };
  }
  return { type: "thinking", value: part.value, id: part.id, metadata: part.metadata };
}
