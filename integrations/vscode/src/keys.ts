// The keys of gateways, kept among the editor's secrets under the address that each was set for: a key is never sent to another
// address, and a changed address has no key until one is set.

import * as vscode from "vscode";

export class Keys {
  constructor(private readonly secrets: vscode.SecretStorage) {}

  get(address: string): Thenable<string | undefined> {
    return this.secrets.get(PREFIX + address);
  }

  /** Asks the user for the key of the gateway at this address; an empty one removes it. */
  async ask(address: string): Promise<void> {
    const key = await vscode.window.showInputBox({
      title: "Antiphon",
      prompt: `Key for the gateway at ${address}. It is sent to this address only. Leave it empty to remove the key.`,
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
