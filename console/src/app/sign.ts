// Signing a command with a passkey: the same statement that an Ed25519 signer composes (spec/record.md, 5.2); the challenge is
// its SHA-256.

import { api, body } from "@/api/client";
import { queries } from "@/api/query";
import type { SchemaMakeDelegation, SchemaMe, SchemaPasskey } from "@/api/schema";
import { actOf } from "./acts";
import { t } from "./i18n";
import {
  assertOver,
  base64url,
  forgetPasskey,
  newPasskey,
  PasskeyFailure,
  passkeyHere,
  rememberPasskey,
} from "./passkey";
import { me as caller } from "./session";

const encoder = new TextEncoder();

async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", bytes);
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export interface ToSign {
  me: SchemaMe;
  /** POST, if nothing else is said. */
  method?: string;
  path: string;
  stepId?: string | null;
  /** The body exactly as it is sent. */
  bytes: string;
  /** What the signature means, as it was shown. */
  meaning?: string;
}

/** The statement's bytes. */
async function statement(keyId: string, ask: ToSign): Promise<Uint8Array<ArrayBuffer>> {
  const { me, method = "POST", path } = ask;
  const act = actOf(method, path);
  if (!act) throw new Error(`${method} ${path} is not signed`);
  return encoder.encode(
    JSON.stringify({
      v: 1,
      action: act.action,
      actor_ref: me.actor_ref,
      key_id: keyId,
      request: `${method} ${path}`,
      instance_id: act.instance,
      step_id: ask.stepId ?? null,
      body_digest: await sha256(encoder.encode(ask.bytes)),
      meaning: ask.meaning ?? null,
      expected_sequence: null,
      nonce: crypto.randomUUID(),
      issued_at_us: Date.now() * 1000,
    }),
  );
}

export interface Signature {
  headers: Record<string, string>;
  /** SHA-256 of the statement: what the passkey signed. Absent where the caller has no passkey. */
  digest?: string;
}

/** The headers of a command that the caller signs with a passkey, where they have one. */
export async function signed(ask: ToSign): Promise<Signature> {
  const passkey = passkeyHere(ask.me.passkeys);
  if (!passkey) return { headers: {} };
  const said = await statement(passkey.key_id, ask);
  const made = await assertOver(said, passkey.credential_id);
  return {
    digest: await sha256(said),
    headers: {
      "Countersign-Statement": btoa(String.fromCharCode(...said)),
      "Countersign-Assertion": base64url(encoder.encode(JSON.stringify(made))),
    },
  };
}

/** The headers of any act, where this server takes the caller's acts only with a signature. */
export async function signAct(method: string, path: string, bytes: string): Promise<Record<string, string>> {
  const act = actOf(method, path);
  const me = act && queries.getQueryData<SchemaMe>(caller.queryKey);
  if (!act || !me?.must_sign) return {};
  // Nothing could sign for the first passkey.
  if (act.action === "register_key" && me.passkeys.length === 0) return {};
  const { headers, digest } = await signed({ me, method, path, bytes });
  if (!digest) throw new PasskeyFailure(t("passkey.needed"));
  return headers;
}

/** Registers a new passkey of the caller. A caller who has one already signs for the next with it. */
export async function registerPasskey(me: SchemaMe, label: string) {
  const credential = await newPasskey();
  const sent = { label, credential };
  const bytes = JSON.stringify(sent);
  const path = "/v1/me/passkeys";
  try {
    const { headers } = await signed({ me, path, bytes });
    await body(api.POST(path, { body: sent, bodySerializer: () => bytes, headers }));
  } catch (error) {
    await forgetPasskey(credential.id);
    throw error;
  }
  rememberPasskey(credential.id);
}

/** Names a substitute. That is always signed, also where the server asks for no other signature. */
export async function makeDelegation(me: SchemaMe, sent: SchemaMakeDelegation) {
  const bytes = JSON.stringify(sent);
  const path = `/v1/actors/${encodeURIComponent(me.actor_ref)}/delegations`;
  const { headers } = await signed({ me, path, bytes });
  const params = { path: { actor_ref: me.actor_ref } };
  const call = { params, body: sent, bodySerializer: () => bytes, headers };
  await body(api.POST("/v1/actors/{actor_ref}/delegations", call));
}

/** Ends a passkey of the caller; one of theirs signs for it, perhaps the same. */
export async function revokePasskey(me: SchemaMe, passkey: SchemaPasskey, reason?: string) {
  const sent = { reason };
  const bytes = JSON.stringify(sent);
  const path = `/v1/actors/${encodeURIComponent(me.actor_ref)}/keys/${passkey.key_id}/revoke`;
  const { headers } = await signed({ me, path, bytes });
  const params = { path: { actor_ref: me.actor_ref, key_id: passkey.key_id } };
  const route = "/v1/actors/{actor_ref}/keys/{key_id}/revoke";
  await body(api.POST(route, { params, body: sent, bodySerializer: () => bytes, headers }));
  await forgetPasskey(passkey.credential_id);
}
