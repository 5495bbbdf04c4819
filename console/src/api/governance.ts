// The board of problems: the rail marks it, the page shows it.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { api, body } from "./client";
import { useTopic } from "./stream";

/** All eight rows, kept up to date. Only for those who may read them. */
export function useBoard(may: boolean) {
  const client = useQueryClient();
  useTopic(may ? "governance" : undefined, () => void client.invalidateQueries({ queryKey: ["governance"] }));
  return useQuery({
    queryKey: ["governance", "board"],
    enabled: may,
    queryFn: () => body(api.GET("/v1/governance/problems")),
  });
}
