// Another version was published meanwhile: what it changed, and the way to base the proposal on it.
import { Link } from "@tanstack/react-router";
import { GitMerge } from "lucide-react";
import type { SchemaProposalDiff, SchemaProposalView } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { Changes } from "../definitions/diff";
import { useVersionDiff } from "./read";

export function Rebase({ proposal, diff }: { proposal: SchemaProposalView; diff?: SchemaProposalDiff }) {
  const { t } = useTranslation();
  if (!diff?.needs_rebase) return null;
  const { base_version: base, newest_version: newest } = diff;
  return (
    <section
      aria-label={t("proposal.conflict")}
      className="mb-6 flex flex-col gap-3 rounded-lg border border-warn bg-warn-wash px-4 py-3"
    >
      <p className="flex items-start gap-2 font-medium">
        <GitMerge aria-hidden size={18} className="mt-0.5 shrink-0 text-warn" />
        {t("proposal.conflictWhy", { base, newest })}
      </p>
      <Between name={proposal.target} base={base} newest={newest} />
      <p>
        <Link
          to="/proposals/$id/edit"
          params={{ id: proposal.proposal_id }}
          search={{ base: newest }}
          className="inline-flex min-h-9 items-center rounded-md border border-field-line bg-raised px-3.5 font-medium hover:bg-wash"
        >
          {t("proposal.rebase", { version: newest })}
        </Link>
      </p>
    </section>
  );
}

/** What the versions since the base changed. */
export function Between({ name, base, newest }: { name: string; base: number; newest: number }) {
  const { t } = useTranslation();
  const between = useVersionDiff(name, base, newest);
  if (!between.data) return null;
  return (
    <details open>
      <summary className="w-fit cursor-pointer text-sm">{t("proposal.between", { base, newest })}</summary>
      <div className="mt-2">
        <Changes diff={between.data} />
      </div>
    </details>
  );
}
