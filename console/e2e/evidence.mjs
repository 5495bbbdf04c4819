// Proves an exported bundle with both verifiers: the binary, and the Python program of the specification.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";

const ROOT = new URL("../../", import.meta.url).pathname;
const TARGET = process.env.CARGO_TARGET_DIR ?? join(ROOT, "target");
const VERIFIER = process.env.VERIFIER_BIN ?? join(TARGET, "debug/countersign-verify");
/** Made by scripts/vectors.sh, with the package that verify.py needs. */
const PYTHON = join(TARGET, "vectors/venv/bin/python");

/** The answers of both verifiers. Each exits with 1 where it finds something, and prints its answer nonetheless. */
export async function verdicts(bundle, key) {
  const ask = async (program, ...before) => {
    const asked = promisify(execFile)(program, [...before, bundle, "--key", key, "--json"]);
    const { stdout } = await asked.catch((failed) => failed);
    assert.ok(stdout, `${program} says nothing`);
    return JSON.parse(stdout);
  };
  const binary = await ask(VERIFIER);
  const python = existsSync(PYTHON) ? await ask(PYTHON, join(ROOT, "spec/verify.py")) : undefined;
  return { binary, python };
}

/** The key of the log, as an auditor would get it from the organisation. */
export async function logKey(server) {
  const answer = await fetch(`${server.origin}/v1/ledger/key`, {
    headers: { authorization: `Bearer ${server.token}` },
  });
  return (await answer.text()).trim();
}
