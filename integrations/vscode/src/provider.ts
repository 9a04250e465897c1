// The editor's three questions, passed on: which models there are, what one answers, how long a text is.

import * as vscode from "vscode";

import type { Gateway, PartLine } from "./gateway";

type Model = vscode.LanguageModelChatInformation;

export class Provider implements vscode.LanguageModelChatProvider {
  constructor(
    private readonly gateway: Gateway,
    readonly onDidChangeLanguageModelChatInformation: vscode.Event<void>,
  ) {}

  async provideLanguageModelChatInformation(
    options: vscode.PrepareLanguageModelChatModelOptions,
    token: vscode.CancellationToken,
  ): Promise<Model[]> {
    try {
      return (await this.gateway.get<{ models: Model[] }>("/v1/vscode/models", token)).models;
    } catch (error) {
      if (options.silent) return []; // the gateway may not be up yet, and nobody asked for it
      throw error;
    }
  }

  async provideLanguageModelChatResponse(
    model: Model,
    messages: readonly vscode.LanguageModelChatRequestMessage[],
    options: vscode.ProvideLanguageModelChatResponseOptions,
    progress: vscode.Progress<vscode.LanguageModelResponsePart>,
    token: vscode.CancellationToken,
  ): Promise<void> {
    for await (const line of this.gateway.parts("/v1/vscode/chat", { model: model.id, messages, options }, token)) {
      const part = partOf(line);
      if (part) progress.report(part);
    }
  }

  async provideTokenCount(
    model: Model,
    text: string | vscode.LanguageModelChatRequestMessage,
    token: vscode.CancellationToken,
  ): Promise<number> {
    return (await this.gateway.post<{ count: number }>("/v1/vscode/count_tokens", { model: model.id, text }, token)).count;
  }
}

function partOf(line: PartLine): vscode.LanguageModelResponsePart | undefined {
  switch (line.type) {
    case "text":
      return new vscode.LanguageModelTextPart(line.value);
    case "tool_call":
      return new vscode.LanguageModelToolCallPart(line.callId, line.name, line.input);
    case "data":
      return new vscode.LanguageModelDataPart(Buffer.from(line.data, "base64"), line.mimeType);
    case "thinking": // which is not in every editor's API yet
      return ThinkingPart && new ThinkingPart(line.value, line.id, line.metadata);
    default: // of a gateway that is newer than this
      return undefined;
  }
}

type Thinking = new (value: string, id?: string, metadata?: Record<string, string>) => vscode.LanguageModelResponsePart;
const ThinkingPart = (vscode as unknown as { LanguageModelThinkingPart?: Thinking }).LanguageModelThinkingPart;
