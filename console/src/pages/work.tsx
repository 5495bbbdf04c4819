// My work: steps that I am in charge of, soonest deadline first.
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { api, body } from "@/api/client";
import { useTopic } from "@/api/stream";
import { useTranslation } from "@/app/i18n";
import { PageHead } from "@/ui/page";
import { StateMark } from "@/ui/state";
import { PagedTable } from "@/ui/table";
import { Moment } from "@/ui/text";
import { useTexts } from "@/ui/texts";
import { useStateLooks } from "./runs/looks";

export function Work() {
  const { t } = useTranslation();
  const client = useQueryClient();
  const navigate = useNavigate();
  const says = useTexts();
  const looks = useStateLooks("step");
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
      <PageHead title={t("page.work")} />
      <PagedTable
        label={t("page.work")}
        query={query}
        id={(row) => `${row.run_id}:${row.step}`}
        onOpen={(row) =>
          void navigate({ to: "/runs/$id", params: { id: row.run_id }, search: { step: row.step } })
        }
        columns={[
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
          {
            key: "state",
            title: t("runs.state"),
            cell: (row) => {
              const { token, icon, label } = looks(row.state_code);
              return (
                <StateMark
                  token={token}
                  icon={icon}
                  words={row.waiting_facet ? says(`facet.${row.waiting_facet}.label`) : label}
                />
              );
            },
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
