// What is running, and what is stuck?
import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useId } from "react";
import { api, body } from "@/api/client";
import type { SchemaRunSummary } from "@/api/schema";
import { useTopic } from "@/api/stream";
import { useTranslation } from "@/app/i18n";
import { ROLLUPS, RUN_STATES, type RunFilter } from "@/app/search";
import { Field, Picker } from "@/ui/form";
import { PageHead } from "@/ui/page";
import { Person } from "@/ui/person";
import { Progress } from "@/ui/progress";
import { StateMark, useToken } from "@/ui/state";
import { type Column, PagedTable } from "@/ui/table";
import { Moment } from "@/ui/text";
import { useRollupLooks, useRunLook, useStateLooks } from "./looks";

export function Runs() {
  const { t } = useTranslation();
  const filter = useSearch({ from: "/frame/runs" });
  const navigate = useNavigate();
  const client = useQueryClient();
  const looks = useStateLooks("workflow_run");
  const look = useRunLook();
  const stepLooks = useStateLooks("step");
  const ids = { q: useId(), state: useId(), definition: useId(), pic: useId() };
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
    placeholderData: (before) => before,
  });
  useTopic("runs", () => void client.invalidateQueries({ queryKey: ["runs"], refetchType: "active" }));
  const definitions = useDefinitionNames("workflow");

  const change = (part: RunFilter) =>
    void navigate({ to: "/runs", search: { ...filter, ...part }, replace: true });
  const columns: Column<SchemaRunSummary>[] = [
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
      key: "state",
      title: t("runs.state"),
      cell: (run) => {
        const { token, icon, label } = look(run.state, run.rollup.state_code);
        return <StateMark token={token} icon={icon} words={label} />;
      },
    },
    {
      key: "where",
      title: t("runs.where"),
      from: "md",
      wide: true,
      cell: (run) => <Where run={run} looks={stepLooks} />,
    },
    {
      key: "definition",
      title: t("runs.definition"),
      from: "sm",
      cell: (run) => <span className="text-soft">{run.definition}</span>,
    },
    {
      key: "steps",
      title: t("run.progress"),
      from: "lg",
      cell: (run) => <Share run={run} />,
    },
    {
      key: "pic",
      title: t("step.pic"),
      from: "lg",
      cell: (run) => (run.pic ? <Person who={run.pic} /> : <span className="text-soft">—</span>),
    },
    {
      key: "age",
      title: t("runs.started"),
      from: "sm",
      right: true,
      cell: (run) => <Moment at={run.started_at} />,
    },
  ];

  return (
    <>
      <PageHead title={t("page.runs")} />
      <Colours filter={filter} change={change} />
      <fieldset className="my-6 flex flex-wrap items-end gap-3">
        <legend className="sr-only">{t("runs.filters")}</legend>
        <Field
          id={ids.q}
          label={t("runs.subjectOrId")}
          value={filter.q ?? ""}
          least={3}
          onChange={(q) => change({ q: q || undefined })}
        />
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
        <Picker
          id={ids.definition}
          label={t("runs.definition")}
          value={filter.definition ?? ""}
          onChange={(definition) => change({ definition: definition || undefined })}
          options={[
            ["", t("runs.any")],
            ...[...new Set([...definitions, ...(filter.definition ? [filter.definition] : [])])].map(
              (name): [string, string] => [name, name],
            ),
          ]}
        />
        <Field
          id={ids.pic}
          label={t("step.pic")}
          value={filter.pic ?? ""}
          onChange={(pic) => change({ pic: pic || undefined })}
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

/** Names of the definitions of one kind, for a filter. */
export function useDefinitionNames(kind: string): string[] {
  const query = useQuery({
    queryKey: ["definitions", "names"],
    retry: false,
    queryFn: () => body(api.GET("/v1/definitions", { params: { query: { limit: 200 } } })),
  });
  return (query.data?.items ?? []).filter((one) => one.kind === kind).map((one) => one.name);
}

/** How many runs have each colour, as filters. */
function Colours({ filter, change }: { filter: RunFilter; change: (part: RunFilter) => void }) {
  const { t } = useTranslation();
  const { rollup: chosen, ...others } = filter;
  const counts = useQuery({
    queryKey: ["runs", "counts", others],
    queryFn: () => body(api.GET("/v1/runs/counts", { params: { query: others } })),
    placeholderData: (before) => before,
  }).data;
  return (
    <fieldset className="grid grid-cols-2 gap-3 sm:grid-cols-4">
      <legend className="sr-only">{t("runs.rollup")}</legend>
      {ROLLUPS.map((rollup) => {
        const found = counts?.[rollup];
        const count = found && `${found.count.toLocaleString()}${found.more ? "+" : ""}`;
        return (
          <Colour
            key={rollup}
            rollup={rollup}
            count={count}
            pressed={chosen === rollup}
            onPress={() => change({ rollup: chosen === rollup ? undefined : rollup })}
          />
        );
      })}
    </fieldset>
  );
}

function Colour({
  rollup,
  count,
  pressed,
  onPress,
}: {
  rollup: string;
  count: string | undefined;
  pressed: boolean;
  onPress: () => void;
}) {
  const { token, icon, label } = useRollupLooks()(rollup);
  const { colours, Shape } = useToken(token, icon);
  return (
    <button
      type="button"
      aria-pressed={pressed}
      onClick={onPress}
      className={`flex flex-col gap-0.5 rounded-lg border px-4 py-3 text-left hover:bg-wash ${pressed ? "border-accent bg-accent-wash ring-1 ring-accent" : "border-line"}`}
    >
      <span className="flex items-center gap-2 text-soft">
        <Shape aria-hidden size={15} strokeWidth={2.5} style={{ color: colours.line }} />
        {label}
      </span>
      <span className="tabular font-serif text-xl font-semibold">{count ?? "–"}</span>
    </button>
  );
}

/** Where it is or what holds it up: the step that decides the colour with its state, or the error that ended it. */
function Where({ run, looks }: { run: SchemaRunSummary; looks: ReturnType<typeof useStateLooks> }) {
  const { decisive_step: decisive, decisive_state_code: state } = run.rollup;
  const step = run.current_step ?? decisive;
  if (step)
    return (
      <>
        {step}
        {step === decisive && <span className="text-soft"> {looks(state ?? "").label.toLowerCase()}</span>}
        {run.last_error && <span className="text-soft">: {run.last_error}</span>}
      </>
    );
  return <span className="text-soft">{run.last_error ?? "—"}</span>;
}

const NOTHING = { mandatory_completed: 0, mandatory_total: 0 };

/** How much of it is done. */
function Share({ run }: { run: SchemaRunSummary }) {
  const { t } = useTranslation();
  const { mandatory_completed: done, mandatory_total: total } = run.progress ?? NOTHING;
  if (total === 0) return <span className="text-soft">—</span>;
  return (
    <span className="flex items-center gap-2">
      <Progress label={t("run.progress")} value={done} of={total} className="w-20" />
      <span className="tabular text-xs text-soft">
        {done}/{total}
      </span>
    </span>
  );
}
