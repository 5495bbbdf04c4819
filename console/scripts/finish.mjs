// After the build: checks the size of what a browser loads, and writes a compressed twin of every file for the server to embed.
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

/** 300 kB, of 1000 bytes each. */
const LIMIT = 300_000;
const dist = new URL("../dist/", import.meta.url).pathname;

function* files(directory) {
  for (const name of readdirSync(directory)) {
    const path = join(directory, name);
    if (statSync(path).isDirectory()) yield* files(path);
    else yield path;
  }
}

let script = 0;
for (const path of [...files(dist)]) {
  if (path.endsWith(".gz") || path.endsWith(".br")) continue;
  const bytes = readFileSync(path);
  const gzip = gzipSync(bytes, { level: 9 });
  if (path.endsWith(".js")) script += gzip.length;
  if (bytes.length < 1024 || path.endsWith(".woff2")) continue;
  writeFileSync(`${path}.gz`, gzip);
  const quality = { [constants.BROTLI_PARAM_QUALITY]: 11 };
  writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params: quality }));
}

const kb = (bytes) => `${(bytes / 1000).toFixed(1)} kB`;
console.log(`JavaScript: ${kb(script)} gzip of ${kb(LIMIT)}`);
if (script > LIMIT) {
  console.error("The JavaScript is over its limit: load pages lazily, or drop a dependency.");
  process.exit(1);
}
