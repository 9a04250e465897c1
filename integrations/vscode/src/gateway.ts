// HTTP to the gateway: JSON there, JSON or lines of JSON back. Errors say what to do, under the editor's own name for them where there
// is one. The key goes to the address that it was set for and to no other.

import * as vscode from "vscode";

export interface Settings {
  readonly address: string;
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

/** No gateway answers at the address. */
export class GatewayUnreachable extends Error {}

export class Gateway {
  constructor(
    private readonly settings: () => Settings,
    private readonly keyFor: (address: string) => Thenable<string | undefined>,
  ) {}

  async models(token?: vscode.CancellationToken): Promise<vscode.LanguageModelChatInformation[]> {
    type Listed = { models: vscode.LanguageModelChatInformation[] };
    return this.request("GET", "/v1/vscode/models", undefined, token, async (response) => ((await response.json()) as Listed).models);
  }

  /** Reports the parts of an answer as they come. One that breaks off is an error, whatever came of it. */
  async chat(body: object, token: vscode.CancellationToken, report: (part: PartLine) => void): Promise<void> {
    await this.request("POST", "/v1/vscode/chat", body, token, async (response, address) => {
      for await (const text of linesOf(response)) {
        const line = JSON.parse(text) as PartLine | DoneLine | ErrorLine;
        if (line.type === "done") return;
        if (line.type === "error") throw errorOf(line.error);
        report(line);
      }
      throw brokenOff(address);
    });
  }

  private async request<T>(
    method: string,
    path: string,
    body: object | undefined,
    token: vscode.CancellationToken | undefined,
    read: (response: Response, address: string) => Promise<T>,
  ): Promise<T> {
    const { address, choices } = this.settings();
    const key = await this.keyFor(address);
    const headers: Record<string, string> = { "content-type": "application/json" };
    if (key) headers["authorization"] = `Bearer ${key}`;
    const content = body === undefined ? null : JSON.stringify({ ...body, choices });
    const controller = new AbortController();
    const cancellation = token?.onCancellationRequested(() => controller.abort());
    if (token?.isCancellationRequested) controller.abort();
    let response: Response | undefined;
    try {
      // A redirect is not followed: it would carry the conversation to an address that nobody set.
      response = await fetch(address + path, { method, headers, body: content, signal: controller.signal, redirect: "manual" });
      if (!response.ok) throw await refusalOf(response, address, key !== undefined);
      return await read(response, address);
    } catch (error) {
      if (controller.signal.aborted) throw new vscode.CancellationError();
      throw isNetworkError(error) ? (response ? brokenOff(address) : unreachable(address, error)) : error;
    } finally {
      cancellation?.dispose();
    }
  }
}

/** Whether an error has this name of the editor's. */
export function isError(error: unknown, name: "NoPermissions" | "NotFound"): boolean {
  return error instanceof vscode.LanguageModelError && error.code === vscode.LanguageModelError[name].name;
}

/** The address that a setting names: the origin and the path, without a slash at the end. */
export function addressOf(setting: string): string {
  let url: URL;
  try {
    url = new URL(setting);
  } catch {
    throw invalidAddress(setting);
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") throw invalidAddress(setting);
  return (url.origin + url.pathname).replace(/\/+$/, "");
}

async function* linesOf(response: Response): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const piece of response.body ?? []) {
    const lines = (rest + decoder.decode(piece as Uint8Array, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.trim()) yield line;
  }
}

async function refusalOf(response: Response, address: string, hasKey: boolean): Promise<Error> {
  const error = await errorIn(response);
  if (error === undefined) {
    const location = response.headers.get("location");
    const answer = location ? `HTTP ${response.status}, a redirect to ${location}` : `HTTP ${response.status}`;
    return new Error(`What answers at ${address} is not an Antiphon gateway (${answer}). Correct the setting "antiphon.url".`);
  }
  if (response.status === 401) {
    const problem = hasKey ? "refused the key that is set for it" : "asks for a key";
    return vscode.LanguageModelError.NoPermissions(`The Antiphon gateway at ${address} ${problem}. Run the command "${SET_KEY}".`);
  }
  if (error.code === "model_not_found") {
    return vscode.LanguageModelError.NotFound(
      `The Antiphon gateway at ${address} does not serve this model: ${error.message}. Choose another model, or add it to the gateway's configuration.`,
    );
  }
  return errorOf(error);
}

async function errorIn(response: Response): Promise<GatewayError | undefined> {
  try {
    return ((await response.json()) as { error?: GatewayError }).error;
  } catch {
    return undefined;
  }
}

function errorOf(error: GatewayError): Error {
  return error.name ? vscode.LanguageModelError[error.name](error.message) : new Error(error.message);
}

/** `fetch` throws a TypeError for whatever is wrong with the connection, and says what in its cause. */
function isNetworkError(error: unknown): error is TypeError {
  return error instanceof TypeError && error.cause !== undefined;
}

function brokenOff(address: string): Error {
  return new Error(`The answer of the Antiphon gateway at ${address} broke off before its end. Ask again.`);
}

function unreachable(address: string, error: TypeError): GatewayUnreachable {
  const cause = error.cause as { code?: string; message?: string } | undefined;
  const reason = cause?.code ?? cause?.message ?? error.message;
  return new GatewayUnreachable(
    `The Antiphon gateway at ${address} cannot be reached (${reason}). Start it with "antiphon serve", or correct the setting "antiphon.url".`,
  );
}

function invalidAddress(setting: string): Error {
  return new Error(`Invalid setting "antiphon.url": "${setting}". Expected an address such as ${DEFAULT_URL}.`);
}

export const DEFAULT_URL = "http://127.0.0.1:8080";
export const SET_KEY = "Antiphon: Set Gateway Key";
