// What do we run, in which version?
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { Cpu, Gavel, Workflow } from "lucide-react";
import { api, body } from "@/api/client";
import { useTranslation, wordsFor } from "@/app/i18n";
import { PageHead } from "@/ui/page";
import { Person } from "@/ui/person";
import { PagedTable } from "@/ui/table";
import { Id, Moment } from "@/ui/text";

const KINDS = { process: Gavel, workflow: Workflow, machine: Cpu };

export function Definitions() {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const query = useInfiniteQuery({
    queryKey: ["definitions"],
    queryFn: ({ pageParam }) =>
      body(api.GET("/v1/definitions", { params: { query: { limit: 100, cursor: pageParam || undefined } } })),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
  });
  return (
    <>
      <PageHead
        title={t("page.definitions")}
        actions={
          <span className="flex flex-wrap gap-2">
            <Link
              to="/proposals"
              className="inline-flex min-h-9 items-center rounded-md border border-field-line bg-raised px-3.5 font-medium hover:bg-wash"
            >
              {t("page.proposals")}
            </Link>
            <Link
              to="/definitions/new"
              className="inline-flex min-h-9 items-center rounded-md border border-accent bg-accent px-3.5 font-medium text-on-accent"
            >
              {t("definition.write")}
            </Link>
          </span>
        }
      />
      <PagedTable
        label={t("page.definitions")}
        query={query}
        id={(row) => `${row.name}@${row.version}`}
        onOpen={(row) => void navigate({ to: "/definitions/$name", params: { name: row.name } })}
        columns={[
          {
            key: "name",
            title: t("definition.name"),
            wide: true,
            cell: (row) => (
              <>
                <Link
                  to="/definitions/$name"
                  params={{ name: row.name }}
                  className="font-medium hover:underline"
                >
                  {row.name}
                </Link>
                {row.retired && <span className="ml-2 text-xs text-soft">{t("definition.retired")}</span>}
                {row.quarantined && <span className="ml-2 text-xs text-bad">{row.quarantined}</span>}
              </>
            ),
          },
          {
            key: "kind",
            title: t("definition.kind"),
            cell: (row) => <Kind kind={row.kind} />,
          },
          { key: "version", title: t("definition.version"), right: true, cell: (row) => row.version },
          {
            key: "by",
            title: t("definition.by"),
            from: "sm",
            cell: (row) => <Person who={row.published_by} />,
          },
          {
            key: "digest",
            title: t("gate.digest"),
            from: "lg",
            cell: (row) => <Id value={row.digest} length={12} />,
          },
          {
            key: "at",
            title: t("definition.at"),
            from: "md",
            right: true,
            cell: (row) => <Moment at={row.published_at} />,
          },
        ]}
        empty={{
          title: t("definition.empty"),
          why: (
            <>
              {t("definition.emptyWhy")}{" "}
              <code className="font-mono text-xs">countersign definition apply FILE</code>
            </>
          ),
        }}
      />
    </>
  );
}

function Kind({ kind }: { kind: string }) {
  const { t } = useTranslation();
  const Icon = KINDS[kind as keyof typeof KINDS] ?? Cpu;
  return (
    <span className="inline-flex items-center gap-2 align-top text-soft">
      <Icon aria-hidden size={15} />
      {wordsFor(t, "kind", kind)}
    </span>
  );
}
