// A user at the editor's window: Chromium, told what to do by lines of JSON on the standard input, `{"action", "args"}`; each is
// answered by a line, `{"result"}` or `{"error"}`. The first argument is the folder of playwright-core, the second the browser.

import { createRequire } from "node:module";
import readline from "node:readline";

const [, , modules, executablePath] = process.argv;
const { chromium } = createRequire(`${modules}/`)("playwright-core");
const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const page = await (await browser.newContext({ viewport: { width: 1200, height: 720 } })).newPage();
page.setDefaultTimeout(Number(process.env.SECONDS) * 1000);
const chat = page.locator(".interactive-session");
const input = page.locator(".interactive-input-part");

const list = page.locator(".action-widget");

/** Opens the list of models with all that it has. While the editor draws its window anew, a list is torn off or closed: once more. */
async function openList(chosen) {
  for (let attempt = 0; attempt < 20; attempt += 1) {
    try {
      await input.getByText(chosen, { exact: true }).click({ timeout: 5000 });
      await list.getByText("Other Models").click({ timeout: 5000 });
      await page.mouse.move(0, 0); // no tip over what is under the mouse
      await page.waitForTimeout(1000);
      if ((await list.first().boundingBox({ timeout: 1000 })).y > 100) return;
    } catch (error) {
      console.error(`the list of models: ${error}`);
    }
    await page.keyboard.press("Escape");
  }
  throw new Error("the list of models does not stay open");
}

const actions = {
  open: async (url) => {
    await page.goto(url);
    await input.locator(".monaco-editor").first().waitFor();
  },

  /** Waits until the Chat view has chosen a model, and returns its name. */
  chosenModel: async (name) => {
    await input.getByText(name, { exact: true }).waitFor();
    return name;
  },

  /** Opens the list of models and returns what it shows. */
  openModels: async (chosen) => {
    await openList(chosen);
    return list.first().innerText();
  },

  /** Chooses another model. */
  chooseModel: async (chosen, name) => {
    await openList(chosen);
    await list.getByLabel(new RegExp(`^${name},`)).click();
    await input.getByText(name, { exact: true }).waitFor();
  },

  /** The list of models' button "Manage Language Models", then "Add Models" for a provider, with the name that is proposed. */
  addModels: async (chosen, provider) => {
    await openList(chosen);
    await list.getByLabel("Manage Language Models").click();
    const name = page.getByText("Group Name");
    for (let attempt = 0; attempt < 20 && !(await name.isVisible()); attempt += 1) {
      const entry = page.getByRole("menuitem", { name: provider, exact: true });
      if (!(await entry.isVisible())) await page.getByText("Add Models").click();
      await entry.click({ timeout: 5000, delay: 100 }).catch((error) => console.error(`the menu of providers: ${error}`));
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
    await page.waitForTimeout(1000); // the list of suggestions comes and goes
    await page.keyboard.press("Escape");
    await page.keyboard.press("Enter");
  },

  /** Opens a file of the explorer and types a question into its inline chat. */
  askInline: async (file, question) => {
    await page.locator(".explorer-folders-view").getByText(file, { exact: true }).dblclick();
    await page.locator(".editor-group-container .view-lines").first().click();
    await page.keyboard.press("Control+I");
    await page.locator(".inline-chat-widget, .inline-chat, .zone-widget").first().waitFor();
    await page.keyboard.type(question);
    await page.keyboard.press("Enter");
  },

  /** Waits until this stands somewhere in the Chat view, and the answer has come to its end. */
  answer: async (text) => {
    await chat.getByText(text).last().waitFor();
    await input.locator(".codicon-stop-circle").waitFor({ state: "hidden" });
  },

  /** Waits until this stands somewhere in the window, and returns it. */
  see: async (text) => {
    await page.getByText(text).first().waitFor();
    return page.getByText(text).first().innerText();
  },

  click: (text) => page.getByText(text, { exact: true }).last().click(),

  /** Types into the box that asks the user something. */
  type: async (text) => {
    const box = page.locator(".quick-input-widget input:visible").first();
    await box.waitFor();
    await box.fill(text);
    await page.keyboard.press("Enter");
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
