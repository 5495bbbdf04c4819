// The problems of a category, and the one that is open: what it is about, what opened it, and what resolved it.
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { api, body } from "@/api/client";
import { useBoard } from "@/api/governance";
import type { SchemaProblemCount, SchemaSummary } from "@/api/schema";
import { useTranslation, wordsFor } from "@/app/i18n";
import type { ProblemSearch } from "@/app/search";
import { PROBLEM_STATES } from "@/app/search";
import { Fact, Facts } from "@/ui/facts";
import { Picker } from "@/ui/form";
import { PageHead } from "@/ui/page";
import { PagedTable } from "@/ui/table";
import { Id, Moment } from "@/ui/text";
import { plain } from "@/ui/texts";
import { Problem } from "./problem";
import { LastError, Subject } from "./subject";
import { Evidence, Governed, Light, Standing, useSentence } from "./words";

export function Category() {
  const { t } = useTranslation();
  const { category } = useParams({ from: "/frame/governance/problems/$category" });
  const title = wordsFor(t, "governance.category", category);
  return (
    <Governed title={title}>
      <Head category={category} title={title} />
      <Problems key={category} category={category} />
    </Governed>
  );
}

function Head({ category, title }: { category: string; title: string }) {
  const { t } = useTranslation();
  const says = useSentence();
  const row = useBoard(true).data?.items.find((row) => row.category === category);
  return (
    <PageHead
      trail={
        <Link to="/governance" className="hover:underline">
          {t("page.governance")}
        </Link>
      }
      title={title}
    >
      {row && (
        <p className="flex flex-wrap items-center gap-x-4 gap-y-1">
          <Light of={row.light} />
          <span>{says(row)}</span>
          {row.summary && <Evidence summary={row.summary} />}
        </p>
      )}
      {row?.summary && <Behind summary={row.summary} />}
    </PageHead>
  );
}

/** Who made the sentence, of which events, and of which time. */
function Behind({ summary }: { summary: SchemaSummary }) {
  const { t } = useTranslation();
  const { generated_by: by, time_window: window, source_event_refs: refs } = summary;
  return (
    <details className="text-sm">
      <summary className="w-fit cursor-pointer text-xs text-soft">{t("governance.behind")}</summary>
      <div className="mt-2 max-w-2xl">
        <Facts>
          <Fact name={t("governance.madeBy")}>
            {plain(by.summarizer_kind)}, {by.summarizer_ref} {by.summarizer_version}
          </Fact>
          <Fact name={t("governance.window")}>
            <Moment at={window.start_at} /> – <Moment at={window.end_at} />
          </Fact>
          {summary.confidence != null && (
            <Fact name={t("governance.confidence")}>{Math.round(summary.confidence * 100)} %</Fact>
          )}
          <Fact name={t("governance.events")}>
            {t("governance.named", { count: summary.source_event_count, all: summary.source_event_total })}
            <span className="mt-1 flex flex-wrap gap-x-3">
              {refs.map((event) => (
                <Id key={event} value={event} />
              ))}
            </span>
          </Fact>
        </Facts>
      </div>
    </details>
  );
}

/** The filter of problems and of dead letters. */
export function StateFilter({ id, search, change }: { id: string } & StateChange) {
  const { t } = useTranslation();
  return (
    <div className="mb-5">
      <Picker
        id={id}
        label={t("governance.filter")}
        value={search.state ?? "open"}
        onChange={(state) => change({ state: state === "open" ? undefined : state })}
        options={PROBLEM_STATES.map((state): [(typeof PROBLEM_STATES)[number], string] => [
          state,
          state === "any" ? t("runs.any") : t(`governance.state.${state}`),
        ])}
      />
    </div>
  );
}
interface StateChange {
  search: Pick<ProblemSearch, "state">;
  change: (part: ProblemSearch) => void;
}

/** What the server filters by: open ones, if nothing else is chosen. */
export const wanted = (state: ProblemSearch["state"]) => (state === "any" ? undefined : (state ?? "open"));

/** So many a page: each asks for its run's subject. */
export const AT_ONCE = 25;

function Problems({ category }: { category: string }) {
  const { t } = useTranslation();
  const search = useSearch({ from: "/frame/governance/problems/$category" });
  const navigate = useNavigate();
  const light = useLight(category);
  const query = useInfiniteQuery({
    queryKey: ["governance", "problems", category, search.state],
    queryFn: ({ pageParam }) =>
      body(
        api.GET("/v1/governance/problems/{category}", {
          params: {
            path: { category },
            query: {
              state: wanted(search.state),
              limit: AT_ONCE,
              order: "desc",
              cursor: pageParam || undefined,
            },
          },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: (before) => before,
  });
  const change = (part: ProblemSearch) =>
    void navigate({
      to: "/governance/problems/$category",
      params: { category },
      search: { ...search, ...part },
      replace: true,
    });
  const rows = query.data?.pages.flatMap((page) => page.items) ?? [];
  const chosen = rows.find((row) => row.problem_id === search.item);
  return (
    <div className={chosen ? "grid gap-8 lg:grid-cols-[minmax(0,1fr)_25rem]" : ""}>
      {chosen && (
        <div className="lg:order-last">
          <Problem problem={chosen} light={light} onClose={() => change({ item: undefined })} />
        </div>
      )}
      <section aria-label={t("governance.problems")} className="min-w-0">
        <StateFilter id="problem-state" search={search} change={change} />
        <PagedTable
          label={t("governance.problems")}
          query={query}
          id={(row) => row.problem_id}
          onOpen={(row) => change({ item: row.problem_id })}
          columns={[
            {
              key: "what",
              title: t("governance.what"),
              wide: true,
              cell: (row) => (
                <Link
                  to="/governance/problems/$category"
                  params={{ category }}
                  search={{ ...search, item: row.problem_id }}
                  replace
                  aria-current={row === chosen ? "true" : undefined}
                  className="hover:underline"
                >
                  {row.run_id ? <Subject run={row.run_id} step={row.step} /> : row.worker_class}{" "}
                  <span className="text-soft">
                    {row.detail}
                    {row.run_id && category === "failed_runs" && <LastError run={row.run_id} />}
                  </span>
                </Link>
              ),
            },
            {
              key: "state",
              title: t("runs.state"),
              from: "sm",
              cell: (row) => <Standing state={row.state} light={light} />,
            },
            {
              key: "since",
              title: t("governance.since"),
              right: true,
              cell: (row) => <Moment at={row.since} />,
            },
          ]}
          empty={{
            title: t(search.state === undefined ? "governance.noneOpen" : "governance.none"),
            why: wordsFor(t, "governance.opens", category),
          }}
        />
      </section>
    </div>
  );
}

export function useLight(category: string): SchemaProblemCount["light"] | undefined {
  return useBoard(true).data?.items.find((row) => row.category === category)?.light;
}
