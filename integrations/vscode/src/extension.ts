// Registers the gateway's models with the editor, the participant `@antiphon` with its Chat view, and the command that sets the key.
// What the models are, how messages are read and what an answer is made of is the gateway's business.

import * as vscode from "vscode";

import { addressOf, DEFAULT_URL, Gateway, isError, type Settings } from "./gateway";
import { Keys } from "./keys";
import { answer } from "./participant";
import { Provider } from "./provider";

export function activate(context: vscode.ExtensionContext): void {
  const keys = new Keys(context.secrets);
  const gateway = new Gateway(settings, (address) => keys.get(address));
  const provider = new Provider(gateway);
  context.subscriptions.push(
    provider,
    vscode.lm.registerLanguageModelChatProvider("antiphon", provider),
    vscode.chat.createChatParticipant("antiphon.chat", answer),
    vscode.commands.registerCommand("antiphon.setKey", () => keys.ask(settings().address)),
    keys.onDidChange(() => provider.refresh()),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("antiphon")) provider.refresh();
      if (change.affectsConfiguration("antiphon.url")) void askForMissingKey(gateway, keys);
    }),
  );
  provider.refresh(); // the editor does not list the models of a provider that registers late by itself
}

function settings(): Settings {
  const configured = vscode.workspace.getConfiguration("antiphon");
  return { address: addressOf(configured.get("url", DEFAULT_URL)), choices: configured.get("choices", {}) };
}

/** Keys belong to addresses: the user is asked for the one of a gateway at another address. */
async function askForMissingKey(gateway: Gateway, keys: Keys): Promise<void> {
  const error = await gateway.models().then(() => undefined, (reason: unknown) => reason);
  if (!isError(error, "NoPermissions")) return;
  const { address } = settings();
  const choice = await vscode.window.showWarningMessage(`The Antiphon gateway at ${address} asks for a key.`, "Set Key");
  if (choice !== undefined) await keys.ask(address);
}
