// Processes: where is each of them?
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useId } from "react";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import type { ProcessFilter } from "@/app/search";
import { Field } from "@/ui/form";
import { PagedTable } from "@/ui/table";
import { Moment } from "@/ui/text";

export function Processes() {
  const { t } = useTranslation();
  const filter = useSearch({ from: "/frame/processes" });
  const navigate = useNavigate();
  const ids = [useId(), useId(), useId()];
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
  });
  const change = (part: ProcessFilter) =>
    void navigate({ to: "/processes", search: { ...filter, ...part }, replace: true });
  return (
    <>
      <h1>{t("page.processes")}</h1>
      <fieldset className="my-5 flex flex-wrap items-end gap-3">
        <legend className="sr-only">{t("runs.filters")}</legend>
        <Field
          id={ids[0] ?? ""}
          label={t("runs.definition")}
          value={filter.definition ?? ""}
          onChange={(definition) => change({ definition: definition || undefined })}
        />
        <Field
          id={ids[1] ?? ""}
          label={t("process.state")}
          value={filter.current_state ?? ""}
          onChange={(state) => change({ current_state: state || undefined })}
        />
        <Field
          id={ids[2] ?? ""}
          label={t("runs.subject")}
          value={filter.subject_ref ?? ""}
          onChange={(subject) => change({ subject_ref: subject || undefined })}
        />
      </fieldset>
      <PagedTable
        label={t("page.processes")}
        query={query}
        id={(row) => row.instance_id}
        onOpen={(row) => void navigate({ to: "/processes/$id", params: { id: row.instance_id } })}
        columns={[
          {
            key: "state",
            title: t("process.state"),
            cell: (row) => (
              <span className="rounded-md border border-line px-2 py-0.5">{row.current_state}</span>
            ),
          },
          {
            key: "subject",
            title: t("runs.subject"),
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
            key: "definition",
            title: t("runs.definition"),
            from: "sm",
            cell: (row) => <span className="text-soft">{row.declaration_ref}</span>,
          },
          { key: "by", title: t("runs.by"), from: "lg", cell: (row) => row.initiator_ref },
          {
            key: "age",
            title: t("runs.started"),
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
