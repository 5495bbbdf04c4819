// Signing a command with a passkey: the same statement that an Ed25519 signer composes (spec/record.md, 5.2); the challenge is
// its SHA-256.
import type { SchemaMe } from "@/api/schema";
import { assertOver, base64url } from "./passkey";

const encoder = new TextEncoder();

function hex(bytes: ArrayBuffer): string {
  return [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export interface ToSign {
  me: SchemaMe;
  /** The command, as the specification calls it. */
  action: string;
  path: string;
  instance: string | null;
  stepId: string | null;
  /** The body exactly as it is sent. */
  bytes: string;
  /** What the signature means, as it was shown. */
  meaning: string;
}

/** The statement's bytes. */
export async function statement(keyId: string, ask: ToSign): Promise<Uint8Array<ArrayBuffer>> {
  const digest = await crypto.subtle.digest("SHA-256", encoder.encode(ask.bytes));
  return encoder.encode(
    JSON.stringify({
      v: 1,
      action: ask.action,
      actor_ref: ask.me.actor_ref,
      key_id: keyId,
      request: `POST ${ask.path}`,
      instance_id: ask.instance,
      step_id: ask.stepId,
      body_digest: hex(digest),
      meaning: ask.meaning,
      expected_sequence: null,
      nonce: crypto.randomUUID(),
      issued_at_us: Date.now() * 1000,
    }),
  );
}

/** The headers of a command that the caller signs with their newest passkey. */
export async function signedHeaders(ask: ToSign): Promise<Record<string, string>> {
  const passkey = ask.me.passkeys.at(-1);
  if (!passkey) return {};
  const said = await statement(passkey.key_id, ask);
  const made = await assertOver(said, passkey.credential_id);
  return {
    "Countersign-Statement": btoa(String.fromCharCode(...said)),
    "Countersign-Assertion": base64url(encoder.encode(JSON.stringify(made))),
  };
}
