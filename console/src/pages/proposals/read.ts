// Reading a proposal, and what it changes.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import { useTopic } from "@/api/stream";

export function useProposal(id: string) {
  const client = useQueryClient();
  useTopic(`process:${id}`, () => void client.invalidateQueries({ queryKey: ["proposals", id] }));
  return useQuery({
    queryKey: ["proposals", id, "view"],
    queryFn: () => body(api.GET("/v1/proposals/{id}", { params: { path: { id } } })),
  });
}

/** Of a definition; a change of another kind has nothing to compare. */
export function useProposalDiff(id: string, enabled: boolean) {
  return useQuery({
    queryKey: ["proposals", id, "diff"],
    enabled,
    queryFn: () => body(api.GET("/v1/proposals/{id}/diff", { params: { path: { id } } })),
  });
}

/** What the versions between these two changed. */
export function useVersionDiff(name: string, from: number, to: number) {
  return useQuery({
    queryKey: ["definitions", name, "diff", from, to],
    enabled: from > 0 && to > from,
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
    queryFn: () =>
      body(
        api.GET("/v1/definitions/{name}/versions/{version}/diff", {
          params: { path: { name, version: from }, query: { with: String(to) } },
        }),
      ),
  });
}
