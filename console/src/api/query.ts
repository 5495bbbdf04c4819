// One cache for all pages. The stream says what moved; queries are asked again then, and never on a timer.
import { QueryClient } from "@tanstack/react-query";
import { Refusal } from "./client";

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 30_000,
      refetchOnWindowFocus: true,
      // A refusal is an answer. Only what never reached the server is tried again.
      retry: (failures, error) => failures < 3 && error instanceof Refusal && error.status === 0,
    },
    mutations: { retry: false },
  },
});
