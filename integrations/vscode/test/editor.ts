// A stand-in for VS Code: the part of its API that the extension uses. It replaces the module `vscode`, which exists only inside VS Code.

import type * as vscode from "vscode";

// Messages, parts, tools and options are class instances whose fields are getters, so JSON.stringify leaves the fields out. In VS Code
// only `content` of a message is a getter today. Here all fields are getters, since VS Code may change any of them.

export class LanguageModelChatMessage {
  readonly #role: number;
  readonly #content: readonly unknown[];
  readonly #name: string | undefined;

  constructor(role: number, content: string | readonly unknown[], name?: string) {
    this.#role = role;
    this.#content = typeof content === "string" ? [new LanguageModelTextPart(content)] : content;
    this.#name = name;
  }

  static User = (content: string | readonly unknown[]) => new LanguageModelChatMessage(1, content);
  static Assistant = (content: string | readonly unknown[]) => new LanguageModelChatMessage(2, content);

  get role(): number {
    return this.#role;
  }

  get content(): readonly unknown[] {
    return this.#content;
  }

  get name(): string | undefined {
    return this.#name;
  }
}

export class LanguageModelTextPart {
  readonly #value: string;

  constructor(value: string) {
    this.#value = value;
  }

  get value(): string {
    return this.#value;
  }
}

export class LanguageModelPromptTsxPart {
  readonly #value: unknown;

  constructor(value: unknown) {
    this.#value = value;
  }

  get value(): unknown {
    return this.#value;
  }
}

export class LanguageModelToolCallPart {
  readonly #call: { callId: string; name: string; input: object };

  constructor(callId: string, name: string, input: object) {
    this.#call = { callId, name, input };
  }

  get callId(): string {
    return this.#call.callId;
  }

  get name(): string {
    return this.#call.name;
  }

  get input(): object {
    return this.#call.input;
  }
}

export class LanguageModelToolResultPart {
  readonly #callId: string;
  readonly #content: unknown[];

  constructor(callId: string, content: unknown[]) {
    this.#callId = callId;
    this.#content = content;
  }

  get callId(): string {
    return this.#callId;
  }

  get content(): unknown[] {
    return this.#content;
  }

  get isError(): boolean {
    return false;
  }
}

export class LanguageModelDataPart {
  readonly #data: Uint8Array;
  readonly #mimeType: string;

  constructor(data: Uint8Array, mimeType: string) {
    this.#data = data;
    this.#mimeType = mimeType;
  }

  get data(): Uint8Array {
    return this.#data;
  }

  get mimeType(): string {
    return this.#mimeType;
  }
}

export class LanguageModelThinkingPart {
  readonly #fields: { value: string | string[]; id: string | undefined; metadata: object | undefined };

  constructor(value: string | string[], id?: string, metadata?: object) {
    this.#fields = { value, id, metadata };
  }

  get value(): string | string[] {
    return this.#fields.value;
  }

  get id(): string | undefined {
    return this.#fields.id;
  }

  get metadata(): object | undefined {
    return this.#fields.metadata;
  }
}

export class Tool {
  readonly #name: string;

  constructor(name: string) {
    this.#name = name;
  }

  get name(): string {
    return this.#name;
  }

  get description(): string {
    return `The tool ${this.#name}.`;
  }

  get inputSchema(): object {
    return { type: "object", properties: { path: { type: "string" } } };
  }
}

export interface OptionFields {
  readonly toolMode?: number;
  readonly tools?: readonly unknown[];
  readonly modelOptions?: object;
}

export class RequestOptions {
  readonly #fields: OptionFields;

  constructor(fields: OptionFields = {}) {
    this.#fields = fields;
  }

  get toolMode(): number {
    return this.#fields.toolMode ?? 1;
  }

  get tools(): readonly unknown[] | undefined {
    return this.#fields.tools;
  }

  get modelOptions(): object | undefined {
    return this.#fields.modelOptions;
  }
}

/** A message in the internal format that VS Code uses for token counts: other names, other roles, buffers that wrap bytes. */
export function internalMessage(message: LanguageModelChatMessage): object {
  return { role: message.role === 3 ? 0 : message.role, name: message.name, content: message.content.map(internalPart) };
}

function internalPart(part: unknown): object {
  if (part instanceof LanguageModelToolCallPart) {
    return { type: "tool_use", toolCallId: part.callId, name: part.name, parameters: part.input };
  }
  if (part instanceof LanguageModelToolResultPart) {
    return { type: "tool_result", toolCallId: part.callId, value: part.content.map(internalPart), isError: part.isError };
  }
  if (part instanceof LanguageModelThinkingPart) return { type: "thinking", value: part.value, id: part.id, metadata: part.metadata };
  if (part instanceof LanguageModelPromptTsxPart) return { type: "prompt_tsx", value: part.value };
  if (part instanceof LanguageModelTextPart) return { type: "text", value: part.value };
  const { data, mimeType } = part as LanguageModelDataPart;
  const buffer = { buffer: data, byteLength: data.byteLength };
  return mimeType.startsWith("image/") ? { type: "image_url", value: { mimeType, data: buffer } } : { type: "data", mimeType, data: buffer };
}

export class LanguageModelError extends Error {
  private constructor(
    message: string,
    readonly code: string,
  ) {
    super(message);
  }

  static NoPermissions = (message: string) => new LanguageModelError(message, "NoPermissions");
  static Blocked = (message: string) => new LanguageModelError(message, "Blocked");
  static NotFound = (message: string) => new LanguageModelError(message, "NotFound");
}

export class CancellationError extends Error {}

export class EventEmitter<T> {
  private readonly listeners = new Set<(event: T) => void>();

  event = (listener: (event: T) => void) => {
    this.listeners.add(listener);
    return { dispose: () => this.listeners.delete(listener) };
  };

  fire(event: T): void {
    for (const listener of this.listeners) listener(event);
  }

  dispose(): void {
    this.listeners.clear();
  }
}

// State that tests set and check.
const settings = new Map<string, unknown>();
export const providers = new Map<string, vscode.LanguageModelChatProvider>();
export const participants = new Map<string, vscode.ChatRequestHandler>();
export const registeredCommands = new Map<string, () => Promise<void>>();
export const tools = new Map<string, (input: object) => unknown[]>();
export const warnings: string[] = [];
/** The text that the user types into an input box, the button of a message that the user presses, and the last prompt of an input box. */
export const user: { input: string | undefined; button: string | undefined; prompt: string } = { input: undefined, button: undefined, prompt: "" };

const configurationEmitter = new EventEmitter<{ affectsConfiguration(section: string): boolean }>();
export function configure(name: string, value: unknown): void {
  settings.set(name, value);
  configurationEmitter.fire({ affectsConfiguration: (section) => `antiphon.${name}`.startsWith(section) });
}

export const lm = {
  registerLanguageModelChatProvider(vendor: string, provider: vscode.LanguageModelChatProvider) {
    providers.set(vendor, provider);
    return { dispose: () => providers.delete(vendor) };
  },

  /** An error of the provider makes the list empty, as in VS Code. */
  async selectChatModels({ vendor }: { vendor: string }) {
    const provider = providers.get(vendor) as vscode.LanguageModelChatProvider;
    const token = new Cancellation() as unknown as vscode.CancellationToken;
    const listing = Promise.resolve(provider.provideLanguageModelChatInformation({ silent: true }, token));
    const models = (await listing.catch(() => [])) ?? [];
    return models.map((model) => chatModel(vendor, provider, model));
  },

  get tools() {
    return [...tools.keys()].map((name) => new Tool(name));
  },

  async invokeTool(name: string, { input }: { input: object }) {
    return { content: (tools.get(name) as (input: object) => unknown[])(input) };
  },
};

/** A model as other extensions get it. All parts of the response are available when the stream is read. */
function chatModel(vendor: string, provider: vscode.LanguageModelChatProvider, model: vscode.LanguageModelChatInformation) {
  return {
    ...model,
    vendor,
    async sendRequest(
      messages: vscode.LanguageModelChatRequestMessage[],
      options: vscode.LanguageModelChatRequestOptions,
      token: vscode.CancellationToken,
    ) {
      const parts: unknown[] = [];
      const progress = { report: (part: unknown) => void parts.push(part) };
      const requestOptions = new RequestOptions(options) as unknown as vscode.ProvideLanguageModelChatResponseOptions;
      await provider.provideLanguageModelChatResponse(model, messages, requestOptions, progress, token);
      return { stream: parts };
    },
  };
}

export const chat = {
  createChatParticipant(id: string, handler: vscode.ChatRequestHandler) {
    participants.set(id, handler);
    return { dispose: () => participants.delete(id) };
  },
};

export class ChatRequestTurn {
  constructor(
    readonly prompt: string,
    readonly references: { value: unknown }[] = [],
  ) {}
}

export class MarkdownString {
  baseUri: Uri | undefined;

  constructor(readonly value: string) {}
}

export class ChatResponseMarkdownPart {
  readonly value: MarkdownString;

  constructor(value: string | MarkdownString) {
    this.value = typeof value === "string" ? new MarkdownString(value) : value;
  }
}

export class ChatResponseTurn {
  constructor(readonly response: unknown[]) {}
}

export class Uri {
  constructor(readonly path: string) {}

  static parse = (text: string) => new Uri(text);

  toString(): string {
    return this.path;
  }
}

export class Location {
  constructor(
    readonly uri: Uri,
    readonly range: { start: { line: number }; end: { line: number } },
  ) {}
}

export const commands = {
  registerCommand(name: string, command: () => Promise<void>) {
    registeredCommands.set(name, command);
    return { dispose: () => registeredCommands.delete(name) };
  },
};

export const window = {
  async showInputBox({ prompt }: { prompt: string }) {
    user.prompt = prompt;
    return user.input;
  },

  async showWarningMessage(message: string) {
    warnings.push(message);
    return user.button;
  },
};

export const workspace = {
  getConfiguration: () => ({ get: <T>(name: string, defaultValue: T) => (settings.get(name) as T) ?? defaultValue }),
  onDidChangeConfiguration: configurationEmitter.event,
  asRelativePath: (uri: Uri) => uri.path,

  /** Every path is a text file of three lines, except folders and binary files. `long.txt` has a long third line. */
  async openTextDocument(uri: Uri) {
    if (/\/$|\.(png|pdf|zip)$/i.test(uri.path)) throw new Error("not a text file");
    const lines = ["one", "two", uri.path === "long.txt" ? "3".repeat(300_000) : "three"];
    return { getText: (range?: Location["range"]) => lines.slice(range?.start.line, range && range.end.line + 1).join("\n") };
  },

  fs: {
    async readFile(uri: Uri): Promise<Uint8Array> {
      if (uri.path.startsWith("deleted")) throw new Error("no such file");
      return new TextEncoder().encode(uri.path);
    },
  },
};

export class Secrets {
  private readonly values = new Map<string, string>();
  private readonly changeEmitter = new EventEmitter<{ key: string }>();
  onDidChange = this.changeEmitter.event;

  async get(name: string): Promise<string | undefined> {
    return this.values.get(name);
  }

  async store(name: string, value: string): Promise<void> {
    this.values.set(name, value);
    this.changeEmitter.fire({ key: name });
  }

  async delete(name: string): Promise<void> {
    this.values.delete(name);
    this.changeEmitter.fire({ key: name });
  }
}

export class Cancellation {
  isCancellationRequested = false;
  private readonly emitter = new EventEmitter<void>();
  onCancellationRequested = this.emitter.event;

  cancel(): void {
    this.isCancellationRequested = true;
    this.emitter.fire();
  }
}
