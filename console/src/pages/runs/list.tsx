// What is running, and what is stuck?
import { useInfiniteQuery, useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useId } from "react";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import type { SchemaRunSummary } from "@/api/schema";
import { useTopic } from "@/api/stream";
import { ROLLUPS, RUN_STATES, type RunFilter } from "@/app/search";
import { Field, Picker } from "@/ui/form";
import { PageHead } from "@/ui/page";
import { Person } from "@/ui/person";
import { StateMark, useToken } from "@/ui/state";
import { type Column, PagedTable } from "@/ui/table";
import { Moment } from "@/ui/text";
import { useRollupLooks, useStateLooks } from "./looks";

/** Counted up to here; more is shown as "99+". */
const COUNTED = 100;

export function Runs() {
  const { t } = useTranslation();
  const filter = useSearch({ from: "/frame/runs" });
  const navigate = useNavigate();
  const client = useQueryClient();
  const looks = useStateLooks("workflow_run");
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
        const { token, icon, label } = looks(run.state);
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
      title: t("runs.steps"),
      from: "lg",
      cell: (run) => <Share run={run} />,
    },
    { key: "by", title: t("runs.by"), from: "lg", cell: (run) => <Person who={run.initiator_ref} /> },
    { key: "age", title: t("runs.started"), right: true, cell: (run) => <Moment at={run.started_at} /> },
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
  const counts = useQueries({
    queries: ROLLUPS.map((rollup) => ({
      queryKey: ["runs", "count", rollup, others],
      queryFn: () => body(api.GET("/v1/runs", { params: { query: { ...others, rollup, limit: COUNTED } } })),
    })),
  });
  return (
    <fieldset className="grid grid-cols-2 gap-3 sm:grid-cols-4">
      <legend className="sr-only">{t("runs.rollup")}</legend>
      {ROLLUPS.map((rollup, at) => {
        const data = counts[at]?.data;
        const count = data && (data.next ? `${COUNTED - 1}+` : String(data.items.length));
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

/** Where it is or what holds it up: the step that decides the colour, or the error that ended it. */
function Where({ run, looks }: { run: SchemaRunSummary; looks: ReturnType<typeof useStateLooks> }) {
  const { decisive_step: step, decisive_state_code: state } = run.rollup;
  if (step)
    return (
      <>
        {step} <span className="text-soft">{looks(state ?? "").label.toLowerCase()}</span>
        {run.last_error && <span className="text-soft">: {run.last_error}</span>}
      </>
    );
  return <span className="text-soft">{run.last_error ?? "—"}</span>;
}

const PARTS = ["green", "yellow", "red"] as const;

/** The active steps by colour, as one thin bar. */
function Share({ run }: { run: SchemaRunSummary }) {
  const looks = useRollupLooks();
  const { counts } = run.rollup;
  const total = counts.red + counts.yellow + counts.green;
  if (total === 0) return <span className="text-soft">—</span>;
  const words = PARTS.filter((part) => counts[part] > 0)
    .map((part) => `${counts[part]} ${looks(part).label.toLowerCase()}`)
    .join(", ");
  return (
    <span className="flex items-center gap-2" title={words}>
      <span
        role="img"
        aria-label={words}
        className="flex h-1.5 w-20 overflow-hidden rounded-full border border-field-line"
      >
        {PARTS.map((part) => (
          <Part key={part} token={looks(part).token} share={counts[part] / total} />
        ))}
      </span>
      <span className="tabular text-xs text-soft">{total}</span>
    </span>
  );
}

function Part({ token, share }: { token: string; share: number }) {
  const { colours } = useToken(token);
  return <span style={{ width: `${share * 100}%`, backgroundColor: colours.line }} />;
}
