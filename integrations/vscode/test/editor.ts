// A stand-in for the editor: as much of its API as the extension touches, as the editor behaves. It takes the place of the module
// `vscode`, which exists only inside the editor.

import type * as vscode from "vscode";

export class LanguageModelTextPart {
  constructor(readonly value: string) {}

  toJSON(): object {
    return { $mid: 21, value: this.value }; // as the editor's own class does
  }
}

export class LanguageModelToolCallPart {
  constructor(
    readonly callId: string,
    readonly name: string,
    readonly input: object,
  ) {}
}

export class LanguageModelToolResultPart {
  constructor(
    readonly callId: string,
    readonly content: unknown[],
  ) {}
}

export class LanguageModelDataPart {
  constructor(
    readonly data: Uint8Array,
    readonly mimeType: string,
  ) {}

  toJSON(): object {
    return { $mid: 24, mimeType: this.mimeType, data: this.data };
  }
}

export class LanguageModelThinkingPart {
  constructor(
    readonly value: string | string[],
    readonly id?: string,
    readonly metadata?: object,
  ) {}
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
export const registered = new Map<string, () => Promise<void>>();
export let typed: string | undefined;
export function type(text: string | undefined): void {
  typed = text;
}

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
};

export const commands = {
  registerCommand(name: string, command: () => Promise<void>) {
    registered.set(name, command);
    return { dispose: () => registered.delete(name) };
  },
};

export const window = { showInputBox: async () => typed };

export const workspace = {
  getConfiguration: () => ({ get: <T>(name: string, usual: T) => (configured.get(name) as T) ?? usual }),
  onDidChangeConfiguration: reconfigured.event,
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
