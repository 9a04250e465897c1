// The language model provider. Lists of models and chat requests go to the gateway; token counts are estimated in the extension.

import * as vscode from "vscode";

import { estimateMessage, estimateText } from "./estimate";
import { type Gateway, GatewayUnreachable, isLanguageModelError, type PartLine } from "./gateway";
import { plainMessage, plainOptions, ThinkingPart } from "./plain";

type Model = vscode.LanguageModelChatInformation;

export class Provider implements vscode.LanguageModelChatProvider, vscode.Disposable {
  private readonly changeEmitter = new vscode.EventEmitter<void>();
  readonly onDidChangeLanguageModelChatInformation = this.changeEmitter.event;
  private retryTimer: NodeJS.Timeout | undefined;

  constructor(private readonly gateway: Gateway) {}

  /** Makes VS Code list the models again. */
  refresh(): void {
    this.changeEmitter.fire();
  }

  async provideLanguageModelChatInformation(
    options: vscode.PrepareLanguageModelChatModelOptions & { configuration?: object },
    token: vscode.CancellationToken,
  ): Promise<Model[]> {
    if (options.configuration !== undefined) return []; // a group that the user added: its models are already in the list
    try {
      return await this.gateway.models(token);
    } catch (error) {
      if (error instanceof GatewayUnreachable) this.scheduleRefresh();
      throw error; // VS Code shows the error under "Manage Language Models" only
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
        const part = responsePart(line);
        if (part) progress.report(part);
      });
    } catch (error) {
      if (isLanguageModelError(error, "NotFound")) this.refresh(); // the list in VS Code is out of date
      throw error;
    }
  }

  async provideTokenCount(_model: Model, text: string | vscode.LanguageModelChatRequestMessage): Promise<number> {
    return typeof text === "string" ? estimateText(text) : estimateMessage(plainMessage(text));
  }

  dispose(): void {
    clearTimeout(this.retryTimer);
    this.changeEmitter.dispose();
  }

  /** Lists the models again later, so that they return when the gateway does. */
  private scheduleRefresh(): void {
    clearTimeout(this.retryTimer);
    this.retryTimer = setTimeout(() => this.refresh(), RETRY_SECONDS * 1000);
  }
}

function responsePart(line: PartLine): vscode.LanguageModelResponsePart | undefined {
  switch (line.type) {
    case "text":
      return new vscode.LanguageModelTextPart(line.value);
    case "tool_call":
      return new vscode.LanguageModelToolCallPart(line.callId, line.name, line.input);
    case "data":
      return new vscode.LanguageModelDataPart(Buffer.from(line.data, "base64"), line.mimeType);
    case "thinking":
      return ThinkingPart && (new ThinkingPart(line.value, line.id, line.metadata) as vscode.LanguageModelTextPart);
    default: // from a gateway that is newer than this extension
      return undefined;
  }
}

const RETRY_SECONDS = 5;
