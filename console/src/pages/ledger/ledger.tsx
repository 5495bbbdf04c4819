// Can I trust this? The newest checkpoint, a verification in plain words, and the records themselves.
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useId } from "react";
import { api, body } from "@/api/client";
import type { SchemaRecordView } from "@/api/schema";
import { useTopic } from "@/api/stream";
import { useTranslation, wordsFor } from "@/app/i18n";
import type { LedgerSearch } from "@/app/search";
import { useMe } from "@/app/session";
import { Empty, Skeleton } from "@/ui/feedback";
import { Field } from "@/ui/form";
import { Person } from "@/ui/person";
import { PagedTable } from "@/ui/table";
import { Moment } from "@/ui/text";
import { Assurance, SealState } from "./assurance";
import { RecordPanel } from "./record";
import { Checkpoint, Verification } from "./trust";

export function Ledger() {
  const { t } = useTranslation();
  const { data: me } = useMe();
  if (!me) return <Skeleton lines={8} />;
  if (me.scopes.includes("audit:read")) return <Records />;
  return (
    <>
      <h1 className="mb-6">{t("page.ledger")}</h1>
      <Empty title={t("ledger.notYours")}>
        {t("ledger.notYoursWhy")}{" "}
        <Link to="/verify" className="text-accent underline">
          {t("ledger.verifyBundle")}
        </Link>
      </Empty>
    </>
  );
}

function Records() {
  const { t } = useTranslation();
  const search = useSearch({ from: "/frame/ledger" });
  const { record, ...filter } = search;
  const navigate = useNavigate();
  const ids = [useId(), useId(), useId()];
  const query = useInfiniteQuery({
    queryKey: ["records", filter],
    queryFn: ({ pageParam }) =>
      body(
        api.GET("/v1/ledger/records", {
          params: { query: { ...filter, limit: 50, order: "desc", cursor: pageParam || undefined } },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
  });
  // Records that wait for a checkpoint are shown as sealed once it is signed.
  const waits = query.data?.pages.some((page) => page.items.some((row) => row.log_index == null)) ?? false;
  const client = useQueryClient();
  useTopic(waits ? "ledger" : undefined, () => void client.invalidateQueries({ queryKey: ["records"] }));
  const change = (part: LedgerSearch) =>
    void navigate({ to: "/ledger", search: { ...search, ...part }, replace: true });
  return (
    <>
      <header className="mb-6 flex flex-wrap items-baseline justify-between gap-x-6 gap-y-2">
        <div>
          <h1>{t("page.ledger")}</h1>
          <p className="prose mt-1 text-soft">{t("ledger.lead")}</p>
        </div>
        <Link to="/verify" className="text-accent underline">
          {t("ledger.verifyBundle")}
        </Link>
      </header>
      <div className="mb-8 grid gap-x-12 gap-y-6 border-y border-line py-6 md:grid-cols-2">
        <Checkpoint />
        <Verification key={filter.instance_id} instance={filter.instance_id} />
      </div>
      <div className={record ? "grid gap-8 lg:grid-cols-[minmax(0,1fr)_24rem]" : ""}>
        {record && (
          <div className="lg:order-last">
            <RecordPanel key={record} id={record} onClose={() => change({ record: undefined })} />
          </div>
        )}
        <section aria-label={t("ledger.records")} className="min-w-0">
          <fieldset className="mb-4 flex flex-wrap items-end gap-3">
            <legend className="sr-only">{t("runs.filters")}</legend>
            <Field
              id={ids[0] ?? ""}
              label={t("ledger.instance")}
              value={filter.instance_id ?? ""}
              onChange={(value) => change({ instance_id: value || undefined })}
            />
            <Field
              id={ids[1] ?? ""}
              label={t("ledger.actor")}
              value={filter.actor_ref ?? ""}
              onChange={(value) => change({ actor_ref: value || undefined })}
            />
            <Field
              id={ids[2] ?? ""}
              label={t("ledger.action")}
              value={filter.action_ref ?? ""}
              onChange={(value) => change({ action_ref: value || undefined })}
            />
          </fieldset>
          <PagedTable
            label={t("ledger.records")}
            query={query}
            id={(row) => row.event_id}
            onOpen={(row) => change({ record: row.event_id })}
            columns={[
              {
                key: "action",
                title: t("ledger.action"),
                cell: (row) => (
                  <Link
                    to="/ledger"
                    search={{ ...filter, record: row.event_id }}
                    aria-current={row.event_id === record ? "true" : undefined}
                    className="inline-block font-medium first-letter:uppercase hover:underline aria-[current]:text-accent"
                  >
                    {wordsFor(t, "record", row.action_ref)}
                  </Link>
                ),
              },
              // Unless all are of one process or run.
              ...(filter.instance_id
                ? []
                : [
                    {
                      key: "of",
                      title: t("ledger.instance"),
                      from: "lg" as const,
                      cell: (row: SchemaRecordView) => (
                        <Link
                          to="/ledger"
                          search={{ ...filter, instance_id: row.instance_id }}
                          title={row.instance_id}
                          className="tabular font-mono text-xs text-soft hover:underline"
                        >
                          …{row.instance_id.slice(-8)} #{row.sequence}
                        </Link>
                      ),
                    },
                  ]),
              { key: "actor", title: t("ledger.actor"), cell: (row) => <Person who={row.actor_ref} /> },
              {
                key: "assurance",
                title: t("ledger.assurance"),
                from: "sm",
                cell: (row) => <Assurance of={row.assurance} />,
              },
              // The open record says it, too, and takes its place.
              ...(record
                ? []
                : [
                    {
                      key: "seal",
                      title: t("ledger.seal"),
                      from: "md" as const,
                      cell: (row: SchemaRecordView) => <SealState at={row.log_index} />,
                    },
                  ]),
              {
                key: "at",
                title: t("ledger.at"),
                right: true,
                cell: (row) => <Moment at={row.recorded_at} />,
              },
            ]}
            empty={{ title: t("ledger.empty"), why: t("ledger.emptyWhy") }}
          />
        </section>
      </div>
    </>
  );
}
