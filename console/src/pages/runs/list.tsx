// What is running, and what is stuck?
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useId } from "react";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import type { SchemaRunSummary } from "@/api/schema";
import { useTopic } from "@/api/stream";
import { ROLLUPS, RUN_STATES, type RunFilter } from "@/app/search";
import { Field, Picker } from "@/ui/form";
import { StateChip } from "@/ui/state";
import { type Column, PagedTable } from "@/ui/table";
import { Moment } from "@/ui/text";
import { useTexts } from "@/ui/texts";
import { useStateLooks } from "./looks";

export function Runs() {
  const { t } = useTranslation();
  const says = useTexts();
  const filter = useSearch({ from: "/frame/runs" });
  const navigate = useNavigate();
  const client = useQueryClient();
  const looks = useStateLooks("workflow_run");
  const ids = { q: useId(), state: useId(), definition: useId() };
  const query = useInfiniteQuery({
    queryKey: ["runs", filter],
    queryFn: ({ pageParam }) =>
      body(
        api.GET("/v1/runs", {
          params: { query: { ...filter, limit: 50, order: "desc", cursor: pageParam || undefined } },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
  });
  useTopic("runs", () => void client.invalidateQueries({ queryKey: ["runs"], refetchType: "active" }));

  const change = (part: RunFilter) =>
    void navigate({ to: "/runs", search: { ...filter, ...part }, replace: true });
  const columns: Column<SchemaRunSummary>[] = [
    {
      key: "state",
      title: t("runs.state"),
      cell: (run) => <StateChip token={looks(run.state).token} words={looks(run.state).label} />,
    },
    {
      key: "subject",
      title: t("runs.subject"),
      cell: (run) => (
        <Link to="/runs/$id" params={{ id: run.run_id }} className="font-medium hover:underline">
          {run.subject_ref}
        </Link>
      ),
    },
    {
      key: "definition",
      title: t("runs.definition"),
      from: "sm",
      cell: (run) => <span className="text-soft">{run.definition}</span>,
    },
    {
      key: "where",
      title: t("runs.where"),
      from: "md",
      cell: (run) =>
        run.rollup.decisive_step ??
        (run.last_error ? <span className="text-bad">{run.last_error}</span> : "—"),
    },
    { key: "rollup", title: t("runs.rollup"), from: "lg", cell: (run) => says(run.rollup.state_code) },
    { key: "by", title: t("runs.by"), from: "lg", cell: (run) => run.initiator_ref },
    { key: "age", title: t("runs.started"), right: true, cell: (run) => <Moment at={run.started_at} /> },
  ];

  return (
    <>
      <h1>{t("page.runs")}</h1>
      <fieldset className="my-5 flex flex-wrap items-end gap-3">
        <legend className="sr-only">{t("runs.filters")}</legend>
        <div className="flex gap-1">
          {ROLLUPS.map((rollup) => (
            <button
              key={rollup}
              type="button"
              aria-pressed={filter.rollup === rollup}
              onClick={() => change({ rollup: filter.rollup === rollup ? undefined : rollup })}
              className="min-h-9 rounded-full border border-line px-3 text-xs aria-pressed:border-accent aria-pressed:bg-accent-wash aria-pressed:text-accent"
            >
              {t(`rollup.${rollup}`)}
            </button>
          ))}
        </div>
        <Picker
          id={ids.state}
          label={t("runs.state")}
          value={filter.state ?? ""}
          onChange={(state) => change({ state: RUN_STATES.find((one) => one === state) })}
          options={[
            ["", t("runs.any")],
            ...RUN_STATES.map((state): [string, string] => [state, looks(state).label]),
          ]}
        />
        <Field
          id={ids.definition}
          label={t("runs.definition")}
          value={filter.definition ?? ""}
          onChange={(definition) => change({ definition: definition || undefined })}
        />
        <Field
          id={ids.q}
          label={t("common.search")}
          value={filter.q ?? ""}
          onChange={(q) => change({ q: q || undefined })}
        />
      </fieldset>
      <PagedTable
        label={t("page.runs")}
        query={query}
        columns={columns}
        id={(run) => run.run_id}
        onOpen={(run) => void navigate({ to: "/runs/$id", params: { id: run.run_id } })}
        empty={{
          title: t("runs.empty"),
          why: (
            <>
              {t("runs.emptyWhy")} <code className="font-mono text-xs">countersign run NAME --subject …</code>
            </>
          ),
        }}
      />
    </>
  );
}
