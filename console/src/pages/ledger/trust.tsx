// Above the records: how far the log is sealed, and a verification in plain words.
import { useMutation, useQuery } from "@tanstack/react-query";
import { Download, ShieldAlert, ShieldCheck } from "lucide-react";
import { useTranslation } from "react-i18next";
import { api, body, Refusal } from "@/api/client";
import { Button } from "@/ui/button";
import { Fact, Facts } from "@/ui/facts";
import { Failure, Skeleton } from "@/ui/feedback";
import { Id } from "@/ui/text";

export function Checkpoint() {
  const { t } = useTranslation();
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

export function Verification({ instance }: { instance?: string }) {
  const { t } = useTranslation();
  const verify = useMutation({
    mutationFn: () => body(api.POST("/v1/ledger/verify-log", { body: { instance_id: instance } })),
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
