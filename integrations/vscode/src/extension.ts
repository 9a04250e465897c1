// Registers the models of the gateway with VS Code, the chat participant `@antiphon`, and the command that sets the key. The gateway
// decides which models exist, how messages are interpreted and which parts a response has.

import * as vscode from "vscode";

import { addressOf, DEFAULT_URL, Gateway, isLanguageModelError, type Settings } from "./gateway";
import { Keys } from "./keys";
import { createHandler } from "./participant";
import { Provider } from "./provider";

export function activate(context: vscode.ExtensionContext): void {
  const keys = new Keys(context.secrets);
  const gateway = new Gateway(readSettings, (address) => keys.get(address));
  const provider = new Provider(gateway);
  context.subscriptions.push(
    provider,
    vscode.lm.registerLanguageModelChatProvider("antiphon", provider),
    vscode.chat.createChatParticipant("antiphon.chat", createHandler(gateway)),
    vscode.commands.registerCommand("antiphon.setKey", () => keys.ask(readSettings().address)),
    keys.onDidChange(() => provider.refresh()),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("antiphon")) provider.refresh();
      if (change.affectsConfiguration("antiphon.url")) void askForMissingKey(gateway, keys);
    }),
  );
  provider.refresh(); // VS Code does not list the models of a provider that registers after startup
}

function readSettings(): Settings {
  const configuration = vscode.workspace.getConfiguration("antiphon");
  return { address: addressOf(configuration.get("url", DEFAULT_URL)), choices: configuration.get("choices", {}) };
}

/** A key belongs to one address. If the gateway at a changed address requires a key, the user is asked for it. */
async function askForMissingKey(gateway: Gateway, keys: Keys): Promise<void> {
  const error = await gateway.models().then(() => undefined, (reason: unknown) => reason);
  if (!isLanguageModelError(error, "NoPermissions")) return;
  const { address } = readSettings();
  const choice = await vscode.window.showWarningMessage(`The Antiphon gateway at ${address} requires a key.`, "Set Key");
  if (choice !== undefined) await keys.ask(address);
}
