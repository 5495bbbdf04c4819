// Can I trust this? The newest checkpoint, a verification in plain words, and the records themselves.
import { useInfiniteQuery, useMutation, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { ShieldAlert, ShieldCheck } from "lucide-react";
import { useId } from "react";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import type { LedgerSearch } from "@/app/search";
import { Button } from "@/ui/button";
import { Failure } from "@/ui/feedback";
import { Field } from "@/ui/form";
import { PagedTable } from "@/ui/table";
import { Id, Moment } from "@/ui/text";

export function Ledger() {
  const { t } = useTranslation();
  const filter = useSearch({ from: "/frame/ledger" });
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
  const change = (part: LedgerSearch) =>
    void navigate({ to: "/ledger", search: { ...filter, ...part }, replace: true });
  return (
    <>
      <div className="mb-5 flex flex-wrap items-baseline justify-between gap-4">
        <h1>{t("page.ledger")}</h1>
        <Link to="/verify" className="text-accent underline">
          {t("ledger.verifyBundle")}
        </Link>
      </div>
      <div className="mb-6 grid gap-4 md:grid-cols-2">
        <Checkpoint />
        <Verification instance={filter.instance_id} />
      </div>
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
        columns={[
          {
            key: "action",
            title: t("ledger.action"),
            cell: (row) => <span className="font-medium">{row.action_ref.replaceAll("_", " ")}</span>,
          },
          { key: "actor", title: t("ledger.actor"), cell: (row) => row.actor_ref },
          {
            key: "assurance",
            title: t("ledger.assurance"),
            from: "sm",
            cell: (row) => t(`assurance.${row.assurance}`, row.assurance),
          },
          {
            key: "seal",
            title: t("ledger.seal"),
            from: "md",
            cell: (row) =>
              row.log_index == null ? t("ledger.unsealed") : t("ledger.sealed", { at: row.log_index }),
          },
          {
            key: "hash",
            title: t("ledger.hash"),
            from: "lg",
            cell: (row) => <Id value={row.record_hash} length={12} />,
          },
          { key: "at", title: t("ledger.at"), right: true, cell: (row) => <Moment at={row.recorded_at} /> },
        ]}
        empty={{ title: t("ledger.empty"), why: t("ledger.emptyWhy") }}
      />
    </>
  );
}

function Checkpoint() {
  const { t } = useTranslation();
  const query = useQuery({
    queryKey: ["checkpoint"],
    queryFn: async () => {
      const answer = await fetch("/v1/ledger/checkpoint", { credentials: "same-origin" });
      if (!answer.ok) throw new Error(`${answer.status}`);
      const [origin = "", size = "", root = ""] = (await answer.text()).split("\n");
      return { origin, size: Number(size), root };
    },
  });
  return (
    <section className="rounded-lg border border-line p-4">
      <h2 className="mb-2">{t("ledger.checkpoint")}</h2>
      {query.isError && <p className="text-soft">{t("ledger.noCheckpoint")}</p>}
      {query.data && (
        <dl className="grid grid-cols-[6rem_1fr] gap-y-1 text-sm">
          <dt className="text-soft">{t("ledger.size")}</dt>
          <dd className="tabular">{query.data.size.toLocaleString()}</dd>
          <dt className="text-soft">{t("ledger.root")}</dt>
          <dd>
            <Id value={query.data.root} length={16} />
          </dd>
          <dt className="text-soft">{t("ledger.log")}</dt>
          <dd className="[overflow-wrap:anywhere]">{query.data.origin}</dd>
        </dl>
      )}
    </section>
  );
}

function Verification({ instance }: { instance?: string }) {
  const { t } = useTranslation();
  const verify = useMutation({
    mutationFn: () => body(api.POST("/v1/ledger/verify-log", { body: { instance_id: instance } })),
  });
  const good = verify.data?.result === "verified";
  return (
    <section className="flex flex-col items-start gap-3 rounded-lg border border-line p-4">
      <h2>{t("ledger.verify")}</h2>
      {verify.isError && <Failure error={verify.error} />}
      {verify.data ? (
        <div role="status" className="flex flex-col gap-2">
          <p className={`flex items-center gap-2 font-serif text-lg ${good ? "text-ok" : "text-bad"}`}>
            {good ? <ShieldCheck aria-hidden /> : <ShieldAlert aria-hidden />}
            {good
              ? t("ledger.good", { count: verify.data.records })
              : t("ledger.bad", { count: (verify.data.findings ?? []).length })}
          </p>
          <ul className="text-sm">
            {verify.data.findings?.map((finding) => (
              <li key={`${finding.code}:${finding.event_id ?? finding.detail}`}>
                <strong>{finding.code}</strong>: {finding.detail}
              </li>
            ))}
          </ul>
        </div>
      ) : (
        <p className="text-soft">{instance ? t("ledger.verifyInstance") : t("ledger.verifyAll")}</p>
      )}
      <Button disabled={verify.isPending} onClick={() => verify.mutate()}>
        {verify.isPending ? t("ledger.verifying") : t("ledger.verifyNow")}
      </Button>
      {instance && (
        <a
          href={`/v1/ledger/export?instance_id=${encodeURIComponent(instance)}`}
          download
          className="text-accent underline"
        >
          {t("ledger.download")}
        </a>
      )}
    </section>
  );
}
