// The typed client of the HTTP contract. Types come from openapi.json in the build: a contract change breaks the build.
import createClient, { type Middleware } from "openapi-fetch";
import type { paths } from "./schema";

/** A refusal, as the server words it (RFC 9457). */
export class Refusal extends Error {
  readonly status: number;
  readonly code: string;
  readonly detail: string;
  readonly guard?: string;
  readonly field?: string;
  readonly problems: { message: string; path?: string; line?: number; column?: number }[];

  constructor(status: number, body: Record<string, unknown>) {
    const detail = String(body.detail ?? body.title ?? `HTTP ${status}`);
    super(detail);
    this.status = status;
    this.code = String(body.code ?? (status === 0 ? "unreachable" : "internal-error"));
    this.detail = detail;
    this.guard = typeof body.guard === "string" ? body.guard : undefined;
    this.field = typeof body.field === "string" ? body.field : undefined;
    this.problems = Array.isArray(body.problems) ? body.problems : [];
  }
}

/** Called when the session has ended under the page. */
let signedOut: () => void = () => {};
export function onSignedOut(listener: () => void) {
  signedOut = listener;
}

/** Who asks in another way than with this client says so, too. */
export function sessionEnded() {
  signedOut();
}

/** The headers with which this request is signed; none where it need not be. */
type Signer = (method: string, path: string, bytes: string) => Promise<Record<string, string>>;
let signer: Signer = async () => ({});
export function onAct(sign: Signer) {
  signer = sign;
}

/** Every request leaves here. An act that has to be signed, and is not yet, is signed first. */
async function leave(request: Request): Promise<Response> {
  const { pathname, search } = new URL(request.url);
  // What has a query looks at what would come of it.
  if (request.method !== "GET" && search === "" && !request.headers.has("countersign-statement")) {
    const headers = await signer(request.method, pathname, await request.clone().text());
    for (const [name, value] of Object.entries(headers)) request.headers.set(name, value);
  }
  return fetch(request);
}

const refusals: Middleware = {
  async onResponse({ response, request }) {
    if (response.ok || response.status === 304) return;
    const body = await response
      .clone()
      .json()
      .catch(() => ({}));
    // The session goes on where only the signature is missing.
    const unsigned = (body as Record<string, unknown>).field === "Countersign-Statement";
    if (response.status === 401 && !unsigned && !request.url.includes("/v1/session")) signedOut();
    throw new Refusal(response.status, body as Record<string, unknown>);
  },
  onError({ error }) {
    // What is no failure of the network was said before, as with a passkey that was not used.
    if (error instanceof Error && !(error instanceof TypeError)) return error;
    return new Refusal(0, {
      code: "unreachable",
      detail: error instanceof Error ? error.message : String(error),
    });
  },
};

export const api = createClient<paths>({ baseUrl: "/", credentials: "same-origin", fetch: leave });
api.use(refusals);

/** The body of an answer that is known to be good: the middleware has thrown otherwise. */
export async function body<T>(call: Promise<{ data?: T }>): Promise<T> {
  const { data } = await call;
  return data as T;
}

/** An action at the address that the server named for it. */
export async function act(address: string, given: Record<string, unknown>): Promise<void> {
  const answer = await leave(
    new Request(address, {
      method: "POST",
      credentials: "same-origin",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(given),
    }),
  );
  if (!answer.ok) throw new Refusal(answer.status, await answer.json().catch(() => ({})));
}
