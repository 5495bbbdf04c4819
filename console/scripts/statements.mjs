// In the build: from the contract, what a signed statement calls each operation (`x-countersign-statement`).
import { readFileSync, writeFileSync } from "node:fs";

const file = (path) => new URL(`../${path}`, import.meta.url);
const { paths } = JSON.parse(readFileSync(file("openapi.json"), "utf8"));

const operations = Object.entries(paths).flatMap(([path, item]) =>
  Object.entries(item).flatMap(([method, operation]) => {
    const statement = operation["x-countersign-statement"];
    return statement ? [{ method: method.toUpperCase(), path, ...statement }] : [];
  }),
);
writeFileSync(
  file("src/api/statements.ts"),
  `// Generated from openapi.json by scripts/statements.mjs.
/** \`instance\`: the part of the path that names it. */
export const STATEMENTS: readonly { method: string; path: string; action: string; instance?: string }[] = ${JSON.stringify(operations, null, 1)};
`,
);
