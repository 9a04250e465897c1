// About how many tokens a text or a message has, by the rules of the gateway's own estimate (`POST /v1/vscode/count_tokens`; a test
// compares the two). It is done here because the editor's agent counts the words of its tools one by one: a single turn asks five
// thousand times, which takes three quarters of a minute over HTTP.

import { type PlainMessage, type PlainPart, SYSTEM } from "./plain";

export function estimateText(text: string): number {
  let tokens: number;
  if (text.length <= LONG) {
    tokens = text.match(TOKEN)?.length ?? 0;
  } else {
    const step = Math.floor((text.length - SLICE) / (SLICES - 1));
    let found = 0;
    let slices = 0;
    for (let start = 0; start <= text.length - SLICE; start += step, slices += 1) {
      found += text.slice(start, start + SLICE).match(TOKEN)?.length ?? 0;
    }
    tokens = Math.floor((found * text.length) / (slices * SLICE));
  }
  return tokens + Math.floor((tokens + 19) / 20);
}

export function estimateMessage(message: PlainMessage): number {
  const parts = typeof message.content === "string" ? [message.content] : message.content;
  const texts: string[] = [];
  const around = message.role !== SYSTEM && parts.some(isSaid) ? AROUND_ITEM : 0; // the system prompt is no item
  const tokens = parts.reduce((sum: number, part) => sum + besidesTexts(part, texts), around);
  return tokens + estimateText(texts.join("\n"));
}

/** Texts and data of a message are one item of the conversation, each call, result and thought is another. */
function isSaid(part: string | PlainPart): boolean {
  return typeof part === "string" || part.type === "text" || part.type === "data";
}

/** What a part takes besides its texts, which are added to `texts`. */
function besidesTexts(part: string | PlainPart, texts: string[]): number {
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
      return AROUND_ITEM;
    case "tool_call":
      texts.push(part.name, JSON.stringify(part.input));
      return AROUND_ITEM + AROUND_CALL;
    case "tool_result":
      return part.content.reduce((sum: number, member) => sum + besidesTextsOfResult(member, texts), AROUND_ITEM + AROUND_CALL);
    case "data":
      return besidesTextsOfData(part.mimeType, part.data, texts);
  }
}

function besidesTextsOfResult(member: unknown, texts: string[]): number {
  const { mimeType, data, value } = Object(member) as { mimeType?: string; data?: string; value?: unknown };
  if (mimeType !== undefined && data !== undefined) return besidesTextsOfData(mimeType, data, texts);
  texts.push(typeof member === "string" ? member : value === undefined ? JSON.stringify(member) : textOf(value));
  return 0;
}

/** A value of a prompt-tsx part is a tree, read as the text of its leaves; any other is JSON. */
function textOf(value: unknown): string {
  const { node } = Object(value) as { node?: object };
  return typeof value === "string" ? value : node ? leavesOf(node) : JSON.stringify(value);
}

function leavesOf(node: object): string {
  const { text, children } = node as { text?: string; children?: object[] };
  return text ?? (children ?? []).map(leavesOf).join("");
}

function besidesTextsOfData(mimeType: string, data: string, texts: string[]): number {
  if (mimeType.startsWith("image/")) return IMAGE;
  if (!mimeType.startsWith("text/") && !/^application\/(.*\+)?json/.test(mimeType)) return FILE;
  texts.push(Buffer.from(data, "base64").toString());
  return 0;
}

// One match is about one token: a word or the first letters of a long one, two digits, three marks, one character of scripts that
// are written without spaces. A single space belongs to the word after it.
const TOKEN =
  /[A-Z]?[a-z]{1,8}|[A-Z]{1,3}|[0-9]{1,2}|[!-/:-@[-`{-~]{1,3}|\s{2,}|[\u0900-\u0fff\u3040-\u9fff\uac00-\ud7af\u{10000}-\u{10ffff}]|[^\x00-\x7f]{1,2}/gu;
const LONG = 32_768; // characters; of longer texts only pieces are looked at
const SLICES = 64;
const SLICE = 256;
const AROUND_ITEM = 4;
const AROUND_CALL = 6;
const IMAGE = 1_100;
const FILE = 1_500;
