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

const refusals: Middleware = {
  async onResponse({ response, request }) {
    if (response.ok || response.status === 304) return;
    const body = await response
      .clone()
      .json()
      .catch(() => ({}));
    if (response.status === 401 && !request.url.includes("/v1/session")) signedOut();
    throw new Refusal(response.status, body as Record<string, unknown>);
  },
  onError({ error }) {
    if (error instanceof Refusal) return error;
    return new Refusal(0, {
      code: "unreachable",
      detail: error instanceof Error ? error.message : String(error),
    });
  },
};

export const api = createClient<paths>({ baseUrl: "/", credentials: "same-origin" });
api.use(refusals);

/** The body of an answer that is known to be good: the middleware has thrown otherwise. */
export async function body<T>(call: Promise<{ data?: T }>): Promise<T> {
  const { data } = await call;
  return data as T;
}

/** A call whose address or body the typed client cannot know: actions that the server names, documents in YAML. */
export async function send<T>(
  method: "GET" | "POST",
  address: string,
  sent?: { type: string; text: string },
): Promise<T> {
  const answer = await fetch(address, {
    method,
    credentials: "same-origin",
    headers: sent ? { "content-type": sent.type } : {},
    body: sent?.text,
  });
  const data = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refusal(answer.status, data);
  return data as T;
}
