// The verifier's answer: the verdict first, then each claim with what was found.
import { Check, CircleHelp, ShieldAlert, ShieldCheck, X } from "lucide-react";
import { useTranslation } from "@/app/i18n";
import { Button } from "@/ui/button";

interface Claim {
  claim: string;
  title: string;
  result: string;
  checked: number;
  findings: { code: string; detail: string }[];
}

/** As `countersign-verify --json` prints it, or why there is none. */
export interface Verdict {
  unreadable?: string;
  needs_key?: boolean;
  bundled_key?: string | null;
  result?: "verified" | "failed-verification";
  origin?: string | null;
  tree_size?: number | null;
  records?: number;
  instances?: number;
  claims?: Claim[];
  notes?: { code: string; detail: string }[];
}

/** So many findings of one claim say enough; the command line lists all of them. */
const SHOWN = 20;

export function Answer({ verdict, onKey }: { verdict: Verdict; onKey: (key: string) => void }) {
  const { t } = useTranslation();
  if (verdict.unreadable)
    return (
      <p role="alert" className="rounded-lg border border-bad bg-bad-wash p-4">
        {t("verify.unreadable")} {verdict.unreadable}
      </p>
    );
  if (verdict.needs_key)
    return (
      <div className="flex flex-col items-start gap-3 rounded-lg border border-warn bg-warn-wash p-5">
        <p className="prose">{t("verify.needsKey")}</p>
        {verdict.bundled_key && (
          <>
            <code className="font-mono text-xs [overflow-wrap:anywhere]">{verdict.bundled_key}</code>
            <Button onClick={() => onKey(verdict.bundled_key ?? "")}>{t("verify.compared")}</Button>
          </>
        )}
      </div>
    );
  const good = verdict.result === "verified";
  const Icon = good ? ShieldCheck : ShieldAlert;
  return (
    <section className="flex flex-col gap-5">
      <div className={`rounded-lg border p-5 ${good ? "border-ok bg-ok-wash" : "border-bad bg-bad-wash"}`}>
        <h2 className={`flex items-center gap-3 ${good ? "text-ok" : "text-bad"}`}>
          <Icon aria-hidden className="shrink-0" />
          {good ? t("verify.good") : t("verify.bad")}
        </h2>
        <p className="mt-2 text-soft [overflow-wrap:anywhere]">
          <code className="font-mono text-xs text-ink">{verdict.result}</code>{" "}
          {t("verify.counts", {
            records: verdict.records ?? 0,
            instances: verdict.instances ?? 0,
            origin: verdict.origin ?? "",
          })}
        </p>
      </div>
      <ul className="flex flex-col divide-y divide-line border-y border-line">
        {verdict.claims?.map((claim) => (
          <ClaimRow key={claim.claim} claim={claim} />
        ))}
      </ul>
      {(verdict.notes ?? []).length > 0 && (
        <section className="text-sm">
          <h3 className="mb-1">{t("verify.notes")}</h3>
          <ul className="flex flex-col gap-1">
            {verdict.notes?.map((note) => (
              <li key={`${note.code}:${note.detail}`}>
                <code className="font-mono text-xs">{note.code}</code> {note.detail}
              </li>
            ))}
          </ul>
        </section>
      )}
    </section>
  );
}

function ClaimRow({ claim }: { claim: Claim }) {
  const { t } = useTranslation();
  const bad = claim.findings.length > 0;
  const Icon = bad ? X : claim.result === "verified" ? Check : CircleHelp;
  const more = claim.findings.length - SHOWN;
  return (
    <li className="py-3">
      <div className="flex items-baseline gap-3">
        <Icon
          aria-hidden
          size={16}
          className={`shrink-0 translate-y-0.5 ${bad ? "text-bad" : claim.result === "verified" ? "text-ok" : "text-soft"}`}
        />
        <span className="min-w-0 flex-1">{claim.title}</span>
        <span className={`text-sm whitespace-nowrap ${bad ? "font-medium text-bad" : "text-soft"}`}>
          {claim.result}
        </span>
      </div>
      {bad && (
        <ul className="mt-2 flex flex-col gap-1 pl-7 text-sm">
          {claim.findings.slice(0, SHOWN).map((finding) => (
            <li key={`${finding.code}:${finding.detail}`} className="[overflow-wrap:anywhere]">
              <code className="font-mono text-xs text-bad">{finding.code}</code> {finding.detail}
            </li>
          ))}
          {more > 0 && <li className="text-soft">{t("verify.more", { count: more })}</li>}
        </ul>
      )}
    </li>
  );
}
