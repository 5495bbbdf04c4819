// What starts by the clock, and when next.
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, body } from "@/api/client";
import { useTranslation, wordsFor } from "@/app/i18n";
import { PagedTable } from "@/ui/table";
import { Moment } from "@/ui/text";

export function Schedules() {
  const { t } = useTranslation();
  const query = useInfiniteQuery({
    queryKey: ["schedules"],
    queryFn: () => body(api.GET("/v1/schedules", {})),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
  });
  return (
    <PagedTable
      label={t("admin.schedules")}
      query={query}
      id={(row) => `${row.definition} ${row.cron} ${row.time_zone}`}
      columns={[
        {
          key: "definition",
          title: t("admin.definition"),
          cell: (row) => (
            <Link
              to="/definitions/$name"
              params={{ name: row.definition }}
              className="font-medium hover:underline"
            >
              {row.definition}
            </Link>
          ),
        },
        {
          key: "cron",
          title: t("admin.cron"),
          cell: (row) => <code className="font-mono text-xs">{row.cron}</code>,
        },
        { key: "zone", title: t("admin.zone"), from: "sm", cell: (row) => row.time_zone },
        {
          key: "overlap",
          title: t("admin.overlap"),
          from: "md",
          cell: (row) => wordsFor(t, "admin.overlaps", row.overlap),
        },
        {
          key: "next",
          title: t("admin.next"),
          right: true,
          cell: (row) => (row.next_at ? <Moment at={row.next_at} /> : t("admin.never")),
        },
      ]}
      empty={{ title: t("admin.noSchedules"), why: t("admin.noSchedulesWhy") }}
    />
  );
}
