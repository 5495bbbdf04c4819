// What do we run, in which version?
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import { PagedTable } from "@/ui/table";
import { Id, Moment } from "@/ui/text";

export function Definitions() {
  const { t } = useTranslation();
  const query = useInfiniteQuery({
    queryKey: ["definitions"],
    queryFn: ({ pageParam }) =>
      body(api.GET("/v1/definitions", { params: { query: { limit: 100, cursor: pageParam || undefined } } })),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
  });
  return (
    <>
      <div className="mb-5 flex items-baseline justify-between gap-4">
        <h1>{t("page.definitions")}</h1>
        <Link to="/definitions/new" className="text-accent underline">
          {t("definition.write")}
        </Link>
      </div>
      <PagedTable
        label={t("page.definitions")}
        query={query}
        id={(row) => `${row.name}@${row.version}`}
        columns={[
          {
            key: "name",
            title: t("definition.name"),
            cell: (row) => (
              <Link
                to="/definitions/$name"
                params={{ name: row.name }}
                className="font-medium hover:underline"
              >
                {row.name}
              </Link>
            ),
          },
          { key: "kind", title: t("definition.kind"), cell: (row) => t(`kind.${row.kind}`, row.kind) },
          { key: "version", title: t("definition.version"), right: true, cell: (row) => row.version },
          { key: "by", title: t("definition.by"), from: "sm", cell: (row) => row.published_by },
          {
            key: "at",
            title: t("definition.at"),
            from: "md",
            cell: (row) => <Moment at={row.published_at} />,
          },
          {
            key: "digest",
            title: t("gate.digest"),
            from: "lg",
            cell: (row) => <Id value={row.digest} length={12} />,
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
