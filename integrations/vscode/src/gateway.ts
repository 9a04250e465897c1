// HTTP requests to the gateway: JSON requests, JSON or NDJSON responses. Error messages tell the user what to do; where
// `LanguageModelError` has a code for an error, that class is used. A key is sent only to the address that it was set for.

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

interface GatewayRequest<T> {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly body?: object;
  readonly token: vscode.CancellationToken | undefined;
  readonly timeoutSeconds?: number;
  readonly read: (response: Response, address: string) => Promise<T>;
}

/** No gateway answers at the address. */
export class GatewayUnreachable extends Error {}

export class Gateway {
  constructor(
    private readonly readSettings: () => Settings,
    private readonly keyFor: (address: string) => Thenable<string | undefined>,
  ) {}

  /** Lists the models. VS Code and other extensions wait for the list, so a gateway that does not answer is an error. */
  async models(token?: vscode.CancellationToken): Promise<vscode.LanguageModelChatInformation[]> {
    return this.request({
      method: "GET",
      path: MODELS_PATH,
      token,
      timeoutSeconds: LIST_TIMEOUT_SECONDS,
      read: async (response, address) => {
        const { models } = Object(parseJson(await response.text())) as { models?: vscode.LanguageModelChatInformation[] };
        if (!Array.isArray(models)) throw notGateway(address, response);
        return models;
      },
    });
  }

  /** Reports each part of the response when it arrives. A response that ends early is an error, even if parts were reported. */
  async chat(body: object, token: vscode.CancellationToken, report: (part: PartLine) => void): Promise<void> {
    await this.request({
      method: "POST",
      path: "/v1/vscode/chat",
      body,
      token,
      read: async (response, address) => {
        for await (const text of linesOf(response)) {
          const line = parseJson(text) as PartLine | DoneLine | ErrorLine | undefined;
          if (line === undefined) throw notGateway(address, response);
          if (line.type === "done") return;
          if (line.type === "error") throw errorFrom(line.error);
          report(line);
        }
        throw endedEarly(address);
      },
    });
  }

  private async request<T>({ method, path, body, token, timeoutSeconds, read }: GatewayRequest<T>): Promise<T> {
    const { address, choices } = this.readSettings();
    const key = await this.keyFor(address);
    const headers: Record<string, string> = { "content-type": "application/json" };
    if (key) headers["authorization"] = `Bearer ${key}`;
    const content = body === undefined ? null : JSON.stringify({ ...body, choices });
    const controller = new AbortController();
    const cancellation = token?.onCancellationRequested(() => controller.abort());
    if (token?.isCancellationRequested) controller.abort();
    let hasTimedOut = false;
    const expire = () => {
      hasTimedOut = true;
      controller.abort();
    };
    const timer = timeoutSeconds === undefined ? undefined : setTimeout(expire, timeoutSeconds * 1000);
    let response: Response | undefined;
    try {
      // Redirects are not followed: a redirect would send the conversation to an address that the user did not set.
      response = await fetch(address + path, { method, headers, body: content, signal: controller.signal, redirect: "manual" });
      if (!response.ok) throw await refusalFrom(response, path, address, key !== undefined);
      return await read(response, address);
    } catch (error) {
      if (hasTimedOut) throw timedOut(address, timeoutSeconds);
      if (controller.signal.aborted) throw new vscode.CancellationError();
      throw isNetworkError(error) ? (response ? endedEarly(address) : unreachable(address, error)) : error;
    } finally {
      clearTimeout(timer);
      cancellation?.dispose();
    }
  }
}

/** Whether the error is a `LanguageModelError` with this code. */
export function isLanguageModelError(error: unknown, code: "NoPermissions" | "NotFound"): boolean {
  return error instanceof vscode.LanguageModelError && error.code === vscode.LanguageModelError[code].name;
}

/** The address in a setting: the origin and the path, without a slash at the end. */
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
  for await (const chunk of response.body ?? []) {
    const lines = (rest + decoder.decode(chunk as Uint8Array, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.trim()) yield line;
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

async function refusalFrom(response: Response, path: string, address: string, hasKey: boolean): Promise<Error> {
  const { error } = Object(parseJson(await response.text())) as { error?: Partial<GatewayError> };
  const isMissingPath = response.status === 404 && path === MODELS_PATH;
  if (typeof error?.message !== "string" || isMissingPath) return notGateway(address, response);
  if (response.status === 401) {
    const problem = hasKey ? "rejected the key that is set for this address" : "requires a key";
    return vscode.LanguageModelError.NoPermissions(`The Antiphon gateway at ${address} ${problem}. Run the command "${SET_KEY}".`);
  }
  if (error.code === "model_not_found") {
    return vscode.LanguageModelError.NotFound(
      `The Antiphon gateway at ${address} does not serve this model: ${error.message}. Choose another model, or add this one to the configuration of the gateway.`,
    );
  }
  return errorFrom(error as GatewayError);
}

function errorFrom(error: GatewayError): Error {
  return error.name ? vscode.LanguageModelError[error.name](error.message) : new Error(error.message);
}

/** `fetch` throws a TypeError for every network error, with the reason in its cause. */
function isNetworkError(error: unknown): error is TypeError {
  return error instanceof TypeError && error.cause !== undefined;
}

function notGateway(address: string, response: Response): Error {
  const location = response.headers.get("location");
  const status = location ? `HTTP ${response.status}, a redirect to ${location}` : `HTTP ${response.status}`;
  return new Error(`The server at ${address} is not an Antiphon gateway (${status}). Correct the setting "antiphon.url".`);
}

function endedEarly(address: string): Error {
  return new Error(`The response of the Antiphon gateway at ${address} ended before it was complete. Send the question again.`);
}

function unreachable(address: string, error: TypeError): GatewayUnreachable {
  const cause = error.cause as { code?: string; message?: string } | undefined;
  const reason = cause?.code ?? cause?.message ?? error.message;
  return new GatewayUnreachable(
    `The Antiphon gateway at ${address} cannot be reached (${reason}). Start it with "antiphon serve", or correct the setting "antiphon.url".`,
  );
}

function timedOut(address: string, seconds: number | undefined): GatewayUnreachable {
  return new GatewayUnreachable(
    `The Antiphon gateway at ${address} did not answer within ${seconds} seconds. Check that it is running, restart it with "antiphon serve", or correct the setting "antiphon.url".`,
  );
}

function invalidAddress(setting: string): Error {
  return new Error(`Invalid setting "antiphon.url": "${setting}". Expected an http or https address such as ${DEFAULT_URL}.`);
}

export const DEFAULT_URL = "http://127.0.0.1:8080";
export const SET_KEY = "Antiphon: Set Gateway Key";
const MODELS_PATH = "/v1/vscode/models";
const LIST_TIMEOUT_SECONDS = 10;
