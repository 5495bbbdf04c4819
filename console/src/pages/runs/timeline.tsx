// What happened, record by record: who, what, why, and how long in between.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import { Button } from "@/ui/button";
import { Failure, Skeleton } from "@/ui/feedback";
import { Moment } from "@/ui/text";
import { duration } from "@/ui/time";

export function Timeline({ runId, step, sequence }: { runId: string; step?: string; sequence: number }) {
  const { t } = useTranslation();
  const query = useInfiniteQuery({
    queryKey: ["timeline", runId, step, sequence],
    queryFn: ({ pageParam }) =>
      body(
        api.GET("/v1/timeline", {
          params: { query: { run_id: runId, step, limit: 100, cursor: pageParam || undefined } },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: (before) => before,
  });
  if (query.isPending) return <Skeleton lines={8} />;
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  const entries = query.data.pages.flatMap((page) => page.items);
  return (
    <>
      <ol className="mt-4 flex flex-col border-l-2 border-line pl-5">
        {entries.map((entry, at) => {
          const before = entries[at - 1];
          const gap = before ? Date.parse(entry.recorded_at) - Date.parse(before.recorded_at) : 0;
          const moves = [...(entry.transitions ?? []), ...(entry.run_transitions ?? [])];
          return (
            <li
              key={entry.event_id}
              className="relative pb-3 before:absolute before:-left-[1.66rem] before:top-1.5 before:size-2.5 before:rounded-full before:border-2 before:border-page before:bg-strong"
            >
              {gap > 60_000 && <p className="pb-2 text-xs text-soft">⋯ {duration(gap)}</p>}
              <p className="flex flex-wrap items-baseline gap-x-2 text-sm">
                <strong className="font-medium">{entry.action_ref.replaceAll("_", " ")}</strong>
                <span className="text-soft">{entry.actor_ref}</span>
                <span className="text-xs text-soft">
                  <Moment at={entry.recorded_at} />
                </span>
              </p>
              {moves.map((move) => (
                <p
                  key={`${move.step ?? ""}${move.transition_id}${move.to_state}`}
                  className="text-xs text-soft"
                >
                  {move.step ? `${move.step}: ` : ""}
                  {move.from_state.replaceAll("_", " ")} → {move.to_state.replaceAll("_", " ")}
                </p>
              ))}
              {entry.reason && <p className="font-serif text-sm">“{entry.reason}”</p>}
            </li>
          );
        })}
      </ol>
      {query.hasNextPage && <Button onClick={() => void query.fetchNextPage()}>{t("common.more")}</Button>}
    </>
  );
}
