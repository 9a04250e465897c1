// A stand-in for the editor: as much of its API as the extension touches, as the editor behaves. It takes the place of the module
// `vscode`, which exists only inside the editor.

import type * as vscode from "vscode";

// Messages and parts as the editor hands them over: instances of classes, whose fields are getters, so that JSON.stringify of one
// leaves them out. In the real editor `content` of a message is one; here all fields are, since each of them may become one.

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
  readonly #thought: { value: string | string[]; id: string | undefined; metadata: object | undefined };

  constructor(value: string | string[], id?: string, metadata?: object) {
    this.#thought = { value, id, metadata };
  }

  get value(): string | string[] {
    return this.#thought.value;
  }

  get id(): string | undefined {
    return this.#thought.id;
  }

  get metadata(): object | undefined {
    return this.#thought.metadata;
  }
}

/** A message of the editor's internal protocol, in which token counts are asked: other names, other roles, buffers around bytes. */
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

// What a test sets and looks at.
export const configured = new Map<string, unknown>();
export const providers = new Map<string, vscode.LanguageModelChatProvider>();
export const participants = new Map<string, vscode.ChatRequestHandler>();
export const registered = new Map<string, () => Promise<void>>();
export const tools = new Map<string, (input: object) => unknown[]>();
export const warnings: string[] = [];
/** What the user types into an input box, and which button of a message they press. */
export const user: { typed: string | undefined; pressed: string | undefined; prompt: string } = { typed: undefined, pressed: undefined, prompt: "" };

const reconfigured = new EventEmitter<{ affectsConfiguration(section: string): boolean }>();
export function configure(name: string, value: unknown): void {
  configured.set(name, value);
  reconfigured.fire({ affectsConfiguration: (section) => `antiphon.${name}`.startsWith(section) });
}

export const lm = {
  registerLanguageModelChatProvider(vendor: string, provider: vscode.LanguageModelChatProvider) {
    providers.set(vendor, provider);
    return { dispose: () => providers.delete(vendor) };
  },

  async selectChatModels({ vendor }: { vendor: string }) {
    const provider = providers.get(vendor) as vscode.LanguageModelChatProvider;
    const token = new Cancellation() as unknown as vscode.CancellationToken;
    const models = (await provider.provideLanguageModelChatInformation({ silent: true }, token)) ?? [];
    return models.map((model) => chatModel(vendor, provider, model));
  },

  get tools() {
    return [...tools.keys()].map((name) => ({ name, description: `The tool ${name}.`, inputSchema: { type: "object" }, tags: [] }));
  },

  async invokeTool(name: string, { input }: { input: object }) {
    return { content: (tools.get(name) as (input: object) => unknown[])(input) };
  },
};

/** A model as other extensions have it: all parts of the answer are there when the stream is read. */
function chatModel(vendor: string, provider: vscode.LanguageModelChatProvider, model: vscode.LanguageModelChatInformation) {
  return {
    ...model,
    vendor,
    async sendRequest(messages: vscode.LanguageModelChatRequestMessage[], options: object, token: vscode.CancellationToken) {
      const parts: unknown[] = [];
      const progress = { report: (part: unknown) => void parts.push(part) };
      const asked = { toolMode: 1, ...options } as vscode.ProvideLanguageModelChatResponseOptions;
      await provider.provideLanguageModelChatResponse(model, messages, asked, progress, token);
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
  constructor(readonly prompt: string) {}
}

export class ChatResponseMarkdownPart {
  readonly value: { value: string };

  constructor(value: string) {
    this.value = { value };
  }
}

export class ChatResponseTurn {
  constructor(readonly response: unknown[]) {}
}

export class Uri {
  constructor(readonly path: string) {}
}

export class Location {
  constructor(
    readonly uri: Uri,
    readonly range: { start: { line: number }; end: { line: number } },
  ) {}
}

export const commands = {
  registerCommand(name: string, command: () => Promise<void>) {
    registered.set(name, command);
    return { dispose: () => registered.delete(name) };
  },
};

export const window = {
  async showInputBox({ prompt }: { prompt: string }) {
    user.prompt = prompt;
    return user.typed;
  },

  async showWarningMessage(message: string) {
    warnings.push(message);
    return user.pressed;
  },
};

export const workspace = {
  getConfiguration: () => ({ get: <T>(name: string, usual: T) => (configured.get(name) as T) ?? usual }),
  onDidChangeConfiguration: reconfigured.event,
  asRelativePath: (uri: Uri) => uri.path,

  /** Every path is a file of three lines, except a folder. */
  async openTextDocument(uri: Uri) {
    if (uri.path.endsWith("/")) throw new Error("a folder");
    const lines = ["one", "two", "three"];
    return { getText: (range?: Location["range"]) => lines.slice(range?.start.line, range && range.end.line + 1).join("\n") };
  },
};

export class Secrets {
  private readonly kept = new Map<string, string>();
  private readonly changed = new EventEmitter<{ key: string }>();
  onDidChange = this.changed.event;

  async get(name: string): Promise<string | undefined> {
    return this.kept.get(name);
  }

  async store(name: string, value: string): Promise<void> {
    this.kept.set(name, value);
    this.changed.fire({ key: name });
  }

  async delete(name: string): Promise<void> {
    this.kept.delete(name);
    this.changed.fire({ key: name });
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
