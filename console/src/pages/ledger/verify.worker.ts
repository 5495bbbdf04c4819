// Runs the offline verifier. It is the only script that may compile WebAssembly: the server gives this file a policy of its own.
import address from "@/wasm/verifier.wasm?url";

interface Verifier {
  clear(): void;
  give(which: number, word: number, count: number): void;
  check(): number;
  take(at: number): number;
}

const loaded = (async () => {
  const module = await WebAssembly.compileStreaming(fetch(address));
  // Libraries may bring imports for what a verifier never does, such as drawing random numbers.
  const imports: Record<string, Record<string, () => never>> = {};
  for (const { module: from, name } of WebAssembly.Module.imports(module)) {
    imports[from] ??= {};
    imports[from][name] = () => {
      throw new Error(`The verifier does not need ${name}.`);
    };
  }
  const instance = await WebAssembly.instantiate(module, imports);
  return instance.exports as unknown as Verifier;
})();

loaded.then(
  () => self.postMessage({ ready: true }),
  (error: unknown) => self.postMessage({ failed: String(error) }),
);

function give(verifier: Verifier, which: number, bytes: Uint8Array) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const whole = bytes.length & ~3;
  for (let at = 0; at < whole; at += 4) verifier.give(which, view.getUint32(at, true), 4);
  let last = 0;
  for (let at = whole; at < bytes.length; at++) last |= view.getUint8(at) << (8 * (at - whole));
  if (bytes.length > whole) verifier.give(which, last, bytes.length - whole);
}

self.onmessage = async ({ data }: MessageEvent<{ bundle: ArrayBuffer; key: string }>) => {
  try {
    const verifier = await loaded;
    verifier.clear();
    give(verifier, 0, new Uint8Array(data.bundle));
    give(verifier, 1, new TextEncoder().encode(data.key));
    const length = verifier.check();
    const answer = new DataView(new ArrayBuffer(length + 4));
    for (let at = 0; at < length; at += 4) answer.setUint32(at, verifier.take(at), true);
    self.postMessage({ answer: JSON.parse(new TextDecoder().decode(answer.buffer.slice(0, length))) });
  } catch (error) {
    self.postMessage({ failed: error instanceof Error ? error.message : String(error) });
  }
};
