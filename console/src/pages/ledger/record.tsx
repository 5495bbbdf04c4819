// One record: what it says, who vouches for it, where it is sealed, and whether all of that holds.
import { useMutation, useQuery } from "@tanstack/react-query";
import { ShieldAlert, ShieldCheck, X } from "lucide-react";
import { api, body } from "@/api/client";
import type { SchemaRecordView } from "@/api/schema";
import { useTranslation, wordsFor } from "@/app/i18n";
import { Button } from "@/ui/button";
import { Fact, Facts } from "@/ui/facts";
import { Failure, Skeleton } from "@/ui/feedback";
import { Person } from "@/ui/person";
import { Id, Moment } from "@/ui/text";
import { Values } from "@/ui/values";
import { Assurance, SealState } from "./assurance";

/** What the signature means, as the signer saw it (21 CFR 11.50). */
export function signedMeaning(record: SchemaRecordView): string | undefined {
  const { statement } = (record.attestation ?? {}) as { statement?: string };
  if (!statement) return undefined;
  try {
    const bytes = Uint8Array.from(atob(statement), (letter) => letter.charCodeAt(0));
    const { meaning } = JSON.parse(new TextDecoder().decode(bytes)) as { meaning?: string | null };
    return meaning ?? undefined;
  } catch {
    return undefined;
  }
}

export function RecordPanel({ id, onClose }: { id: string; onClose: () => void }) {
  const { t } = useTranslation();
  const query = useQuery({
    queryKey: ["records", "one", id],
    queryFn: () => body(api.GET("/v1/ledger/records/{event_id}", { params: { path: { event_id: id } } })),
  });
  return (
    <aside
      aria-label={t("ledger.record")}
      className="flex flex-col gap-5 rounded-lg border border-line bg-raised p-5 lg:sticky lg:top-4 lg:max-h-[calc(100dvh-2rem)] lg:overflow-y-auto"
    >
      <div className="flex items-start justify-between gap-3">
        <h2 className="first-letter:uppercase">
          {query.data ? wordsFor(t, "record", query.data.action_ref) : t("ledger.record")}
        </h2>
        <Button look="quiet" aria-label={t("common.close")} onClick={onClose} className="-mt-1 -mr-2">
          <X aria-hidden size={17} />
        </Button>
      </div>
      {query.isPending && <Skeleton lines={6} />}
      {query.isError && <Failure error={query.error} retry={() => void query.refetch()} />}
      {query.data && <Content record={query.data} />}
    </aside>
  );
}

function Content({ record }: { record: SchemaRecordView }) {
  const { t } = useTranslation();
  const meaning = signedMeaning(record);
  return (
    <>
      {meaning && (
        <p>
          <span className="text-soft">{t("ledger.signedMeaning")}</span>{" "}
          <em className="font-serif">{meaning}</em>
        </p>
      )}
      <Facts>
        <Fact name={t("ledger.actor")}>
          <Person who={record.actor_ref} />
        </Fact>
        <Fact name={t("ledger.at")}>
          <Moment at={record.recorded_at} />
        </Fact>
        <Fact name={t("ledger.number")}>
          <span className="tabular">{record.sequence}</span>
        </Fact>
        <Fact name={t("ledger.assurance")}>
          <Assurance of={record.assurance} />
        </Fact>
        <Fact name={t("ledger.seal")}>
          <SealState at={record.log_index} />
        </Fact>
        <Fact name={t("ledger.hash")}>
          <Id value={record.record_hash} length={16} />
        </Fact>
        <Fact name={t("ledger.prev")}>
          {/^0+$/.test(record.prev) ? t("ledger.first") : <Id value={record.prev} length={16} />}
        </Fact>
      </Facts>
      <Check record={record} />
      <section>
        <h3 className="mb-2">{t("ledger.says")}</h3>
        {record.payload == null ? (
          <p className="text-soft">{t("ledger.purged")}</p>
        ) : (
          <div className="text-sm">
            <Values value={record.payload} />
          </div>
        )}
      </section>
    </>
  );
}

const CODES = [
  "attestation-proof-invalid",
  "attestation-actor-unknown-in-registry",
  "seal-proof-invalid",
  "seal-record-set-mismatch",
  "unsealed",
  "purged",
] as const;

/** The server reads the record again and checks it, as an outsider would. */
function Check({ record }: { record: SchemaRecordView }) {
  const { t } = useTranslation();
  const verify = useMutation({
    mutationFn: () =>
      body(
        api.POST("/v1/ledger/verify", {
          body: { event_id: record.event_id, payload: record.payload ?? null },
        }),
      ),
  });
  const good = verify.data?.result === "verified";
  const code = CODES.find((known) => known === verify.data?.code);
  return (
    <section className="flex flex-col items-start gap-3 border-y border-line py-4">
      {verify.isError && <Failure error={verify.error} />}
      {verify.data && (
        <div role="status" className="flex items-start gap-2">
          {good ? (
            <ShieldCheck aria-hidden size={18} className="mt-0.5 shrink-0 text-ok" />
          ) : (
            <ShieldAlert aria-hidden size={18} className="mt-0.5 shrink-0 text-bad" />
          )}
          <p>
            <strong className="font-medium">{good ? t("ledger.recordGood") : t("ledger.recordBad")}</strong>{" "}
            {good ? t("ledger.recordGoodWhy") : code ? t(`recordCode.${code}`) : verify.data.code}
          </p>
        </div>
      )}
      <Button disabled={verify.isPending} onClick={() => verify.mutate()}>
        {verify.isPending ? t("ledger.verifying") : t("ledger.verifyRecord")}
      </Button>
    </section>
  );
}
