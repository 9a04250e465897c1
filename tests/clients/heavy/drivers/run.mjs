// Runs the functions of one driver, each a feature of a client, and writes a line of JSON for each.
// node run.mjs DRIVER FOLDER FEATURE…: like run.py, with FOLDER/setup_FEATURE.mjs as the set-up of each.
import { appendFileSync, existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [driver, folder, ...features] = process.argv.slice(2);
const functions = await import(`./${driver}.mjs`);
const results = join(folder, "results.jsonl");
writeFileSync(results, "");
for (const feature of features) {
  let result;
  try {
    const path = join(folder, `setup_${feature}.mjs`);
    const setup = existsSync(path) ? { ...(await import(pathToFileURL(path).href)) } : {};
    if (process.env.SETUP_VARIABLE) setup.model = setup.models[process.env.SETUP_VARIABLE];
    result = await functions[feature](setup, `lab-${feature}`);
  } catch (error) {
    result = { error: `${error.stack ?? error} ${JSON.stringify(error)}` };
  }
  appendFileSync(results, JSON.stringify({ feature, ...result }) + "\n");
}
process.exit(0);
