// Tests of the extension against a running gateway at `ANTIPHON_URL`, which requires the key `ANTIPHON_KEY`. Its models: `mock-1`
// answers first with text, thinking and a tool call, then with text; `hangs` begins an answer and never ends it; `breaks` ends in the
// middle of an answer; `echo` repeats the question, and calls a tool if the question asks for it.

import assert from "node:assert/strict";
import http from "node:http";
import Module from "node:module";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";

import type * as vscode from "vscode";

import * as editor from "./editor";

type Loader = { _load(name: string, ...rest: unknown[]): unknown };
const loader = Module as unknown as Loader;
const load = loader._load;
loader._load = (name, ...rest) => (name === "vscode" ? editor : load.call(Module, name, ...rest));

const URL = process.env["ANTIPHON_URL"] ?? "";
const KEY = process.env["ANTIPHON_KEY"] ?? "";
const PNG = new Uint8Array([137, 80, 78, 71]);
const PNG_BASE64 = "iVBORw==";
const LOOK = new editor.Tool("look");
const subscriptions: { dispose(): unknown }[] = [];
const secrets = new editor.Secrets();
let provider: vscode.LanguageModelChatProvider;

before(async () => {
  editor.configure("url", `${URL}/`);
  const { activate } = (await import("../src/extension.js")) as { activate(context: unknown): void };
  activate({ subscriptions, secrets });
  provider = editor.providers.get("antiphon") as vscode.LanguageModelChatProvider;
});

after(() => {
  for (const subscription of subscriptions) subscription.dispose();
  assert.equal(editor.providers.size, 0);
});

const createToken = () => new editor.Cancellation() as unknown as vscode.CancellationToken;

function options(fields: editor.OptionFields = {}): vscode.ProvideLanguageModelChatResponseOptions {
  return new editor.RequestOptions(fields) as unknown as vscode.ProvideLanguageModelChatResponseOptions;
}

function message(role: number, ...content: unknown[]): vscode.LanguageModelChatRequestMessage {
  const parts = content.map((part) => (typeof part === "string" ? new editor.LanguageModelTextPart(part) : part));
  return new editor.LanguageModelChatMessage(role, parts) as unknown as vscode.LanguageModelChatRequestMessage;
}

async function listModels(): Promise<vscode.LanguageModelChatInformation[]> {
  return (await provider.provideLanguageModelChatInformation({ silent: true }, createToken())) ?? [];
}

async function model(id: string): Promise<vscode.LanguageModelChatInformation> {
  const match = (await listModels()).find((each) => each.id === id);
  assert.ok(match, id);
  return match;
}

async function answer(
  id: string,
  messages: vscode.LanguageModelChatRequestMessage[],
  requestOptions = options(),
  token = createToken(),
): Promise<vscode.LanguageModelResponsePart[]> {
  const parts: vscode.LanguageModelResponsePart[] = [];
  const progress = { report: (part: vscode.LanguageModelResponsePart) => void parts.push(part) };
  await provider.provideLanguageModelChatResponse(await model(id), messages, requestOptions, progress, token);
  return parts;
}

function textOf(parts: unknown[]): string {
  return parts.filter((part) => part instanceof editor.LanguageModelTextPart).map((part) => part.value).join("");
}

/** Runs the command of the extension that asks for a key; the user enters `input`. */
async function setKey(input: string | undefined): Promise<void> {
  editor.user.input = input;
  await (editor.registeredCommands.get("antiphon.setKey") as () => Promise<void>)();
}

/** Counts how often the provider makes VS Code list the models again. */
function countRefreshes(): () => number {
  let count = 0;
  provider.onDidChangeLanguageModelChatInformation?.(() => (count += 1));
  return () => count;
}

/** Sets the address to a server with this handler while `run` runs. */
async function withServer(handler: http.RequestListener, run: (url: string) => Promise<void>): Promise<void> {
  const server = http.createServer(handler);
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    editor.configure("url", url);
    await run(url);
  } finally {
    editor.configure("url", URL);
    server.closeAllConnections();
    server.close();
  }
}

/** A server that answers every request like this. */
function respond(status: number, headers: Record<string, string>, body: string): http.RequestListener {
  return (_request, response) => void response.writeHead(status, headers).end(body);
}

const JSON_TYPE = { "content-type": "application/json" };
const MODEL = { id: "recorder", name: "recorder", family: "f", version: "1", maxInputTokens: 1, maxOutputTokens: 1, capabilities: {} };

interface ChatBody {
  readonly messages: { readonly role: number; readonly content: unknown[] }[];
}

/** A gateway with the model `recorder`, which records the bodies of chat requests and answers with these lines. */
async function withRecorder(lines: object[], run: (bodies: ChatBody[]) => Promise<void>): Promise<void> {
  const bodies: ChatBody[] = [];
  const handler: http.RequestListener = async (request, response) => {
    if (request.method === "GET") return void response.writeHead(200, JSON_TYPE).end(JSON.stringify({ models: [MODEL] }));
    let body = "";
    for await (const chunk of request) body += chunk;
    bodies.push(JSON.parse(body) as ChatBody);
    return void response.writeHead(200).end([...lines, { type: "done", status: "completed" }].map((line) => `${JSON.stringify(line)}\n`).join(""));
  };
  await withServer(handler, () => run(bodies));
}

test("without a key, the error names the command that sets the key", async () => {
  await assert.rejects(listModels(), { code: "NoPermissions", message: /requires a key.*Run the command "Antiphon: Set Gateway Key"/ });
});

test("a wrong key has another error than a missing key", async () => {
  await setKey("wrong");
  await assert.rejects(listModels(), { code: "NoPermissions", message: /rejected the key.*Run the command "Antiphon: Set Gateway Key"/ });
});

test("@antiphon without models says why there are none", async () => {
  await assert.rejects(askParticipant({ prompt: "hi", model: { vendor: "copilot" } }), { message: /rejected the key/ });
  await withServer(respond(200, JSON_TYPE, '{"models": []}'), async () => {
    await assert.rejects(askParticipant({ prompt: "hi", model: { vendor: "copilot" } }), { message: /lists no models. Add a model/ });
  });
});

test("@antiphon says what to do if the selected model cannot be used any more", async () => {
  const selected = { vendor: "antiphon", id: "removed" };
  await assert.rejects(askParticipant({ prompt: "hi", model: selected }), { message: /rejected the key/ });
  await withServer(respond(200, JSON_TYPE, JSON.stringify({ models: [MODEL] })), async () => {
    const message = 'The Antiphon gateway does not serve the model "removed". Choose another model.';
    await assert.rejects(askParticipant({ prompt: "hi", model: selected }), { message });
  });
});

test("the key is stored as a secret, and VS Code lists the models again", async () => {
  const refreshes = countRefreshes();
  await setKey(undefined);
  assert.equal(refreshes(), 0);
  await setKey("");
  await assert.rejects(listModels(), { message: /requires a key/ });
  await setKey(` ${KEY} `);
  assert.match(editor.user.prompt, new RegExp(URL));
  editor.configure("choices", { json: "file" });
  assert.equal(refreshes(), 3);
});

test("models have the fields that VS Code shows", async () => {
  const mock = await model("mock-1");
  assert.equal(typeof mock.maxInputTokens, "number");
  assert.equal(typeof mock.maxOutputTokens, "number");
  assert.deepEqual(mock.capabilities, { imageInput: true, toolCalling: true });
  assert.ok(mock.name && mock.family && mock.version);
});

test("the models are listed once, also if the user added groups of models", async () => {
  const group = { silent: true, configuration: {} };
  assert.deepEqual(await provider.provideLanguageModelChatInformation(group, createToken()), []);
});

test("all fields of messages, parts, tools and options are sent, although all are getters", async () => {
  const tree = { node: { type: 2, text: "leaf" } };
  const png = new editor.LanguageModelDataPart(PNG, "image/png");
  const result = [new editor.LanguageModelTextPart("empty"), { lines: 0 }, new editor.LanguageModelPromptTsxPart(tree), png, "text"];
  const messages = [
    new editor.LanguageModelChatMessage(1, [new editor.LanguageModelTextPart("What is this?"), png], "alice"),
    message(
      2,
      new editor.LanguageModelThinkingPart("Hm.", "rs_1", { signature: "s" }),
      new editor.LanguageModelToolCallPart("call_1", "look", { path: "a.py" }),
    ),
    message(1, new editor.LanguageModelToolResultPart("call_1", result)),
  ] as vscode.LanguageModelChatRequestMessage[];
  const fields = { toolMode: 2, tools: [LOOK], modelOptions: { temperature: 0, _conversationId: "c-1" } };
  await withRecorder([], async (bodies) => {
    await answer("recorder", messages, options(fields));
    const data = { type: "data", mimeType: "image/png", data: PNG_BASE64 };
    assert.deepEqual(bodies, [
      {
        model: "recorder",
        messages: [
          { role: 1, name: "alice", content: [{ type: "text", value: "What is this?" }, data] },
          {
            role: 2,
            content: [
              { type: "thinking", value: "Hm.", id: "rs_1", metadata: { signature: "s" } },
              { type: "tool_call", callId: "call_1", name: "look", input: { path: "a.py" } },
            ],
          },
          {
            role: 1,
            content: [
              {
                type: "tool_result",
                callId: "call_1",
                content: [{ value: "empty" }, { lines: 0 }, { value: tree }, { mimeType: "image/png", data: PNG_BASE64 }, "text"],
                isError: false,
              },
            ],
          },
        ],
        options: {
          toolMode: 2,
          tools: [{ name: "look", description: "The tool look.", inputSchema: { type: "object", properties: { path: { type: "string" } } } }],
          modelOptions: { temperature: 0 },
        },
        choices: { json: "file" },
      },
    ]);
  });
});

test("text, thinking, tool calls and data of a response become parts of VS Code, and other lines are ignored", async () => {
  const lines = [
    { type: "thinking", value: "Hm.", id: "rs_1", metadata: { signature: "s" } },
    { type: "text", value: "Look" },
    { type: "tool_call", callId: "call_1", name: "look", input: { path: "a.py" } },
    { type: "data", mimeType: "image/png", data: PNG_BASE64 },
    { type: "line of a newer gateway" },
  ];
  await withRecorder(lines, async () => {
    const [thinking, text, call, data, ...others] = (await answer("recorder", [message(1, "hi")])) as unknown[];
    assert.ok(thinking instanceof editor.LanguageModelThinkingPart);
    assert.deepEqual([thinking.value, thinking.id, thinking.metadata], ["Hm.", "rs_1", { signature: "s" }]);
    assert.ok(text instanceof editor.LanguageModelTextPart);
    assert.equal(text.value, "Look");
    assert.ok(call instanceof editor.LanguageModelToolCallPart);
    assert.deepEqual([call.callId, call.name, call.input], ["call_1", "look", { path: "a.py" }]);
    assert.ok(data instanceof editor.LanguageModelDataPart);
    assert.deepEqual([data.mimeType, [...data.data]], ["image/png", [...PNG]]);
    assert.deepEqual(others, []);
  });
});

test("an agent turn: a system prompt, an image, thinking, a tool call and its result", async () => {
  const history = [
    message(3, "You are an expert."),
    message(1, "What is this?", new editor.LanguageModelDataPart(PNG, "image/png")),
  ];
  const modelOptions = { temperature: 0, _conversationId: "c-1" };
  const parts = await answer("mock-1", history, options({ tools: [LOOK], modelOptions }));
  assert.equal(textOf(parts), "Looking.");
  const [call] = parts.filter((part) => part instanceof editor.LanguageModelToolCallPart);
  assert.deepEqual([call?.callId, call?.name, call?.input], ["call_1", "look", { path: "a.py" }]);
  const thinking = parts.filter((part) => (part as unknown) instanceof editor.LanguageModelThinkingPart);
  assert.equal(thinking.map((part) => (part as unknown as editor.LanguageModelThinkingPart).value).join(""), "Hm.");
  const tree = new editor.LanguageModelPromptTsxPart({ node: { type: 1, children: [{ type: 2, text: "leaf" }] } });
  const members = [new editor.LanguageModelTextPart("empty"), { lines: 0 }, tree, new editor.LanguageModelDataPart(PNG, "image/png")];
  const result = new editor.LanguageModelToolResultPart("call_1", members);
  const last = await answer("mock-1", [...history, message(2, ...parts), message(1, result)], options({ tools: [LOOK] }));
  assert.equal(textOf(last), "It is empty: ✓");
});

test("required tool mode makes the model call a tool", async () => {
  const parts = await answer("echo", [message(1, "good day")], options({ tools: [LOOK], toolMode: 2 }));
  assert.deepEqual(parts.map((part) => (part as unknown as editor.LanguageModelToolCallPart).name), ["look"]);
});

test("texts and messages have the same token count as in the gateway, in the internal format too", async () => {
  const mock = await model("mock-1");
  const call = new editor.LanguageModelToolCallPart("call_1", "look", { path: "a.py" });
  const tree = new editor.LanguageModelPromptTsxPart({ node: { type: 1, children: [{ type: 2, text: "leaf" }] } });
  const json = new TextEncoder().encode('{"a": [1, 2]}');
  const inputs = [
    "",
    "How long is this?",
    "def main() -> None:\n    print('Straße, 東京, 😀', 12345)\n".repeat(40),
    "A long text, of which only samples are counted. ".repeat(2000),
    message(1, "How long is this?", new editor.LanguageModelDataPart(PNG, "image/png")),
    message(1, new editor.LanguageModelDataPart(json, "application/json"), new editor.LanguageModelDataPart(PNG, "application/zip")),
    message(2, new editor.LanguageModelThinkingPart("Hm.", "rs_1"), "I look.", call),
    message(1, new editor.LanguageModelToolResultPart("call_1", [new editor.LanguageModelTextPart("empty"), tree])),
    message(3, "You are an expert."),
  ];
  for (const input of inputs) {
    const isText = typeof input === "string";
    const internal = isText ? input : editor.internalMessage(input as unknown as editor.LanguageModelChatMessage);
    const count = await provider.provideTokenCount(mock, internal as string, createToken());
    assert.equal(isText ? count : await provider.provideTokenCount(mock, input, createToken()), count);
    const { plainMessage } = await import("../src/plain.js");
    const body = JSON.stringify({ model: "mock-1", text: isText ? input : plainMessage(input) });
    const headers = { authorization: `Bearer ${KEY}`, "content-type": "application/json" };
    const response = await fetch(`${URL}/v1/vscode/count_tokens`, { method: "POST", headers, body });
    assert.deepEqual([body.slice(0, 200), count], [body.slice(0, 200), ((await response.json()) as { count: number }).count]);
  }
});

test("for a model that the gateway does not serve, the error says what to do, and the models are listed again", async () => {
  const refreshes = countRefreshes();
  const removed = { ...(await model("mock-1")), id: "removed" };
  const progress = { report: () => undefined };
  const response = provider.provideLanguageModelChatResponse(removed, [message(1, "hi")], options(), progress, createToken());
  await assert.rejects(Promise.resolve(response), { code: "NotFound", message: /'removed'.*Choose another model/ });
  assert.equal(refreshes(), 1);
});

test("a response that fails after its first part is an error", async () => {
  await assert.rejects(answer("breaks", [message(1, "hi")]), { message: /\w+/ });
});

test("a response that ends early is an error with the address", async () => {
  const handler: http.RequestListener = (request, response) => {
    if (request.method === "GET") return void response.end(JSON.stringify({ models: [MODEL] }));
    return void response.end('{"type": "text", "value": "Hel"}\n');
  };
  await withServer(handler, async (url) => {
    await assert.rejects(answer("recorder", [message(1, "hi")]), { message: new RegExp(`${url} ended before it was complete. Send the question again`) });
  });
});

test("a cancelled request ends", async () => {
  const cancellation = new editor.Cancellation();
  const parts: unknown[] = [];
  const progress = {
    report: (part: unknown) => {
      parts.push(part);
      cancellation.cancel();
    },
  };
  const response = provider.provideLanguageModelChatResponse(
    await model("hangs"),
    [message(1, "hi")],
    options(),
    progress,
    cancellation as unknown as vscode.CancellationToken,
  );
  await assert.rejects(Promise.resolve(response), editor.CancellationError);
  assert.equal(parts.length, 1);
});

type Shown = { readonly text: string; readonly markdown: editor.MarkdownString[] };

/** Asks the chat participant and returns what the Chat view shows. */
async function askParticipant(request: object, history: object[] = [], modelId = "echo"): Promise<Shown> {
  const markdown: editor.MarkdownString[] = [];
  const [selected] = (await editor.lm.selectChatModels({ vendor: "antiphon" })).filter(({ id }) => id === modelId);
  const chatRequest = { model: selected, references: [], toolReferences: [], ...request } as unknown as vscode.ChatRequest;
  const show = (value: string | editor.MarkdownString) => void markdown.push(new editor.ChatResponseMarkdownPart(value).value);
  const stream = { markdown: show } as unknown as vscode.ChatResponseStream;
  const handler = editor.participants.get("antiphon.chat") as vscode.ChatRequestHandler;
  assert.equal(await handler(chatRequest, { history } as unknown as vscode.ChatContext, stream, createToken()), undefined);
  return { text: markdown.map(({ value }) => value).join(""), markdown };
}

function references(...values: unknown[]): { value: unknown; id: string }[] {
  return values.map((value) => ({ value, id: `id of ${String(value)}` }));
}

test("@antiphon answers with the selected model", async () => {
  assert.equal((await askParticipant({ prompt: "good day" })).text, "You said: good day");
});

test("@antiphon sends the conversation with its attachments", async () => {
  const history = [
    new editor.ChatRequestTurn("first", references(new editor.Uri("a.py"))),
    new editor.ChatResponseTurn([new editor.ChatResponseMarkdownPart("second")]),
    new editor.ChatRequestTurn("not answered"),
    new editor.ChatResponseTurn([]),
  ];
  const range = { start: { line: 1 }, end: { line: 1 } };
  const attachments = references(new editor.Location(new editor.Uri("b.py"), range), "a text", new editor.Uri("long.txt"));
  attachments.push({ value: "<skills>", id: "vscode.customizations.index" }); // which VS Code adds for its own agent
  await withRecorder([{ type: "text", value: "fourth" }], async (bodies) => {
    const { text } = await askParticipant({ prompt: "third", references: attachments }, history, "recorder");
    assert.equal(text, "fourth");
    const value = (text: string) => ({ type: "text", value: text });
    const [{ messages }] = bodies as [ChatBody];
    const long = messages[3]?.content.splice(2, 1)[0] as { value: string };
    assert.match(long.value, /^The file long.txt, the first 200000 of 300008 characters:\n\none\ntwo\n3+\n$/);
    assert.equal(long.value.match(/3+\n$/)?.[0].length, 200_000 - 8 + 1);
    assert.deepEqual(messages, [
      { role: 1, content: [value("The file a.py:\n\none\ntwo\nthree\n"), value("first")] },
      { role: 2, content: [value("second")] },
      { role: 1, content: [value("not answered")] },
      { role: 1, content: [value("The file b.py, lines 2 to 2:\n\ntwo\n"), value("a text"), value("third")] },
    ]);
  });
});

test("@antiphon sends images and PDF files as data", async () => {
  const pasted = { mimeType: "image/webp", data: async () => PNG };
  const attachments = references(pasted, new editor.Uri("a.PNG"), new editor.Uri("b.pdf"));
  await withRecorder([], async (bodies) => {
    await askParticipant({ prompt: "What is this?", references: attachments }, [], "recorder");
    assert.deepEqual(bodies[0]?.messages[0]?.content, [
      { type: "data", mimeType: "image/webp", data: PNG_BASE64 },
      { type: "data", mimeType: "image/png", data: Buffer.from("a.PNG").toString("base64") },
      { type: "data", mimeType: "application/pdf", data: Buffer.from("b.pdf").toString("base64") },
      { type: "text", value: "What is this?" },
    ]);
  });
});

test("@antiphon names the attachments that it cannot send, and does not send these notes back", async () => {
  const [zip, folder, deleted, other] = references(new editor.Uri("a.zip"), new editor.Uri("src/"), new editor.Uri("deleted.png"), 7);
  const attachments = [{ ...zip, name: "a.zip" }, folder, deleted, other];
  await withRecorder([{ type: "text", value: "Hello." }], async (bodies) => {
    const { text, markdown } = await askParticipant({ prompt: "hi", references: attachments }, [], "recorder");
    for (const name of ["a.zip", "id of src/", "id of deleted.png", "id of 7"]) {
      assert.ok(text.includes(`The attachment "${name}" was not sent: it is not text, an image or a PDF file.`), text);
    }
    const response = markdown.map((value) => new editor.ChatResponseMarkdownPart(value));
    const history = [new editor.ChatRequestTurn("hi", attachments as { value: unknown }[]), new editor.ChatResponseTurn(response)];
    const again = await askParticipant({ prompt: "again" }, history, "recorder");
    assert.equal(again.text, "Hello.");
    assert.deepEqual(bodies[1]?.messages[1]?.content, [{ type: "text", value: "Hello." }]);
  });
});

test("@antiphon shows thinking as a quotation, and does not send it back as an answer", async () => {
  const lines = [
    { type: "thinking", value: "Let me\n", id: "rs_1" },
    { type: "thinking", value: "see.", id: "rs_1" },
    { type: "thinking", value: "", id: "rs_1", metadata: { signature: "s" } },
    { type: "text", value: "So" },
    { type: "text", value: "." },
  ];
  await withRecorder(lines, async (bodies) => {
    const { text, markdown } = await askParticipant({ prompt: "first" }, [], "recorder");
    assert.equal(text, "> *Thinking:* Let me\n> see.\n\nSo.");
    const response = markdown.map((value) => new editor.ChatResponseMarkdownPart(value));
    await askParticipant({ prompt: "second" }, [new editor.ChatRequestTurn("first"), new editor.ChatResponseTurn(response)], "recorder");
    assert.deepEqual(bodies[1]?.messages[1]?.content, [{ type: "text", value: "So." }]);
  });
});

test("@antiphon sends thinking back with the results of tools", async () => {
  editor.tools.set("look", () => [new editor.LanguageModelTextPart("empty")]);
  const { text } = await askParticipant({ prompt: "What is this?", toolReferences: [{ name: "look" }] }, [], "mock-1");
  assert.equal(text, "> *Thinking:* Hm.\n\nLooking.It is empty: ✓"); // the test of this suite checks what the upstream received
});

test("@antiphon runs the tools that the user names until the model answers", async () => {
  const inputs: object[] = [];
  editor.tools.set("look", (input) => (inputs.push(input), [new editor.LanguageModelTextPart("empty")]));
  const { text } = await askParticipant({ prompt: 'call look {"path": "a.py"}', toolReferences: [{ name: "look" }] });
  assert.deepEqual(inputs, [{ path: "a.py" }]);
  assert.equal(text, "look says: empty");
});

test("@antiphon tells the model that a tool failed", async () => {
  editor.tools.set("look", () => assert.fail("no such file"));
  const { text } = await askParticipant({ prompt: "call look {}", toolReferences: [{ name: "look" }] });
  assert.equal(text, "look says: The tool failed: no such file");
});

test("@antiphon runs no tool that the user did not name, and limits the number of rounds", async () => {
  editor.tools.set("look", () => assert.fail("was run"));
  editor.tools.set("write", () => assert.fail("was run"));
  await withRecorder([{ type: "tool_call", callId: "call_1", name: "write", input: {} }], async (bodies) => {
    const request = { prompt: "hi", toolReferences: [{ name: "look" }] };
    await assert.rejects(askParticipant(request, [], "recorder"), { message: /called tools 50 times and did not answer. Ask for/ });
    const [result] = bodies[1]?.messages[2]?.content as [{ content: unknown[] }];
    assert.deepEqual(result.content, [{ value: 'The tool failed: no tool "write" is available' }]);
    assert.equal(bodies.length, 50);
  });
});

test("@antiphon takes the first model of the gateway if a model of another provider is selected", async () => {
  const { text } = await askParticipant({ prompt: "hi", model: { vendor: "copilot" } });
  assert.match(text, /Looking/);
});

test("the key is sent only to the address that it was set for", async () => {
  const keys: (string | undefined)[] = [];
  const handler: http.RequestListener = (request, response) => {
    keys.push(request.headers.authorization);
    response.end(JSON.stringify({ models: [MODEL] }));
  };
  await withServer(handler, async () => {
    await listModels();
    await assert.rejects(answer("recorder", [message(1, "hi")]));
    assert.ok(keys.length >= 3);
    assert.deepEqual([...new Set(keys)], [undefined]);
  });
  assert.ok((await listModels()).length > 0); // the key is still stored for the first address
});

test("the user is asked for a key if the gateway at a changed address requires one", async () => {
  editor.warnings.length = 0;
  editor.user.button = "Set Key";
  editor.user.input = KEY;
  const address = URL.replace("127.0.0.1", "localhost");
  const keySet = new Promise<void>((resolve) => secrets.onDidChange(() => resolve()));
  editor.configure("url", address);
  await keySet;
  assert.match(editor.warnings.join(), new RegExp(`${address} requires a key`));
  assert.ok((await listModels()).length > 0);
  editor.configure("url", URL);
});

test("a redirect is not followed, and the error names its target", async () => {
  const keys: (string | undefined)[] = [];
  const handler: http.RequestListener = (request, response) => {
    keys.push(request.url);
    response.writeHead(302, { location: "/elsewhere" }).end();
  };
  await withServer(handler, async () => {
    await assert.rejects(listModels(), { message: /not an Antiphon gateway \(HTTP 302, a redirect to \/elsewhere\).*"antiphon.url"/ });
    assert.deepEqual([...new Set(keys)], ["/v1/vscode/models"]);
  });
});

test("for a server that is not a gateway, the error says what to do", async () => {
  const notFound = '{"error": {"code": "not_found", "message": "File Not Found"}}';
  const servers: [number, string][] = [
    [404, "<html>"],
    [404, notFound],
    [200, "<html>"],
    [200, '{"data": []}'],
    [401, '{"error": "no"}'],
  ];
  for (const [status, body] of servers) {
    await withServer(respond(status, {}, body), async (url) => {
      const message = `The server at ${url} is not an Antiphon gateway (HTTP ${status}). Correct the setting "antiphon.url".`;
      await assert.rejects(listModels(), { message });
    });
  }
  const noLines: http.RequestListener = (request, response) =>
    void response.end(request.method === "GET" ? JSON.stringify({ models: [MODEL] }) : "<html>\n");
  await withServer(noLines, async () => {
    await assert.rejects(answer("recorder", [message(1, "hi")]), { message: /not an Antiphon gateway \(HTTP 200\)/ });
  });
});

test("for an invalid address, the error says what is expected", async () => {
  for (const setting of ["localhost:8080", "", "ftp://127.0.0.1"]) {
    editor.configure("url", setting);
    await assert.rejects(listModels(), { message: /Invalid setting "antiphon.url".*Expected an http or https address such as http:/ });
  }
  editor.configure("url", URL);
});

test("if no gateway is running, the error says how to start one", async () => {
  let unused = "";
  await withServer(respond(404, {}, ""), async (url) => void (unused = url));
  editor.configure("url", unused);
  await assert.rejects(listModels(), { message: /cannot be reached \(ECONNREFUSED\).*"antiphon serve".*"antiphon.url"/ });
  editor.configure("url", URL);
});

for (const begin of ["", "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{"]) {
  test(`if a gateway does not finish a list of models that begins with "${begin.slice(0, 15)}", the error says what to do`, async (context) => {
    let receive = (): void => undefined;
    const received = new Promise<void>((resolve) => (receive = resolve));
    const handler: http.RequestListener = (_request, response) => {
      response.socket?.write(begin);
      receive();
    };
    context.mock.timers.enable({ apis: ["setTimeout"] });
    await withServer(handler, async (url) => {
      const refreshes = countRefreshes();
      const listing = listModels();
      await received;
      context.mock.timers.tick(10_000);
      await assert.rejects(listing, { message: new RegExp(`${url} did not answer within 10 seconds. Check that it is running, restart it`) });
      assert.equal(refreshes(), 0);
      context.mock.timers.tick(5_000);
      assert.equal(refreshes(), 1); // the models return when the gateway does
    });
  });
}
