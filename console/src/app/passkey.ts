// Passkeys. The browser's own JSON forms of WebAuthn suffice.
import { api, body } from "@/api/client";
import { queries } from "@/api/query";

export function passkeysWork(): boolean {
  return typeof PublicKeyCredential !== "undefined" && "parseRequestOptionsFromJSON" in PublicKeyCredential;
}

/** What the server says of a sign-in with a passkey: its challenge, and the name that passkeys are bound to. */
async function requestOptions(): Promise<PublicKeyCredentialRequestOptionsJSON> {
  const { public_key } = await body(api.POST("/v1/session/options", {}));
  return public_key as unknown as PublicKeyCredentialRequestOptionsJSON;
}

async function assertion(options: PublicKeyCredentialRequestOptionsJSON) {
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options);
  const credential = await navigator.credentials.get({ publicKey });
  if (!(credential instanceof PublicKeyCredential)) throw new Error("The browser gave no passkey.");
  return credential.toJSON() as {
    id: string;
    response: { authenticatorData: string; clientDataJSON: string; signature: string };
  };
}

export async function signInWithPasskey() {
  await body(api.POST("/v1/session", { body: { assertion: await assertion(await requestOptions()) } }));
  await queries.resetQueries();
}

/** An assertion of one passkey over these bytes: the challenge is their SHA-256. */
export async function assertOver(bytes: Uint8Array<ArrayBuffer>, credentialId: string) {
  const digest = await crypto.subtle.digest("SHA-256", bytes);
  const { rpId } = await requestOptions();
  return assertion({
    challenge: base64url(digest),
    rpId,
    allowCredentials: [{ type: "public-key", id: credentialId }],
    userVerification: "required",
  });
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

/** A new passkey of the caller; the browser asks the person. */
export async function registerPasskey(label: string) {
  const { public_key } = await body(api.POST("/v1/me/passkeys/options", {}));
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(
    public_key as unknown as PublicKeyCredentialCreationOptionsJSON,
  );
  const credential = await navigator.credentials.create({ publicKey });
  if (!(credential instanceof PublicKeyCredential)) throw new Error("The browser made no passkey.");
  const made = credential.toJSON() as unknown as NewPasskey;
  const { clientDataJSON, authenticatorData, publicKey: key, publicKeyAlgorithm } = made.response;
  if (!key) throw new Error("This browser does not tell the public key of a passkey.");
  await body(
    api.POST("/v1/me/passkeys", {
      body: {
        label,
        credential: {
          id: made.id,
          response: { clientDataJSON, authenticatorData, publicKey: key, publicKeyAlgorithm },
        },
      },
    }),
  );
}
