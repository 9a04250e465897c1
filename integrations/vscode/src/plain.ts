// The editor's messages, parts, tools and options as plain objects, copied field by field. The editor's own objects are instances of
// classes: fields that are getters are missing in what JSON.stringify writes. Token counts are asked with the messages of the editor's
// internal protocol (`tool_use`, `image_url`, role 0), which are read here too.

import * as vscode from "vscode";

type Json = unknown;

export interface PlainMessage {
  readonly role: number;
  readonly name: string | undefined;
  readonly content: string | readonly (string | PlainPart)[];
}

export type PlainPart =
  | { readonly type: "text"; readonly value: string }
  | { readonly type: "thinking"; readonly value: string | string[]; readonly id: Json; readonly metadata: Json }
  | { readonly type: "tool_call"; readonly callId: string; readonly name: string; readonly input: Json }
  | { readonly type: "tool_result"; readonly callId: string; readonly content: readonly Json[]; readonly isError: boolean }
  | { readonly type: "data"; readonly mimeType: string; readonly data: string };

export interface PlainOptions {
  readonly toolMode: number;
  readonly tools: readonly { readonly name: string; readonly description: string; readonly inputSchema: Json }[] | undefined;
  readonly modelOptions: Json;
}

export function plainMessage(message: vscode.LanguageModelChatRequestMessage): PlainMessage {
  const content: unknown = message.content;
  return {
    role: (message.role as number) === INTERNAL_SYSTEM ? SYSTEM : message.role,
    name: message.name,
    content: typeof content === "string" ? content : Array.from(content as Iterable<unknown>, plainPart),
  };
}

/** Options of the model whose names begin with `_` are the editor's notes to itself, such as its own id of the conversation. */
export function plainOptions(options: vscode.ProvideLanguageModelChatResponseOptions): PlainOptions {
  return {
    toolMode: options.toolMode,
    tools: options.tools?.map(({ name, description, inputSchema }) => ({ name, description, inputSchema })),
    modelOptions: Object.fromEntries(Object.entries(options.modelOptions ?? {}).filter(([name]) => !name.startsWith("_"))),
  };
}

/** The members of every kind of part, in the public API and in the internal protocol. */
interface AnyPart {
  readonly type?: string;
  readonly value?: unknown;
  readonly id?: string;
  readonly metadata?: Json;
  readonly callId?: string;
  readonly toolCallId?: string;
  readonly name?: string;
  readonly input?: Json;
  readonly parameters?: Json;
  readonly content?: Iterable<unknown>;
  readonly isError?: boolean;
  readonly mimeType?: string;
  readonly data?: unknown;
}

function plainPart(part: unknown): string | PlainPart {
  if (typeof part === "string") return part;
  const { type, value, id, metadata, callId, toolCallId, name, input, parameters, content, isError, mimeType, data } = part as AnyPart;
  if (type === "image_url") return plainPart(value);
  const call = callId ?? toolCallId;
  const result = content ?? (type === "tool_result" ? (value as Iterable<unknown>) : undefined);
  if (call !== undefined && result !== undefined) {
    return { type: "tool_result", callId: call, content: Array.from(result, plainResult), isError: isError === true };
  }
  if (call !== undefined) return { type: "tool_call", callId: call, name: name ?? "", input: input ?? parameters ?? {} };
  if (mimeType !== undefined) return { type: "data", mimeType, data: base64(data) };
  if (type === "thinking" || isThinking(part, id, metadata)) return { type: "thinking", value: value as string | string[], id, metadata };
  return { type: "text", value: value as string };
}

/** A member of a tool's result: a text, data, the tree of a prompt-tsx part, or any JSON value of the tool's own. */
function plainResult(member: unknown): Json {
  if (typeof member !== "object" || member === null) return member;
  const { mimeType, data, value } = member as AnyPart;
  if (mimeType !== undefined && data !== undefined) return { mimeType, data: base64(data) };
  return value === undefined ? member : { value };
}

function isThinking(part: unknown, id: unknown, metadata: unknown): boolean {
  return (ThinkingPart !== undefined && part instanceof ThinkingPart) || id !== undefined || metadata !== undefined;
}

/** Bytes are an array, or the editor's own buffer around one. */
function base64(data: unknown): string {
  const bytes = data instanceof Uint8Array ? data : (data as { buffer: Uint8Array }).buffer;
  return Buffer.from(bytes).toString("base64");
}

type Thinking = new (value: string, id?: string, metadata?: Record<string, string>) => vscode.LanguageModelResponsePart;

/** The class of thinking parts, which is not in the public API; undefined in editors without one. */
export const ThinkingPart = (vscode as unknown as { LanguageModelThinkingPart?: Thinking }).LanguageModelThinkingPart;

const INTERNAL_SYSTEM = 0;
export const SYSTEM = 3;
