// The task that every client does: its prompt, its tool, and its schema.
export const PROMPT = "Read the note and answer.";
export const CITY = {
  type: "object",
  properties: { city: { type: "string" }, population: { type: "integer" } },
  required: ["city", "population"],
  additionalProperties: false,
};
export const PARAMETERS = {
  type: "object",
  properties: { title: { type: "string" } },
  required: ["title"],
  additionalProperties: false,
};

export function readNote({ title }) {
  if (title === "missing") throw new Error("no such note: missing");
  return `The note ${title} says: buy milk.`;
}
