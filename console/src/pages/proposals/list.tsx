// Changes that are proposed: which of them wait, and for whom?
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { api, body } from "@/api/client";
import type { paths } from "@/api/schema";
import { useTranslation, wordsFor } from "@/app/i18n";
import type { ProposalFilter } from "@/app/search";
import { Field, Picker } from "@/ui/form";
import { PageHead } from "@/ui/page";
import { Person } from "@/ui/person";
import { StateMark, useRegistry } from "@/ui/state";
import { PagedTable } from "@/ui/table";
import { Moment } from "@/ui/text";
import { useStateLooks } from "../runs/looks";

type Query = NonNullable<paths["/v1/proposals"]["get"]["parameters"]["query"]>;

export function Proposals() {
  const { t } = useTranslation();
  const filter = useSearch({ from: "/frame/proposals" });
  const navigate = useNavigate();
  const looks = useStateLooks("proposal");
  const states = useRegistry().data?.machines.find((one) => one.scope === "proposal")?.states ?? [];
  const query = useInfiniteQuery({
    queryKey: ["proposals", filter],
    queryFn: ({ pageParam }) =>
      body(
        api.GET("/v1/proposals", {
          params: {
            query: { ...(filter as Query), limit: 50, order: "desc", cursor: pageParam || undefined },
          },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: (before) => before,
  });
  const change = (part: ProposalFilter) =>
    void navigate({ to: "/proposals", search: { ...filter, ...part }, replace: true });
  return (
    <>
      <PageHead title={t("page.proposals")} />
      <fieldset className="mb-6 flex flex-wrap items-end gap-3">
        <legend className="sr-only">{t("runs.filters")}</legend>
        <Field
          id="proposal-target"
          label={t("proposal.target")}
          value={filter.target ?? ""}
          onChange={(target) => change({ target: target || undefined })}
        />
        <Picker
          id="proposal-state"
          label={t("runs.state")}
          value={filter.state ?? ""}
          onChange={(state) => change({ state: state || undefined })}
          options={[
            ["", t("runs.any")],
            ...states.map((one): [string, string] => [one.state_code, looks(one.state_code).label]),
          ]}
        />
      </fieldset>
      <PagedTable
        label={t("page.proposals")}
        query={query}
        id={(row) => row.proposal_id}
        onOpen={(row) => void navigate({ to: "/proposals/$id", params: { id: row.proposal_id } })}
        columns={[
          {
            key: "target",
            title: t("proposal.target"),
            wide: true,
            cell: (row) => (
              <Link
                to="/proposals/$id"
                params={{ id: row.proposal_id }}
                className="font-medium hover:underline"
              >
                {row.target}
              </Link>
            ),
          },
          {
            key: "kind",
            title: t("definition.kind"),
            from: "sm",
            cell: (row) => <span className="text-soft">{wordsFor(t, "kind", row.proposal_kind)}</span>,
          },
          {
            key: "state",
            title: t("runs.state"),
            cell: (row) => {
              const { token, icon, label } = looks(row.state);
              return <StateMark token={token} icon={icon} words={label} />;
            },
          },
          {
            key: "by",
            title: t("proposal.by"),
            from: "md",
            cell: (row) => <Person who={row.proposer_ref} />,
          },
          {
            key: "at",
            title: t("proposal.at"),
            from: "sm",
            right: true,
            cell: (row) => <Moment at={row.created_at} />,
          },
        ]}
        empty={{
          title: t("proposal.empty"),
          why: (
            <>
              {t("proposal.emptyWhy")}{" "}
              <code className="font-mono text-xs">countersign proposal create …</code>
            </>
          ),
        }}
      />
    </>
  );
}
