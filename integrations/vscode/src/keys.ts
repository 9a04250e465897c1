// The keys of gateways, stored in the secret storage of VS Code. Each key is stored under the address that it was set for, so it is
// never sent to another address, and a changed address has no key until the user sets one.

import * as vscode from "vscode";

export class Keys {
  constructor(private readonly secrets: vscode.SecretStorage) {}

  get(address: string): Thenable<string | undefined> {
    return this.secrets.get(PREFIX + address);
  }

  /** Asks the user for the key of the gateway at this address. An empty input removes the key. */
  async ask(address: string): Promise<void> {
    const key = await vscode.window.showInputBox({
      title: "Antiphon",
      prompt: `Enter the key for the gateway at ${address}. VS Code sends it to this address only. Leave the box empty to remove the key.`,
      password: true,
      ignoreFocusOut: true,
    });
    if (key === undefined) return;
    await (key.trim() ? this.secrets.store(PREFIX + address, key.trim()) : this.secrets.delete(PREFIX + address));
  }

  readonly onDidChange = (listener: () => void): vscode.Disposable =>
    this.secrets.onDidChange(({ key }) => {
      if (key.startsWith(PREFIX)) listener();
    });
}

const PREFIX = "antiphon.key@";
