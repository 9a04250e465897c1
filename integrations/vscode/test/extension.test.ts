// The extension before a gateway that runs: `ANTIPHON_URL` is where, `ANTIPHON_KEY` what it asks for. Its model `mock-1` answers by a
// script: first text, thinking and a call, then text; `hangs` begins and never ends; `breaks` ends in the middle; `echo` repeats the
// question, and calls a tool that the question spells out.

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
const AUTO = { toolMode: 1 } as vscode.ProvideLanguageModelChatResponseOptions;
const LOOK = { name: "look", description: "Looks.", inputSchema: { type: "object", properties: { path: { type: "string" } } } };
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

const token = () => new editor.Cancellation() as unknown as vscode.CancellationToken;

function message(role: number, ...content: unknown[]): vscode.LanguageModelChatRequestMessage {
  const parts = content.map((part) => (typeof part === "string" ? new editor.LanguageModelTextPart(part) : part));
  return new editor.LanguageModelChatMessage(role, parts) as unknown as vscode.LanguageModelChatRequestMessage;
}

async function models(): Promise<vscode.LanguageModelChatInformation[]> {
  return (await provider.provideLanguageModelChatInformation({ silent: true }, token())) ?? [];
}

async function model(id: string): Promise<vscode.LanguageModelChatInformation> {
  const match = (await models()).find((each) => each.id === id);
  assert.ok(match, id);
  return match;
}

async function answer(
  id: string,
  messages: vscode.LanguageModelChatRequestMessage[],
  options = AUTO,
  cancellation = token(),
): Promise<vscode.LanguageModelResponsePart[]> {
  const parts: vscode.LanguageModelResponsePart[] = [];
  const progress = { report: (part: vscode.LanguageModelResponsePart) => void parts.push(part) };
  await provider.provideLanguageModelChatResponse(await model(id), messages, options, progress, cancellation);
  return parts;
}

function textOf(parts: unknown[]): string {
  return parts.filter((part) => part instanceof editor.LanguageModelTextPart).map((part) => part.value).join("");
}

/** What the user types when the extension's command asks for a key. */
async function setKey(typed: string | undefined): Promise<void> {
  editor.user.typed = typed;
  await (editor.registered.get("antiphon.setKey") as () => Promise<void>)();
}

/** A server that is no gateway: it answers everything with this, and remembers the keys that came. */
async function elsewhere(
  status: number,
  headers: Record<string, string>,
  run: (url: string, keys: (string | undefined)[]) => Promise<void>,
): Promise<void> {
  const keys: (string | undefined)[] = [];
  const server = http.createServer((request, response) => {
    keys.push(request.headers.authorization);
    response.writeHead(status, headers).end("<html>");
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  try {
    await run(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, keys);
  } finally {
    editor.configure("url", URL);
    server.closeAllConnections();
    server.close();
  }
}

test("without a key, the error says which command sets it", async () => {
  await assert.rejects(models(), { code: "NoPermissions", message: /asks for a key.*"Antiphon: Set Gateway Key"/ });
});

test("a wrong key is told apart from a missing one", async () => {
  await setKey("wrong");
  await assert.rejects(models(), { code: "NoPermissions", message: /refused the key.*"Antiphon: Set Gateway Key"/ });
});

test("the key is kept as a secret, and the editor lists the models again", async () => {
  let changes = 0;
  provider.onDidChangeLanguageModelChatInformation?.(() => (changes += 1));
  await setKey(undefined);
  assert.equal(changes, 0);
  await setKey("");
  await assert.rejects(models(), { message: /asks for a key/ });
  await setKey(` ${KEY} `);
  assert.match(editor.user.prompt, new RegExp(URL));
  editor.configure("choices", { json: "file" });
  assert.equal(changes, 3);
});

test("models have what the editor shows", async () => {
  const mock = await model("mock-1");
  assert.equal(typeof mock.maxInputTokens, "number");
  assert.equal(typeof mock.maxOutputTokens, "number");
  assert.deepEqual(mock.capabilities, { imageInput: true, toolCalling: true });
  assert.ok(mock.name && mock.family && mock.version);
});

test("the models are listed once, whatever groups of them the editor has", async () => {
  const group = { silent: true, configuration: {} };
  assert.deepEqual(await provider.provideLanguageModelChatInformation(group, token()), []);
});

test("a turn of an agent: a system prompt, an image, thinking, a call, and its result", async () => {
  const history = [
    message(3, "You are an expert."),
    message(1, "What is this?", new editor.LanguageModelDataPart(PNG, "image/png")),
  ];
  const modelOptions = { temperature: 0, _conversationId: "c-1" };
  const parts = await answer("mock-1", history, { ...AUTO, tools: [LOOK], modelOptions });
  assert.equal(textOf(parts), "Looking.");
  const [call] = parts.filter((part) => part instanceof editor.LanguageModelToolCallPart);
  assert.deepEqual([call?.callId, call?.name, call?.input], ["call_1", "look", { path: "a.py" }]);
  const thinking = parts.filter((part) => (part as unknown) instanceof editor.LanguageModelThinkingPart);
  assert.equal(thinking.map((part) => (part as unknown as editor.LanguageModelThinkingPart).value).join(""), "Hm.");
  const tree = new editor.LanguageModelPromptTsxPart({ node: { type: 1, children: [{ type: 2, text: "leaf" }] } });
  const given = [new editor.LanguageModelTextPart("empty"), { lines: 0 }, tree, new editor.LanguageModelDataPart(PNG, "image/png")];
  const result = new editor.LanguageModelToolResultPart("call_1", given);
  const last = await answer("mock-1", [...history, message(2, ...parts), message(1, result)], { ...AUTO, tools: [LOOK] });
  assert.equal(textOf(last), "It is empty: ✓");
});

test("texts and messages are counted as the gateway counts them, in the editor's internal form too", async () => {
  const mock = await model("mock-1");
  const call = new editor.LanguageModelToolCallPart("call_1", "look", { path: "a.py" });
  const tree = new editor.LanguageModelPromptTsxPart({ node: { type: 1, children: [{ type: 2, text: "leaf" }] } });
  const json = new TextEncoder().encode('{"a": [1, 2]}');
  const counted = [
    "",
    "How long is this?",
    "def main() -> None:\n    print('Straße, 東京, 😀', 12345)\n".repeat(40),
    "A long text, of which only pieces are looked at. ".repeat(2000),
    message(1, "How long is this?", new editor.LanguageModelDataPart(PNG, "image/png")),
    message(1, new editor.LanguageModelDataPart(json, "application/json"), new editor.LanguageModelDataPart(PNG, "application/zip")),
    message(2, new editor.LanguageModelThinkingPart("Hm.", "rs_1"), "I look.", call),
    message(1, new editor.LanguageModelToolResultPart("call_1", [new editor.LanguageModelTextPart("empty"), tree])),
    message(3, "You are an expert."),
  ];
  for (const each of counted) {
    const isText = typeof each === "string";
    const internal = isText ? each : editor.internalMessage(each as unknown as editor.LanguageModelChatMessage);
    const count = await provider.provideTokenCount(mock, internal as string, token());
    assert.equal(isText ? count : await provider.provideTokenCount(mock, each, token()), count);
    const { plainMessage } = await import("../src/plain.js");
    const body = JSON.stringify({ model: "mock-1", text: isText ? each : plainMessage(each) });
    const headers = { authorization: `Bearer ${KEY}`, "content-type": "application/json" };
    const response = await fetch(`${URL}/v1/vscode/count_tokens`, { method: "POST", headers, body });
    assert.deepEqual([body.slice(0, 200), count], [body.slice(0, 200), ((await response.json()) as { count: number }).count]);
  }
});

test("a model that the gateway does not serve is told with what to do, and the models are listed again", async () => {
  let changes = 0;
  provider.onDidChangeLanguageModelChatInformation?.(() => (changes += 1));
  const gone = { ...(await model("mock-1")), id: "gone" };
  const progress = { report: () => undefined };
  const asked = provider.provideLanguageModelChatResponse(gone, [message(1, "hi")], AUTO, progress, token());
  await assert.rejects(Promise.resolve(asked), { code: "NotFound", message: /'gone'.*Choose another model/ });
  assert.equal(changes, 1);
});

test("an answer that fails half-way is an error", async () => {
  await assert.rejects(answer("breaks", [message(1, "hi")]), /./);
});

test("a cancelled question is no longer answered", async () => {
  const cancellation = new editor.Cancellation();
  const parts: unknown[] = [];
  const progress = {
    report: (part: unknown) => {
      parts.push(part);
      cancellation.cancel();
    },
  };
  const asked = provider.provideLanguageModelChatResponse(
    await model("hangs"),
    [message(1, "hi")],
    AUTO,
    progress,
    cancellation as unknown as vscode.CancellationToken,
  );
  await assert.rejects(Promise.resolve(asked), editor.CancellationError);
  assert.equal(parts.length, 1);
});

async function ask(question: object, history: object[] = []): Promise<[string, vscode.ChatResult | void | null | undefined]> {
  const shown: string[] = [];
  const [chosen] = (await editor.lm.selectChatModels({ vendor: "antiphon" })).filter(({ id }) => id === "echo");
  const request = { model: chosen, references: [], toolReferences: [], ...question } as unknown as vscode.ChatRequest;
  const stream = { markdown: (text: string) => void shown.push(text) } as unknown as vscode.ChatResponseStream;
  const participant = editor.participants.get("antiphon.chat") as vscode.ChatRequestHandler;
  const result = await participant(request, { history } as unknown as vscode.ChatContext, stream, token());
  return [shown.join(""), result];
}

test("@antiphon answers with the chosen model", async () => {
  assert.deepEqual(await ask({ prompt: "good day" }), ["You said: good day", undefined]);
});

test("@antiphon gives the model the conversation and what is attached", async () => {
  const history = [new editor.ChatRequestTurn("first"), new editor.ChatResponseTurn([new editor.ChatResponseMarkdownPart("second")])];
  const range = { start: { line: 1 }, end: { line: 1 } };
  const references = [new editor.Uri("a.py"), new editor.Location(new editor.Uri("b.py"), range), "a text", new editor.Uri("src/"), 7];
  const [shown] = await ask({ prompt: "third", references: references.map((value) => ({ value })) }, history);
  const attached = "The file a.py: one two three The file b.py, lines 2 to 2: two a text third";
  assert.equal(shown.replace(/\s+/g, " "), `You said: ${attached}`);
});

test("@antiphon runs the tools that the user names until the model has its answer", async () => {
  const inputs: object[] = [];
  editor.tools.set("look", (input) => (inputs.push(input), [new editor.LanguageModelTextPart("empty")]));
  const [shown] = await ask({ prompt: 'call look {"path": "a.py"}', toolReferences: [{ name: "look" }] });
  assert.deepEqual(inputs, [{ path: "a.py" }]);
  assert.equal(shown, "look says: empty");
});

test("@antiphon tells the model that a tool failed", async () => {
  editor.tools.set("look", () => assert.fail("no such file"));
  const [shown] = await ask({ prompt: "call look {}", toolReferences: [{ name: "look" }] });
  assert.equal(shown, "look says: The tool failed: no such file");
});

test("@antiphon takes the gateway's first model where another provider's is chosen", async () => {
  const [shown] = await ask({ prompt: "hi", model: { vendor: "copilot" } });
  assert.match(shown, /Looking/);
});

test("the key goes to the address that it was set for and to no other", async () => {
  await elsewhere(401, { "content-type": "application/json" }, async (url, keys) => {
    editor.configure("url", url);
    await assert.rejects(models());
    await assert.rejects(answer("mock-1", [message(1, "hi")]));
    assert.ok(keys.length >= 2);
    assert.deepEqual([...new Set(keys)], [undefined]);
  });
  assert.ok((await models()).length > 0); // the key is still there for the first address
});

test("a changed address whose gateway asks for a key asks the user for it", async () => {
  editor.warnings.length = 0;
  editor.user.pressed = "Set Key";
  editor.user.typed = KEY;
  const again = URL.replace("127.0.0.1", "localhost");
  const keySet = new Promise<void>((resolve) => secrets.onDidChange(() => resolve()));
  editor.configure("url", again);
  await keySet;
  assert.match(editor.warnings.join(), new RegExp(`${again} asks for a key`));
  assert.ok((await models()).length > 0);
  editor.configure("url", URL);
});

test("a redirect is not followed, and told", async () => {
  await elsewhere(302, { location: `${URL}/elsewhere` }, async (url) => {
    editor.configure("url", url);
    await assert.rejects(models(), { message: /not an Antiphon gateway.*redirect to .*"antiphon.url"/ });
  });
});

test("what is no gateway is told with what to do", async () => {
  await elsewhere(404, { "content-type": "text/html" }, async (url) => {
    editor.configure("url", url);
    await assert.rejects(models(), { message: /not an Antiphon gateway \(HTTP 404\).*"antiphon.url"/ });
  });
});

test("an address that is none is told with what is expected", async () => {
  for (const setting of ["localhost:8080", "", "ftp://127.0.0.1"]) {
    editor.configure("url", setting);
    await assert.rejects(models(), { message: /Invalid setting "antiphon.url".*Expected an address such as http:/ });
  }
  editor.configure("url", URL);
});

test("where no gateway is, the error says how to start one", async () => {
  let gone = "";
  await elsewhere(404, {}, async (url) => void (gone = url)); // a port that nobody listens on any more
  editor.configure("url", gone);
  await assert.rejects(models(), { message: /cannot be reached \(ECONNREFUSED\).*"antiphon serve".*"antiphon.url"/ });
});
