// Who is signed in. The session is a cookie that the page never sees; `GET /v1/me` says whose it is.
import { useQuery } from "@tanstack/react-query";
import { api, body, Refusal } from "@/api/client";
import { queries } from "@/api/query";
import { restartStream } from "@/api/stream";
import { arrives, forget, lasts, tellOthers } from "./idle";
import { signInAssertion } from "./passkey";

export const me = {
  queryKey: ["me"],
  queryFn: async () => {
    const { data, response } = await api.GET("/v1/me");
    const ends = data?.session?.expires_at;
    // The server's clock on both sides: this computer's may be wrong.
    const now = Date.parse(response.headers.get("date") ?? "") || Date.now();
    if (ends) lasts(Date.parse(ends) - now);
    return data as NonNullable<typeof data>;
  },
  staleTime: 60_000,
};

export function useMe() {
  return useQuery(me);
}

/** The caller, or undefined without a session. */
export async function whoIsThere() {
  try {
    return await queries.ensureQueryData(me);
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) return undefined;
    throw error;
  }
}

async function begin(proof: { token: string } | { assertion: Awaited<ReturnType<typeof signInAssertion>> }) {
  await body(api.POST("/v1/session", { body: proof }));
  arrives();
  // Nothing that another person has loaded or follows is left.
  queries.clear();
  restartStream();
  tellOthers("began");
}

export const signIn = (token: string) => begin({ token });

export const signInWithPasskey = async () => begin({ assertion: await signInAssertion() });

export async function signOut() {
  // A session that has ended already is what was asked for.
  await body(api.DELETE("/v1/session")).catch((error: unknown) => {
    if (!(error instanceof Refusal && error.status === 401)) throw error;
  });
  forget();
  queries.clear();
  restartStream();
  tellOthers("ended");
}
