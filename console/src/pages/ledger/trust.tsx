// Above the records: how far the log is sealed, and a verification in plain words.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Download, ShieldAlert, ShieldCheck } from "lucide-react";
import { api, body, Refusal } from "@/api/client";
import { useTopic } from "@/api/stream";
import { useTranslation } from "@/app/i18n";
import { Button } from "@/ui/button";
import { Fact, Facts } from "@/ui/facts";
import { Failure, Skeleton } from "@/ui/feedback";
import { Person } from "@/ui/person";
import { Id, Moment } from "@/ui/text";
import { duration } from "@/ui/time";

/** How far the log is sealed and when it was last verified; asked again when a checkpoint is signed. */
function useStatus() {
  const client = useQueryClient();
  useTopic("ledger", () => {
    void client.invalidateQueries({ queryKey: ["checkpoint"] });
    void client.invalidateQueries({ queryKey: ["ledger", "status"] });
  });
  return useQuery({
    queryKey: ["ledger", "status"],
    queryFn: () => body(api.GET("/v1/ledger/status")),
  });
}

export function Checkpoint() {
  const { t } = useTranslation();
  const status = useStatus().data;
  const query = useQuery({
    queryKey: ["checkpoint"],
    queryFn: async () => {
      const { data = "" } = await api.GET("/v1/ledger/checkpoint", { parseAs: "text" });
      const [head = "", signatures = ""] = data.split("\n\n");
      const [origin = "", size = "", root = ""] = head.split("\n");
      // A signed note has one line per signature: the log's own, then those of its witnesses.
      const signed = signatures.split("\n").filter((line) => line.startsWith("— ")).length;
      const { data: key = "" } = await api.GET("/v1/ledger/key", { parseAs: "text" });
      return { key: key.trim(), origin, size: Number(size), root, witnesses: Math.max(0, signed - 1) };
    },
  });
  const nothing = query.error instanceof Refusal && query.error.status === 404;
  return (
    <section>
      <h2 className="mb-3">{t("ledger.checkpoint")}</h2>
      {query.isPending && <Skeleton lines={3} />}
      {nothing && <p className="text-soft">{t("ledger.noCheckpoint")}</p>}
      {query.isError && !nothing && <Failure error={query.error} />}
      {query.data && (
        <Facts>
          <Fact name={t("ledger.size")}>
            <span className="tabular">{query.data.size.toLocaleString()}</span>
          </Fact>
          {status && (
            <Fact name={t("ledger.lag")}>
              {status.unsealed === 0
                ? t("ledger.noLag")
                : t("ledger.waits", { count: status.unsealed, time: duration(status.seal_lag_ms) })}
            </Fact>
          )}
          {status?.sealed_at && (
            <Fact name={t("ledger.sealedAt")}>
              <Moment at={status.sealed_at} />
            </Fact>
          )}
          <Fact name={t("ledger.root")}>
            <Id value={query.data.root} length={16} />
          </Fact>
          <Fact name={t("ledger.witnesses")}>
            {query.data.witnesses === 0 ? t("ledger.noWitnesses") : query.data.witnesses}
          </Fact>
          <Fact name={t("verify.key")}>
            <Id value={query.data.key} length={24} />
          </Fact>
          <Fact name={t("ledger.log")}>{query.data.origin}</Fact>
        </Facts>
      )}
    </section>
  );
}

/** What the last verification of the whole log came to, and who asked for it. */
function LastVerification() {
  const { t } = useTranslation();
  const { data } = useStatus();
  if (!data) return null;
  const last = data.last_verification;
  if (!last) return <p className="text-soft">{t("ledger.neverVerified")}</p>;
  const good = last.result === "verified";
  const Icon = good ? ShieldCheck : ShieldAlert;
  return (
    <p className="flex items-start gap-2">
      <Icon aria-hidden size={18} className={`mt-0.5 shrink-0 ${good ? "text-ok" : "text-bad"}`} />
      <span>
        {good
          ? t("ledger.lastGood", { records: last.records.toLocaleString() })
          : t("ledger.lastBad", { count: last.findings })}{" "}
        <span className="text-soft">
          <Moment at={last.at} />, <Person who={last.by} />
        </span>
      </span>
    </p>
  );
}

export function Verification({ instance }: { instance?: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const verify = useMutation({
    mutationFn: () => body(api.POST("/v1/ledger/verify-log", { body: { instance_id: instance } })),
    onSuccess: () => void client.invalidateQueries({ queryKey: ["ledger", "status"] }),
  });
  const good = verify.data?.result === "verified";
  const findings = verify.data?.findings ?? [];
  return (
    <section className="flex flex-col items-start gap-3">
      <h2>{instance ? t("ledger.verifyOne") : t("ledger.verify")}</h2>
      {verify.isError && <Failure error={verify.error} />}
      {verify.data ? (
        <div role="status" className="flex flex-col gap-2">
          <p className={`flex items-center gap-2 font-serif text-lg ${good ? "text-ok" : "text-bad"}`}>
            {good ? <ShieldCheck aria-hidden /> : <ShieldAlert aria-hidden />}
            {good
              ? t("ledger.good", { count: verify.data.records })
              : t("ledger.bad", { count: findings.length })}
          </p>
          {good && <p className="prose text-soft">{t("ledger.goodWhy")}</p>}
          <ul className="flex flex-col gap-1 text-sm">
            {findings.map((finding) => (
              <li key={`${finding.code}:${finding.event_id ?? finding.detail}`}>
                <code className="font-mono text-xs">{finding.code}</code> {finding.detail}
              </li>
            ))}
          </ul>
        </div>
      ) : (
        <p className="prose text-soft">{instance ? t("ledger.verifyInstance") : t("ledger.verifyAll")}</p>
      )}
      {!instance && <LastVerification />}
      <div className="flex flex-wrap items-center gap-3">
        <Button disabled={verify.isPending} onClick={() => verify.mutate()}>
          {verify.isPending ? t("ledger.verifying") : t("ledger.verifyNow")}
        </Button>
        {instance && (
          <a
            href={`/v1/ledger/export?instance_id=${encodeURIComponent(instance)}`}
            download
            className="inline-flex items-center gap-2 text-accent underline"
          >
            <Download aria-hidden size={16} />
            {t("ledger.download")}
          </a>
        )}
      </div>
    </section>
  );
}
