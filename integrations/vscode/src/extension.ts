// Registers the gateway's models with the editor. What the models are, how messages are read and what an answer is made of is the
// gateway's business: messages and options go there as they are, parts come back as they are.

import * as vscode from "vscode";

import { Gateway } from "./gateway";
import { Provider } from "./provider";

const SECRET = "antiphon.key";

export function activate(context: vscode.ExtensionContext): void {
  const changed = new vscode.EventEmitter<void>();
  const gateway = new Gateway(settings, async () => context.secrets.get(SECRET));
  context.subscriptions.push(
    changed,
    vscode.lm.registerLanguageModelChatProvider("antiphon", new Provider(gateway, changed.event)),
    vscode.commands.registerCommand("antiphon.setKey", () => setKey(context.secrets)),
    context.secrets.onDidChange((change) => {
      if (change.key === SECRET) changed.fire();
    }),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("antiphon")) changed.fire();
    }),
  );
}

function settings(): { url: string; choices: object } {
  const configured = vscode.workspace.getConfiguration("antiphon");
  return { url: configured.get("url", "http://127.0.0.1:8080"), choices: configured.get("choices", {}) };
}

async function setKey(secrets: vscode.SecretStorage): Promise<void> {
  const prompt = "The key that the gateway asks for. Empty: none.";
  const key = await vscode.window.showInputBox({ prompt, password: true, ignoreFocusOut: true });
  if (key === undefined) return;
  await (key ? secrets.store(SECRET, key) : secrets.delete(SECRET));
}
