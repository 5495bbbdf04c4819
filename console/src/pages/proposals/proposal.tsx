// One proposal: what it changes, who approves it, what was said, and what can be done with it.
import { Link, useParams } from "@tanstack/react-router";
import { Gavel, ScrollText } from "lucide-react";
import type { SchemaProposalView } from "@/api/schema";
import { useTranslation, wordsFor } from "@/app/i18n";
import { useMe } from "@/app/session";
import { Fact, Facts } from "@/ui/facts";
import { Failure, Skeleton } from "@/ui/feedback";
import { PageHead } from "@/ui/page";
import { Person } from "@/ui/person";
import { StateChip } from "@/ui/state";
import { Id, Moment } from "@/ui/text";
import { Values } from "@/ui/values";
import { useStateLooks } from "../runs/looks";
import { Approval } from "./approval";
import { Changed } from "./changed";
import { Comments } from "./comments";
import { useProposal, useProposalDiff } from "./read";
import { Rebase } from "./rebase";
import { Verbs } from "./verbs";

export function ProposalPage() {
  const { id } = useParams({ from: "/frame/proposals/$id" });
  const query = useProposal(id);
  if (query.isPending) return <Skeleton lines={8} />;
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  return <Proposal proposal={query.data} />;
}

const LINK =
  "inline-flex min-h-9 items-center gap-2 rounded-md border border-field-line px-3.5 font-medium hover:bg-wash";

function Proposal({ proposal }: { proposal: SchemaProposalView }) {
  const { t } = useTranslation();
  const { data: me } = useMe();
  const { proposal_id: id } = proposal;
  const look = useStateLooks("proposal")(proposal.state);
  const ofDefinition = proposal.document != null && proposal.newest_version != null;
  const diff = useProposalDiff(id, ofDefinition);
  return (
    <>
      <PageHead
        trail={
          <Link to="/proposals" className="hover:underline">
            {t("page.proposals")}
          </Link>
        }
        title={proposal.target}
        actions={
          <span className="flex flex-wrap gap-2">
            {me?.scopes.includes("workflows:read") && (
              <Link to="/processes/$id" params={{ id }} className={LINK}>
                <Gavel aria-hidden size={16} />
                {t("process.history")}
              </Link>
            )}
            <Link to="/ledger" search={{ instance_id: id }} className={LINK}>
              <ScrollText aria-hidden size={16} />
              {t("process.evidence")}
            </Link>
          </span>
        }
      >
        <p className="flex flex-wrap items-center gap-x-4 gap-y-1">
          <StateChip token={look.token} icon={look.icon} words={look.label} />
          <Merged proposal={proposal} />
        </p>
        {proposal.reason && <p className="prose font-serif text-base">“{proposal.reason}”</p>}
        <p className="flex flex-wrap gap-x-6 gap-y-1 text-xs text-soft">
          <span>
            {t("proposal.by")} <Person who={proposal.proposer_ref} />
            {proposal.proposer_class && ` (${wordsFor(t, "proposal.class", proposal.proposer_class)})`},{" "}
            <Moment at={proposal.created_at} />
          </span>
          <Id value={id} />
        </p>
      </PageHead>
      {/* What has ended takes no further act, as the registry says. */}
      {!look.done && (
        <>
          <Rebase proposal={proposal} diff={diff.data} />
          <Verbs proposal={proposal} />
        </>
      )}
      <div className="grid gap-x-12 gap-y-8 lg:grid-cols-[minmax(0,1fr)_minmax(0,1fr)]">
        <About proposal={proposal} />
        <Approval proposal={proposal} />
      </div>
      {ofDefinition && <Changed proposal={proposal} diff={diff} />}
      <Comments proposal={proposal} ended={look.done} />
    </>
  );
}

/** What became of it. */
function Merged({ proposal }: { proposal: SchemaProposalView }) {
  const { t } = useTranslation();
  const { name, version, evidence_ref: evidence } = (proposal.merged ?? {}) as Record<string, unknown>;
  if (typeof name === "string" && typeof version === "number")
    return (
      <Link to="/definitions/$name" params={{ name }} search={{ version }} className="text-accent underline">
        {t("proposal.published", { version: `${name}@${version}` })}
      </Link>
    );
  if (typeof evidence === "string") return <span>{t("proposal.applied", { evidence })}</span>;
  return null;
}

function About({ proposal }: { proposal: SchemaProposalView }) {
  const { t } = useTranslation();
  const { base_version: base, digest, evidence_ref: evidence, affected, proposed_action: action } = proposal;
  const earlier = proposal.versions.slice(0, -1);
  return (
    <section className="min-w-0">
      <h2 className="mb-3 text-base">{t("proposal.what")}</h2>
      <Facts>
        <Fact name={t("definition.kind")}>{wordsFor(t, "kind", proposal.proposal_kind)}</Fact>
        {base != null && (
          <Fact name={t("proposal.base")}>
            {base === 0 ? t("proposal.first") : t("proposal.version", { version: base })}
          </Fact>
        )}
        {digest && (
          <Fact name={t("gate.digest")}>
            <Id value={digest} length={16} />
          </Fact>
        )}
        {affected.length > 0 && <Fact name={t("proposal.affected")}>{affected.join(", ")}</Fact>}
        {evidence && <Fact name={t("process.evidence")}>{evidence}</Fact>}
        {action && (
          <Fact name={t("proposal.action")}>
            <Values value={action} />
          </Fact>
        )}
      </Facts>
      {earlier.length > 0 && (
        <details className="mt-3 text-sm">
          <summary className="w-fit cursor-pointer text-xs text-soft">
            {t("proposal.earlier", { count: earlier.length })}
          </summary>
          <ol className="mt-2 flex flex-col gap-1">
            {earlier.map((version) => (
              <li key={version.event_id} className="flex flex-wrap gap-x-4 text-xs text-soft">
                {t("proposal.version", { version: version.base_version })}
                {version.digest && <Id value={version.digest} length={16} />}
                <Moment at={version.at} />
              </li>
            ))}
          </ol>
        </details>
      )}
    </section>
  );
}
