// Copies messages, parts, tools and options of VS Code into plain objects, field by field. The objects of VS Code are class instances,
// and JSON.stringify leaves out fields that are getters. For token counts VS Code passes messages in its internal format (`tool_use`,
// `image_url`, role 0), which are copied too.

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

/** Model options whose names begin with `_` are internal to VS Code, such as its conversation id. They are not sent. */
export function plainOptions(options: vscode.ProvideLanguageModelChatResponseOptions): PlainOptions {
  return {
    toolMode: options.toolMode,
    tools: options.tools?.map(({ name, description, inputSchema }) => ({ name, description, inputSchema })),
    modelOptions: Object.fromEntries(Object.entries(options.modelOptions ?? {}).filter(([name]) => !name.startsWith("_"))),
  };
}

/** The fields of all kinds of parts, in the public API and in the internal format. */
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

/** A member of a tool result: a text, data, the tree of a prompt-tsx part, or any JSON value. */
function plainResult(member: unknown): Json {
  if (typeof member !== "object" || member === null) return member;
  const { mimeType, data, value } = member as AnyPart;
  if (mimeType !== undefined && data !== undefined) return { mimeType, data: base64(data) };
  return value === undefined ? member : { value };
}

function isThinking(part: unknown, id: unknown, metadata: unknown): boolean {
  return (ThinkingPart !== undefined && part instanceof ThinkingPart) || id !== undefined || metadata !== undefined;
}

/** Bytes are a Uint8Array, or an internal buffer of VS Code that wraps one. */
function base64(data: unknown): string {
  const bytes = data instanceof Uint8Array ? data : (data as { buffer: Uint8Array }).buffer;
  return Buffer.from(bytes).toString("base64");
}

type ThinkingPartClass = new (value: string, id?: string, metadata?: Record<string, string>) => { readonly value: string | string[] };

/** The class of thinking parts. It is not in the public API, and is undefined in versions of VS Code that do not have it. */
export const ThinkingPart = (vscode as unknown as { LanguageModelThinkingPart?: ThinkingPartClass }).LanguageModelThinkingPart;

const INTERNAL_SYSTEM = 0;
export const SYSTEM = 3;
