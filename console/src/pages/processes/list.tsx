// Processes: where is each of them?
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { CircleCheck, CircleDot } from "lucide-react";
import { useId } from "react";
import { api, body } from "@/api/client";
import { useTopic } from "@/api/stream";
import { useTranslation } from "@/app/i18n";
import type { ProcessFilter } from "@/app/search";
import { Field, Picker } from "@/ui/form";
import { PageHead } from "@/ui/page";
import { Person } from "@/ui/person";
import { PagedTable } from "@/ui/table";
import { Moment } from "@/ui/text";
import { useDefinitionNames } from "../runs/list";

export function Processes() {
  const { t } = useTranslation();
  const filter = useSearch({ from: "/frame/processes" });
  const navigate = useNavigate();
  const ids = { definition: useId(), state: useId(), subject: useId() };
  const query = useInfiniteQuery({
    queryKey: ["processes", filter],
    queryFn: ({ pageParam }) =>
      body(
        api.GET("/v1/processes", {
          params: { query: { ...filter, limit: 50, order: "desc", cursor: pageParam || undefined } },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: (before) => before,
  });
  const client = useQueryClient();
  useTopic("processes", () => void client.invalidateQueries({ queryKey: ["processes", filter] }));
  const definitions = useDefinitionNames("process");
  const change = (part: ProcessFilter) =>
    void navigate({ to: "/processes", search: { ...filter, ...part }, replace: true });
  const names = new Set([...definitions, ...(filter.definition ? [filter.definition] : [])]);
  return (
    <>
      <PageHead title={t("page.processes")} />
      <fieldset className="mb-6 flex flex-wrap items-end gap-3">
        <legend className="sr-only">{t("runs.filters")}</legend>
        <Field
          id={ids.subject}
          label={t("runs.subjectOrId")}
          value={filter.q ?? ""}
          least={3}
          onChange={(q) => change({ q: q || undefined })}
        />
        <Picker
          id={ids.definition}
          label={t("runs.definition")}
          value={filter.definition ?? ""}
          onChange={(definition) => change({ definition: definition || undefined })}
          options={[["", t("runs.any")], ...[...names].map((name): [string, string] => [name, name])]}
        />
        <Field
          id={ids.state}
          label={t("process.state")}
          value={filter.current_state ?? ""}
          onChange={(state) => change({ current_state: state || undefined })}
        />
      </fieldset>
      <PagedTable
        label={t("page.processes")}
        query={query}
        id={(row) => row.instance_id}
        onOpen={(row) => void navigate({ to: "/processes/$id", params: { id: row.instance_id } })}
        columns={[
          {
            key: "subject",
            title: t("runs.subject"),
            wide: true,
            cell: (row) => (
              <Link
                to="/processes/$id"
                params={{ id: row.instance_id }}
                className="font-medium hover:underline"
              >
                {row.subject_ref}
              </Link>
            ),
          },
          {
            key: "state",
            title: t("process.state"),
            cell: (row) => (
              <State
                name={row.current_state}
                ended={row.declaration.terminal_states?.includes(row.current_state) ?? false}
              />
            ),
          },
          {
            key: "definition",
            title: t("runs.definition"),
            from: "sm",
            cell: (row) => <span className="text-soft">{row.declaration_ref}</span>,
          },
          { key: "by", title: t("runs.by"), from: "lg", cell: (row) => <Person who={row.initiator_ref} /> },
          {
            key: "age",
            title: t("runs.started"),
            from: "sm",
            right: true,
            cell: (row) => <Moment at={row.started_at} />,
          },
        ]}
        empty={{
          title: t("process.empty"),
          why: (
            <>
              {t("process.emptyWhy")} <code className="font-mono text-xs">countersign start …</code>
            </>
          ),
        }}
      />
    </>
  );
}

/** A state that the definition declares. It has no colour of its own; only its end is marked. */
function State({ name, ended }: { name: string; ended: boolean }) {
  const Icon = ended ? CircleCheck : CircleDot;
  return (
    <span className="inline-flex max-w-full items-center gap-2 align-top">
      <Icon aria-hidden size={15} className={`shrink-0 ${ended ? "text-soft" : "text-accent"}`} />
      <span className="truncate">{name}</span>
    </span>
  );
}
