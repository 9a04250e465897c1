// The extension before a gateway that runs: `ANTIPHON_URL` is where, `ANTIPHON_KEY` what it asks for. Its model `mock-1` answers by a
// script: first text, thinking and a call, then text; `hangs` begins and never ends.

import assert from "node:assert/strict";
import Module from "node:module";
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
  return { role, content, name: undefined } as vscode.LanguageModelChatRequestMessage;
}

async function models(silent = false): Promise<vscode.LanguageModelChatInformation[]> {
  return (await provider.provideLanguageModelChatInformation({ silent }, token())) ?? [];
}

async function model(id: string): Promise<vscode.LanguageModelChatInformation> {
  const found = (await models()).find((each) => each.id === id);
  assert.ok(found, id);
  return found;
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

test("without the key there are no models, and an error if somebody looks", async () => {
  assert.deepEqual(await models(true), []);
  await assert.rejects(models(), { code: "NoPermissions" });
});

test("the key is kept as a secret, and the editor is told to look again", async () => {
  let changes = 0;
  provider.onDidChangeLanguageModelChatInformation?.(() => (changes += 1));
  const setKey = editor.registered.get("antiphon.setKey") as () => Promise<void>;
  editor.type(undefined);
  await setKey();
  assert.equal(changes, 0);
  editor.type("wrong");
  await setKey();
  editor.type("");
  await setKey();
  assert.equal(await secrets.get("antiphon.key"), undefined);
  editor.type(KEY);
  await setKey();
  editor.configure("choices", { json: "file" });
  assert.equal(changes, 4);
});

test("models have what the editor shows", async () => {
  const found = await model("mock-1");
  assert.equal(typeof found.maxInputTokens, "number");
  assert.equal(typeof found.maxOutputTokens, "number");
  assert.deepEqual(found.capabilities, { imageInput: true, toolCalling: true });
  assert.ok(found.name && found.family && found.version);
});

test("a turn of an agent: a system prompt, an image, thinking, a call, and its result", async () => {
  const history = [
    message(3, new editor.LanguageModelTextPart("You are an expert.")),
    message(1, new editor.LanguageModelTextPart("What is this?"), new editor.LanguageModelDataPart(PNG, "image/png")),
  ];
  const parts = await answer("mock-1", history, { ...AUTO, tools: [LOOK] });
  const text = parts.filter((part) => part instanceof editor.LanguageModelTextPart).map((part) => part.value);
  assert.equal(text.join(""), "Looking.");
  const [call] = parts.filter((part) => part instanceof editor.LanguageModelToolCallPart);
  assert.deepEqual({ ...call }, { callId: "call_1", name: "look", input: { path: "a.py" } });
  const thinking = parts.filter((part) => (part as unknown) instanceof editor.LanguageModelThinkingPart);
  assert.equal(thinking.map((part) => (part as unknown as editor.LanguageModelThinkingPart).value).join(""), "Hm.");
  const result = new editor.LanguageModelToolResultPart("call_1", [new editor.LanguageModelTextPart("empty"), { lines: 0 }]);
  const last = await answer("mock-1", [...history, message(2, ...parts), message(1, result)], { ...AUTO, tools: [LOOK] });
  assert.deepEqual(last.map((part) => (part as editor.LanguageModelTextPart).value).join(""), "It is empty: ✓");
});

test("a text and a message are counted", async () => {
  const mock = await model("mock-1");
  const text = await provider.provideTokenCount(mock, "How long is this?", token());
  const said = await provider.provideTokenCount(mock, message(1, new editor.LanguageModelTextPart("How long is this?")), token());
  assert.ok(text > 2 && said > text);
});

test("an error has the editor's own name, and the gateway's words", async () => {
  const gone = { ...(await model("mock-1")), id: "gone" };
  const progress = { report: () => undefined };
  const asked = provider.provideLanguageModelChatResponse(gone, [message(1, "hi")], AUTO, progress, token());
  await assert.rejects(Promise.resolve(asked), { code: "NotFound", message: /gone/ });
});

test("an answer that fails half-way is an error", async () => {
  await assert.rejects(answer("breaks", [message(1, "hi")]), /./);
});

test("who cancels is no longer answered", async () => {
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
  await assert.rejects(Promise.resolve(asked), { name: "AbortError" });
  assert.equal(parts.length, 1);
});

test("where no gateway is, there are no models", async () => {
  editor.configure("url", "http://127.0.0.1:1");
  assert.deepEqual(await models(true), []);
  await assert.rejects(models());
});
