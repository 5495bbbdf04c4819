// What happened, record by record: who, what, why, and how long in between.
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, body } from "@/api/client";
import type { SchemaTimelineEntry } from "@/api/schema";
import { useTranslation, wordsFor } from "@/app/i18n";
import type { TimelineSearch } from "@/app/search";
import { Button } from "@/ui/button";
import { Failure, Skeleton } from "@/ui/feedback";
import { Person } from "@/ui/person";
import { Moment } from "@/ui/text";
import { useTexts } from "@/ui/texts";
import { duration } from "@/ui/time";

export function Records({ runId, step, sequence }: { runId: string; step?: string; sequence: number }) {
  return <RecordsOf search={{ run_id: runId, step }} sequence={sequence} />;
}

/** Of a run, of a trace, or of another chain; again with a new sequence. */
export function RecordsOf({ search, sequence }: { search: TimelineSearch; sequence?: number }) {
  const { t } = useTranslation();
  const query = useInfiniteQuery({
    queryKey: ["timeline", search, sequence],
    queryFn: ({ pageParam }) =>
      body(
        api.GET("/v1/timeline", {
          params: { query: { ...search, limit: 100, cursor: pageParam || undefined } },
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
      <ol className="flex flex-col">
        {entries.map((entry, at) => (
          <Entry
            key={entry.event_id}
            entry={entry}
            before={entries[at - 1]}
            inStep={search.step !== undefined}
          />
        ))}
      </ol>
      {query.hasNextPage && (
        <Button className="mt-3" onClick={() => void query.fetchNextPage()}>
          {t("common.more")}
        </Button>
      )}
    </>
  );
}

function Entry({
  entry,
  before,
  inStep,
}: {
  entry: SchemaTimelineEntry;
  before: SchemaTimelineEntry | undefined;
  inStep: boolean;
}) {
  const { t } = useTranslation();
  const says = useTexts();
  const gap = before ? Date.parse(entry.recorded_at) - Date.parse(before.recorded_at) : 0;
  const moves = [
    ...(entry.run_transitions ?? []).map((move) => ({
      ...move,
      words: (code: string) => `run.${code}.label`,
    })),
    ...(entry.transitions ?? []).map((move) => ({ ...move, words: (code: string) => `state.${code}.label` })),
  ];
  return (
    <li className="relative border-l-2 border-line pb-4 pl-5 last:border-transparent before:absolute before:top-1.5 before:-left-[6px] before:size-2.5 before:rounded-full before:border-2 before:border-strong before:bg-page">
      {gap > 60_000 && <p className="pb-2 text-xs text-soft">⋯ {duration(gap)}</p>}
      <p className="flex flex-wrap items-baseline gap-x-2 text-sm">
        <strong className="font-medium first-letter:uppercase">
          {wordsFor(t, "record", entry.action_ref)}
        </strong>
        <span className="text-soft">
          <Person who={entry.actor_ref} />
        </span>
        <span className="text-xs text-soft">
          <Moment at={entry.recorded_at} />
        </span>
        <Link
          to="/ledger"
          search={{ instance_id: entry.instance_id }}
          className="tabular ml-auto text-xs text-soft hover:underline"
        >
          #{entry.sequence}
        </Link>
      </p>
      {moves.map((move) => (
        <p key={`${move.step ?? ""}${move.transition_id}${move.to_state}`} className="text-xs text-soft">
          {!inStep && move.step && <span className="text-ink">{move.step} </span>}
          {says(move.words(move.from_state))} → {says(move.words(move.to_state))}
        </p>
      ))}
      {(entry.facets ?? []).map((facet) => (
        <p key={facet} className="text-xs text-soft">
          {says(`facet.${facet}.label`)}
        </p>
      ))}
      {(entry.errors ?? []).map((error) => (
        <p key={`${error.step}:${error.attempt}`} className="text-xs [overflow-wrap:anywhere]">
          <span className="text-soft">
            {error.step}, {t("governance.attempt", { number: error.attempt })}:
          </span>{" "}
          {error.error ?? "—"}
        </p>
      ))}
      {entry.reason && <p className="font-serif text-sm">“{entry.reason}”</p>}
    </li>
  );
}
