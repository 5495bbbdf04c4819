// Passkeys. The browser's own JSON forms of WebAuthn suffice.

import { api, body } from "@/api/client";
import { t } from "./i18n";

export function passkeysWork(): boolean {
  return typeof PublicKeyCredential !== "undefined" && "parseRequestOptionsFromJSON" in PublicKeyCredential;
}

/** What went wrong with a passkey, in words for the person who used it. */
export class PasskeyFailure extends Error {
  override toString() {
    return this.message;
  }
}

type Purpose = "signIn" | "sign" | "register";

/** Browsers name every refusal alike, so that a page learns nothing about the person: the words say what did not happen. */
function explained(error: unknown, purpose: Purpose): unknown {
  if (!(error instanceof DOMException)) return error;
  if (error.name === "InvalidStateError") return new PasskeyFailure(t("passkey.known"));
  return new PasskeyFailure(t(`passkey.${purpose}`));
}

/** What the server says of a sign-in with a passkey: its challenge, and the name that passkeys are bound to. */
async function requestOptions(): Promise<PublicKeyCredentialRequestOptionsJSON> {
  const { public_key } = await body(api.POST("/v1/session/options", {}));
  return public_key as unknown as PublicKeyCredentialRequestOptionsJSON;
}

interface Assertion {
  id: string;
  response: { authenticatorData: string; clientDataJSON: string; signature: string };
}

async function assertion(
  options: PublicKeyCredentialRequestOptionsJSON,
  purpose: Purpose,
): Promise<Assertion> {
  try {
    const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options);
    const credential = await navigator.credentials.get({ publicKey });
    if (!(credential instanceof PublicKeyCredential)) throw new PasskeyFailure(t("passkey.none"));
    const made = credential.toJSON() as unknown as Assertion;
    localStorage.setItem(HERE, made.id);
    return made;
  } catch (error) {
    throw explained(error, purpose);
  }
}

const HERE = "countersign.passkey";

/** Of these passkeys, the one that this browser used last; else the newest. */
export function passkeyHere<P extends { credential_id: string }>(passkeys: readonly P[]): P | undefined {
  const used = localStorage.getItem(HERE);
  return passkeys.find((passkey) => passkey.credential_id === used) ?? passkeys.at(-1);
}

/** The answer to a challenge for signing in. */
export async function signInAssertion() {
  return assertion(await requestOptions(), "signIn");
}

/** An assertion of one passkey over these bytes: the challenge is their SHA-256. */
export async function assertOver(bytes: Uint8Array<ArrayBuffer>, credentialId: string) {
  const digest = await crypto.subtle.digest("SHA-256", bytes);
  const { rpId } = await requestOptions();
  return assertion(
    {
      challenge: base64url(digest),
      rpId,
      allowCredentials: [{ type: "public-key", id: credentialId }],
      userVerification: "required",
    },
    "sign",
  );
}

export function base64url(bytes: ArrayBuffer | Uint8Array): string {
  return btoa(String.fromCharCode(...new Uint8Array(bytes)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}

interface NewPasskey {
  id: string;
  response: {
    clientDataJSON: string;
    authenticatorData: string;
    publicKey?: string;
    publicKeyAlgorithm: number;
  };
}

/** Makes a passkey for the caller; the browser asks the person. The answer is what the server registers. */
export async function newPasskey() {
  const { public_key } = await body(api.POST("/v1/me/passkeys/options", {}));
  const options = public_key as unknown as PublicKeyCredentialCreationOptionsJSON;
  let made: NewPasskey;
  try {
    const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options);
    const credential = await navigator.credentials.create({ publicKey });
    if (!(credential instanceof PublicKeyCredential)) throw new PasskeyFailure(t("passkey.none"));
    made = credential.toJSON() as unknown as NewPasskey;
  } catch (error) {
    throw explained(error, "register");
  }
  const { clientDataJSON, authenticatorData, publicKey: key, publicKeyAlgorithm } = made.response;
  if (!key) throw new PasskeyFailure(t("passkey.noKey"));
  return { id: made.id, response: { clientDataJSON, authenticatorData, publicKey: key, publicKeyAlgorithm } };
}

/** From now on this browser signs with that passkey. */
export function rememberPasskey(credentialId: string) {
  localStorage.setItem(HERE, credentialId);
}

/** Nothing knows this passkey: browsers that can, take it off their list. */
export async function forgetPasskey(credentialId: string) {
  const rpId = location.hostname;
  const known = PublicKeyCredential as unknown as {
    signalUnknownCredential?: (which: { rpId: string; credentialId: string }) => Promise<void>;
  };
  await known.signalUnknownCredential?.({ rpId, credentialId }).catch(() => {});
}
