// The editor's three questions: which models there are and what one answers, which are passed on; how long a text is, which is
// estimated here.

import * as vscode from "vscode";

import { estimateMessage, estimateText } from "./estimate";
import { type Gateway, GatewayUnreachable, isError, type PartLine } from "./gateway";
import { plainMessage, plainOptions, ThinkingPart } from "./plain";

type Model = vscode.LanguageModelChatInformation;

export class Provider implements vscode.LanguageModelChatProvider, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChangeLanguageModelChatInformation = this.changed.event;
  private retry: NodeJS.Timeout | undefined;

  constructor(private readonly gateway: Gateway) {}

  /** Makes the editor list the models again. */
  refresh(): void {
    this.changed.fire();
  }

  async provideLanguageModelChatInformation(
    options: vscode.PrepareLanguageModelChatModelOptions & { configuration?: object },
    token: vscode.CancellationToken,
  ): Promise<Model[]> {
    if (options.configuration !== undefined) return []; // asked for a group; the models are listed without one already
    try {
      return await this.gateway.models(token);
    } catch (error) {
      if (error instanceof GatewayUnreachable) this.waitForGateway();
      throw error; // the editor shows it in its list of models, and nowhere else
    }
  }

  async provideLanguageModelChatResponse(
    model: Model,
    messages: readonly vscode.LanguageModelChatRequestMessage[],
    options: vscode.ProvideLanguageModelChatResponseOptions,
    progress: vscode.Progress<vscode.LanguageModelResponsePart>,
    token: vscode.CancellationToken,
  ): Promise<void> {
    const body = { model: model.id, messages: messages.map(plainMessage), options: plainOptions(options) };
    try {
      await this.gateway.chat(body, token, (line) => {
        const part = partOf(line);
        if (part) progress.report(part);
      });
    } catch (error) {
      if (isError(error, "NotFound")) this.refresh(); // the list that the editor has is old
      throw error;
    }
  }

  async provideTokenCount(_model: Model, text: string | vscode.LanguageModelChatRequestMessage): Promise<number> {
    return typeof text === "string" ? estimateText(text) : estimateMessage(plainMessage(text));
  }

  dispose(): void {
    clearTimeout(this.retry);
    this.changed.dispose();
  }

  /** Lists the models again once a gateway that could not be reached is there. */
  private waitForGateway(): void {
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.refresh(), RETRY_SECONDS * 1000);
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
    case "thinking":
      return ThinkingPart && new ThinkingPart(line.value, line.id, line.metadata);
    default: // of a gateway that is newer than this
      return undefined;
  }
}

const RETRY_SECONDS = 5;
