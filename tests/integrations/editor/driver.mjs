// A user at the window of VS Code: drives Chromium. It reads actions as lines of JSON from the standard input, `{"action", "args"}`, and
// writes one line for each, `{"result"}` or `{"error"}`. The first argument is the folder of playwright-core, the second the browser.

import { createRequire } from "node:module";
import readline from "node:readline";

const [, , modules, executablePath] = process.argv;
const { chromium } = createRequire(`${modules}/`)("playwright-core");
const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const context = await browser.newContext({ viewport: { width: 1200, height: 720 }, permissions: ["clipboard-read", "clipboard-write"] });
const page = await context.newPage();
page.setDefaultTimeout(Number(process.env.SECONDS) * 1000);
const chat = page.locator(".interactive-session");
const input = page.locator(".interactive-input-part");

const list = page.locator(".action-widget");

/** Opens the model picker with all models. VS Code may close or misplace the picker while it redraws the window, so this retries. */
async function openList(selected) {
  for (let attempt = 0; attempt < 20; attempt += 1) {
    try {
      await input.getByText(selected, { exact: true }).click({ timeout: 5000 });
      await list.getByText("Other Models").click({ timeout: 5000 });
      await page.mouse.move(0, 0); // so that no tooltip is shown
      await page.waitForTimeout(1000);
      if ((await list.first().boundingBox({ timeout: 1000 })).y > 100) return;
    } catch (error) {
      console.error(`model picker: ${error}`);
    }
    await page.keyboard.press("Escape");
  }
  throw new Error("the model picker does not stay open");
}

const actions = {
  open: async (url) => {
    await page.goto(url);
    await input.locator(".monaco-editor").first().waitFor();
  },

  /** Waits until this model is selected in the Chat view, and returns its name. */
  selectedModel: async (name) => {
    await input.getByText(name, { exact: true }).waitFor();
    return name;
  },

  /** Opens the model picker and returns its text. */
  openModels: async (selected) => {
    await openList(selected);
    return list.first().innerText();
  },

  /** Selects another model in the model picker. */
  selectModel: async (selected, name) => {
    await openList(selected);
    await list.getByLabel(new RegExp(`^${name},`)).click();
    await input.getByText(name, { exact: true }).waitFor();
  },

  /** Clicks "Manage Language Models" in the model picker, then "Add Models" for a provider, and accepts the proposed group name. */
  addModels: async (selected, provider) => {
    await openList(selected);
    await list.getByLabel("Manage Language Models").click();
    const name = page.getByText("Group Name");
    for (let attempt = 0; attempt < 20 && !(await name.isVisible()); attempt += 1) {
      const entry = page.getByRole("menuitem", { name: provider, exact: true });
      if (!(await entry.isVisible())) await page.getByText("Add Models").click();
      await entry.click({ timeout: 5000, delay: 100 }).catch((error) => console.error(`provider menu: ${error}`));
      await name.waitFor({ timeout: 5000 }).catch(() => undefined);
    }
    await page.keyboard.press("Enter");
    await name.waitFor({ state: "hidden" });
  },

  closeModels: async () => {
    await page.keyboard.press("Escape");
    await page.getByText("Add Models").waitFor({ state: "hidden" });
  },

  newChat: async () => {
    await page.locator(".part.auxiliarybar").getByLabel(/^New Chat/).first().click();
    await input.locator(".monaco-editor").first().click();
    await page.keyboard.press("Control+A");
    await page.keyboard.press("Delete");
    await page.keyboard.press("Backspace");
  },

  /** Types a question into the Chat view and sends it. */
  ask: async (question) => {
    await input.locator(".monaco-editor").first().click();
    await page.keyboard.type(question);
    await page.waitForTimeout(1000); // until the list of suggestions is drawn
    await page.keyboard.press("Escape");
    await page.keyboard.press("Enter");
  },

  /** Opens a file from the Explorer and types a question into its inline chat. */
  askInline: async (file, question) => {
    await page.locator(".explorer-folders-view").getByText(file, { exact: true }).dblclick();
    await page.locator(".editor-group-container .view-lines").first().click();
    await page.keyboard.press("Control+I");
    await page.locator(".inline-chat-widget, .inline-chat, .zone-widget").first().waitFor();
    await page.keyboard.type(question);
    await page.keyboard.press("Enter");
  },

  /** Waits until the Chat view shows this text and the answer is complete. */
  answer: async (text) => {
    await chat.getByText(text).last().waitFor();
    await input.locator(".codicon-stop-circle").waitFor({ state: "hidden" });
  },

  /** Waits until the window shows this text, and returns the text of its element. */
  see: async (text) => {
    await page.getByText(text).first().waitFor();
    return page.getByText(text).first().innerText();
  },

  /** Waits until the Chat view shows a quotation, and returns the last one. */
  quotation: async () => {
    await chat.locator("blockquote").last().waitFor();
    return chat.locator("blockquote").last().innerText();
  },

  /** Pastes a PNG image from the clipboard into the input box of the Chat view. */
  pasteImage: async (base64) => {
    await input.locator(".monaco-editor").first().click();
    await page.evaluate(async (data) => {
      const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
      await navigator.clipboard.write([new ClipboardItem({ "image/png": new Blob([bytes], { type: "image/png" }) })]);
    }, base64);
    await page.keyboard.press("Control+V");
  },

  /** Waits until this attachment is shown at the input box. */
  attachment: (name) => input.locator(".chat-attached-context-attachment").getByText(name).first().waitFor(),

  /** Waits until the answer in the Chat view begins with this text, then stops it. */
  stopAnswer: async (text) => {
    await chat.getByText(text).last().waitFor();
    await input.locator(".codicon-stop-circle").click();
    await input.locator(".codicon-stop-circle").waitFor({ state: "hidden" });
  },

  click: (text) => page.getByText(text, { exact: true }).last().click(),

  /** Types into the input box that is open, and presses Enter. */
  type: async (text) => {
    const box = page.locator(".quick-input-widget input:visible").first();
    await box.waitFor();
    await box.fill(text);
    for (let attempt = 0; attempt < 20 && (await box.isVisible()); attempt += 1) {
      await box.press("Enter", { timeout: 1000 }).catch(() => undefined); // a box that was just opened may ignore the key
      await box.waitFor({ state: "hidden", timeout: 2000 }).catch(() => undefined);
    }
    await box.waitFor({ state: "hidden" });
  },

  press: (key) => page.keyboard.press(key),
  screenshot: (path) => page.screenshot({ path }),
  text: () => page.locator("body").innerText(),
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { action, args } = JSON.parse(line);
  try {
    console.log(JSON.stringify({ result: (await actions[action](...args)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error) }));
  }
}
await browser.close();
