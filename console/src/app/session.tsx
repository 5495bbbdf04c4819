// Who is signed in. The session is a cookie that the page never sees; `GET /v1/me` says whose it is.
import { useQuery } from "@tanstack/react-query";
import { api, body, Refusal } from "@/api/client";
import { queries } from "@/api/query";

export const me = {
  queryKey: ["me"],
  queryFn: () => body(api.GET("/v1/me")),
  staleTime: 60_000,
};

export function useMe() {
  return useQuery(me);
}

/** The caller, or undefined when nobody is signed in. */
export async function whoIsThere() {
  try {
    return await queries.ensureQueryData(me);
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) return undefined;
    throw error;
  }
}

export async function signIn(token: string) {
  await body(api.POST("/v1/session", { body: { token } }));
  await queries.resetQueries();
}

export async function signOut() {
  await body(api.DELETE("/v1/session"));
  queries.clear();
}
