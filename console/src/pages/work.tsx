// My work: steps that I am in charge of, soonest deadline first.
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import { useTopic } from "@/api/stream";
import { StateChip } from "@/ui/state";
import { PagedTable } from "@/ui/table";
import { Moment } from "@/ui/text";
import { useStateLooks } from "./runs/looks";

export function Work() {
  const { t } = useTranslation();
  const client = useQueryClient();
  const looks = useStateLooks("workflow_step");
  const query = useInfiniteQuery({
    queryKey: ["worklist"],
    queryFn: ({ pageParam }) =>
      body(api.GET("/v1/worklist", { params: { query: { limit: 50, cursor: pageParam || undefined } } })),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
  });
  useTopic("worklist", () => void client.invalidateQueries({ queryKey: ["worklist"] }));
  return (
    <>
      <h1 className="mb-5">{t("page.work")}</h1>
      <PagedTable
        label={t("page.work")}
        query={query}
        id={(row) => `${row.run_id}:${row.step}`}
        columns={[
          {
            key: "state",
            title: t("runs.state"),
            cell: (row) => (
              <StateChip token={looks(row.state_code).token} words={looks(row.state_code).label} />
            ),
          },
          {
            key: "step",
            title: t("work.step"),
            cell: (row) => (
              <Link
                to="/runs/$id"
                params={{ id: row.run_id }}
                search={{ step: row.step }}
                className="font-medium hover:underline"
              >
                {row.step}
              </Link>
            ),
          },
          { key: "subject", title: t("runs.subject"), from: "sm", cell: (row) => row.subject_ref },
          {
            key: "definition",
            title: t("runs.definition"),
            from: "md",
            cell: (row) => <span className="text-soft">{row.definition}</span>,
          },
          {
            key: "deadline",
            title: t("step.deadline"),
            right: true,
            cell: (row) => (row.deadline ? <Moment at={row.deadline} /> : "—"),
          },
        ]}
        empty={{ title: t("work.empty"), why: t("work.emptyWhy") }}
      />
    </>
  );
}
