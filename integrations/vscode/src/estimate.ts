// Estimates how many tokens a text or a message has, by the same rules as the gateway (`POST /v1/vscode/count_tokens`; a test compares
// the two). The estimate runs in the extension because the agent of VS Code counts the descriptions of its tools one by one: a single
// turn makes about 5,000 counts, which take about 45 seconds over HTTP.

import { type PlainMessage, type PlainPart, SYSTEM } from "./plain";

export function estimateText(text: string): number {
  let tokens: number;
  if (text.length <= LONG_TEXT) {
    tokens = countMatches(text);
  } else {
    const step = Math.floor((text.length - SLICE_LENGTH) / (SLICES - 1));
    let matches = 0;
    let slices = 0;
    for (let start = 0; start <= text.length - SLICE_LENGTH; start += step, slices += 1) {
      matches += countMatches(text.slice(start, start + SLICE_LENGTH));
    }
    tokens = Math.floor((matches * text.length) / (slices * SLICE_LENGTH));
  }
  return tokens + Math.floor((tokens + 19) / 20);
}

export function estimateMessage(message: PlainMessage): number {
  const parts = typeof message.content === "string" ? [message.content] : message.content;
  const texts: string[] = [];
  const overhead = message.role !== SYSTEM && parts.some(isMessageContent) ? ITEM_OVERHEAD : 0; // the system prompt is not an item
  const tokens = parts.reduce((sum: number, part) => sum + estimateWithoutText(part, texts), overhead);
  return tokens + estimateText(texts.join("\n"));
}

/** The texts and the data of a message are one item of the conversation. Each tool call, tool result and thinking part is another. */
function isMessageContent(part: string | PlainPart): boolean {
  return typeof part === "string" || part.type === "text" || part.type === "data";
}

/** The tokens of a part without its texts. The texts are appended to `texts`. */
function estimateWithoutText(part: string | PlainPart, texts: string[]): number {
  if (typeof part === "string") {
    texts.push(part);
    return 0;
  }
  switch (part.type) {
    case "text":
      texts.push(part.value);
      return 0;
    case "thinking":
      texts.push(...[part.value].flat());
      return ITEM_OVERHEAD;
    case "tool_call":
      texts.push(part.name, JSON.stringify(part.input));
      return ITEM_OVERHEAD + CALL_OVERHEAD;
    case "tool_result":
      return part.content.reduce((sum: number, member) => sum + estimateResultMember(member, texts), ITEM_OVERHEAD + CALL_OVERHEAD);
    case "data":
      return estimateData(part.mimeType, part.data, texts);
  }
}

function estimateResultMember(member: unknown, texts: string[]): number {
  const { mimeType, data, value } = Object(member) as { mimeType?: string; data?: string; value?: unknown };
  if (mimeType !== undefined && data !== undefined) return estimateData(mimeType, data, texts);
  texts.push(typeof member === "string" ? member : value === undefined ? JSON.stringify(member) : textOf(value));
  return 0;
}

/** The value of a prompt-tsx part is a tree, whose text is the text of its leaves. Any other value is JSON. */
function textOf(value: unknown): string {
  const { node } = Object(value) as { node?: object };
  return typeof value === "string" ? value : node ? textOfLeaves(node) : JSON.stringify(value);
}

function textOfLeaves(node: object): string {
  const { text, children } = node as { text?: string; children?: object[] };
  return text ?? (children ?? []).map(textOfLeaves).join("");
}

function estimateData(mimeType: string, data: string, texts: string[]): number {
  if (mimeType.startsWith("image/")) return IMAGE_TOKENS;
  if (!mimeType.startsWith("text/") && !/^application\/(.*\+)?json/.test(mimeType)) return FILE_TOKENS;
  texts.push(Buffer.from(data, "base64").toString());
  return 0;
}

function countMatches(text: string): number {
  return text.match(TOKEN)?.length ?? 0;
}

// One match is about one token: a word or the first letters of a long word, two digits, three punctuation marks, or one character of a
// script that is written without spaces. A single space belongs to the word after it.
const TOKEN =
  /[A-Z]?[a-z]{1,8}|[A-Z]{1,3}|[0-9]{1,2}|[!-/:-@[-`{-~]{1,3}|\s{2,}|[\u0900-\u0fff\u3040-\u9fff\uac00-\ud7af\u{10000}-\u{10ffff}]|[^\x00-\x7f]{1,2}/gu;
const LONG_TEXT = 32_768; // characters; longer texts are sampled
const SLICES = 64;
const SLICE_LENGTH = 256;
const ITEM_OVERHEAD = 4;
const CALL_OVERHEAD = 6;
const IMAGE_TOKENS = 1_100;
const FILE_TOKENS = 1_500;
