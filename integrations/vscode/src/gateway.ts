// HTTP to the gateway: JSON there, JSON or lines of JSON back. Errors are told in the words of the gateway, under the editor's own
// name for them where there is one.

import * as vscode from "vscode";

export interface Settings {
  readonly url: string;
  readonly choices: object;
}

export interface ErrorLine {
  readonly type: "error";
  readonly error: GatewayError;
}

export interface DoneLine {
  readonly type: "done";
  readonly status: string;
  readonly reason?: string;
}

export type PartLine =
  | { readonly type: "text"; readonly value: string }
  | { readonly type: "thinking"; readonly value: string; readonly id: string; readonly metadata?: Record<string, string> }
  | { readonly type: "tool_call"; readonly callId: string; readonly name: string; readonly input: object }
  | { readonly type: "data"; readonly mimeType: string; readonly data: string };

interface GatewayError {
  readonly name?: "NoPermissions" | "Blocked" | "NotFound";
  readonly code: string;
  readonly message: string;
}

export class Gateway {
  constructor(
    private readonly settings: () => Settings,
    private readonly key: () => Promise<string | undefined>,
  ) {}

  async get<T>(path: string, token: vscode.CancellationToken): Promise<T> {
    return (await (await this.ask("GET", path, undefined, signalOf(token))).json()) as T;
  }

  async post<T>(path: string, body: object, token: vscode.CancellationToken): Promise<T> {
    return (await (await this.ask("POST", path, body, signalOf(token))).json()) as T;
  }

  /** The parts of an answer as they come. One that breaks off is an error, whatever came of it. */
  async *parts(path: string, body: object, token: vscode.CancellationToken): AsyncGenerator<PartLine> {
    const answer = await this.ask("POST", path, body, signalOf(token));
    for await (const line of linesOf(answer)) {
      const told = JSON.parse(line) as PartLine | DoneLine | ErrorLine;
      if (told.type === "done") return;
      if (told.type === "error") throw thrown(told.error);
      yield told;
    }
    throw new Error("the gateway's answer broke off before its end");
  }

  private async ask(method: string, path: string, body: object | undefined, signal: AbortSignal): Promise<Response> {
    const { url, choices } = this.settings();
    const key = await this.key();
    const headers: Record<string, string> = { "content-type": "application/json" };
    if (key) headers["authorization"] = `Bearer ${key}`;
    const content = body === undefined ? null : JSON.stringify({ ...body, choices }, passedOn);
    const answer = await fetch(url.replace(/\/+$/, "") + path, { method, headers, body: content, signal });
    if (!answer.ok) throw thrown(await errorIn(answer));
    return answer;
  }
}

/** Bytes have no form of their own in JSON; all else is passed on as it is. */
function passedOn(_name: string, value: unknown): unknown {
  return value instanceof Uint8Array ? Buffer.from(value).toString("base64") : value;
}

async function* linesOf(answer: Response): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const piece of answer.body ?? []) {
    const lines = (rest + decoder.decode(piece as Uint8Array, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.trim()) yield line;
  }
}

async function errorIn(answer: Response): Promise<GatewayError> {
  try {
    return ((await answer.json()) as { error: GatewayError }).error;
  } catch {
    return { code: "", message: `what answers there is no gateway: HTTP ${answer.status}` };
  }
}

function thrown(error: GatewayError): Error {
  return error.name ? vscode.LanguageModelError[error.name](error.message) : new Error(error.message);
}

function signalOf(token: vscode.CancellationToken): AbortSignal {
  const controller = new AbortController();
  if (token.isCancellationRequested) controller.abort();
  token.onCancellationRequested(() => controller.abort());
  return controller.signal;
}
